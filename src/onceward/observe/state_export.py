"""State as tables: the entries with one key, and all of it as Parquet files, from a checkpoint or a savepoint.

An export is written under a hidden name and renamed when it is whole: a crash leaves none, or all of it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceward.errors import ConfigurationError
from onceward.observe.state import checked_epoch
from onceward.observe.state_views import StateView, chosen, frame_of, state_views
from onceward.operators import Topology
from onceward.savepoints import read_savepoint
from onceward.savepoints.document import CONTENT, FILE
from onceward.savepoints.place import os_errors_as_storage_failed, unfinished
from onceward.savepoints.schema_paths import is_description, made_absolute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class StateFiles:
    """A directory that Spark reads state from, the epoch at whose end, and what there is to read."""

    root: Path
    epoch: int
    views: tuple[StateView, ...]


@contextmanager
def state_of(path: Path, *, operator: str | None = None, epoch: int | None = None) -> Iterator[StateFiles]:
    """Of a checkpoint, or of a savepoint, which Spark reads through links: its files are not touched."""
    if not (path / FILE).is_file():
        wanted = checked_epoch(path, epoch)
        yield StateFiles(path, wanted, tuple(chosen(state_views(path), operator)))
        return
    saved = read_savepoint(path)
    if epoch not in (None, saved.epoch):
        raise ConfigurationError(
            f"the savepoint is of epoch {saved.epoch}, not {epoch}", hint="leave out --epoch, or give another savepoint"
        )
    with _linked(path / CONTENT) as root:
        yield StateFiles(root, checked_epoch(root, saved.epoch), tuple(_saved_views(root, saved.topology, operator)))


def _saved_views(root: Path, topology: Topology, operator: str | None) -> list[StateView]:
    return chosen(state_views(root, topology), operator)


@contextmanager
def _linked(content: Path) -> Iterator[Path]:
    """Descriptions in a savepoint name schemas by relative paths, which Spark does not find: they alone are copied."""
    root = Path(tempfile.mkdtemp(prefix="onceward-state-"))
    try:
        for path in sorted(content.rglob("*")):
            name = path.relative_to(content).as_posix()
            target = root / name
            if path.is_dir():
                target.mkdir()
            elif is_description(name):
                target.write_bytes(made_absolute(name, path.read_bytes(), root))
            else:
                target.symlink_to(path)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def with_key(frame: DataFrame, wanted: Sequence[str]) -> DataFrame:
    """The entries whose key has these values, each given as NAME=VALUE and compared as text."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    key = frame.schema["key"].dataType if "key" in frame.columns else None
    names = key.names if isinstance(key, StructType) else []
    for one in wanted:
        name, is_set, value = one.partition("=")
        if not is_set or name not in names:
            raise ConfigurationError(
                f"--key {one}: the key has no such column", hint=f"give NAME=VALUE; names are: {', '.join(names)}"
            )
        frame = frame.where(F.col(f"key.`{name}`").cast("string") == value)
    return frame


def export_state(spark: SparkSession, found: StateFiles, target: Path, *, keys: Sequence[str] = ()) -> dict[str, int]:
    """A folder of Parquet files for each view, below `target`, which must not exist; how many rows each has."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError(f"{target} is not empty", hint="give a directory that does not exist yet")
    rows: dict[str, int] = {}
    with os_errors_as_storage_failed("export into", target), unfinished(target.parent, target.name) as made:
        for view in found.views:
            frame = _storable(with_key(frame_of(spark, found.root, view, found.epoch), keys))
            name = folder_name(view)
            folder = made.path / (name if name not in rows else f"{name}-{view.operator.number}")
            frame.write.parquet(str(folder))
            rows[folder.name] = spark.read.parquet(str(folder)).count()
        made.become(target)
    return rows


def folder_name(view: StateView) -> str:
    """The view's label as a file name."""
    return re.sub(r"[^\w.=-]+", "-", view.label).strip("-.") or str(view.operator.number)


def _storable(frame: DataFrame) -> DataFrame:
    """Without columns of no type, which Parquet has none for: a dedupe keeps keys alone."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType, StructType

    kept = []
    for field in frame.schema.fields:
        if isinstance(field.dataType, StructType):
            inner = [one.name for one in field.dataType.fields if not isinstance(one.dataType, NullType)]
            if inner:
                columns = [F.col(f"`{field.name}`.`{name}`").alias(name) for name in inner]
                kept.append(F.when(F.col(f"`{field.name}`").isNotNull(), F.struct(*columns)).alias(field.name))
        elif not isinstance(field.dataType, NullType):
            kept.append(F.col(f"`{field.name}`"))
    return frame.select(*(kept or [F.lit(True).alias("kept")]))
