"""Another number of state partitions, by Spark's offline tool: only ever in a restored copy, compared by content.

Spark's tool writes an epoch of its own into the checkpoint, with the positions of the one before. Of a state that it
cannot split it says so only after it has planned that epoch, and the query then never starts: so the limits are looked
at first, and all of it happens in a copy that is thrown away if anything fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from onceward.errors import ConfigurationError, DamagedFile
from onceward.observe.state_views import plain_path, session_for, state_digests
from onceward.savepoints.schema_paths import is_description, made_absolute, made_relative
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.checkpoint_config import BACKENDS, PARTITIONS, PROVIDER


def refuse_rescale(spark: SparkSession, settings: Mapping[str, str], partitions: int) -> None:
    """`ConfigurationError` where Spark cannot do it; `settings` are those of the savepoint's epoch."""
    if partitions < 1:
        raise ConfigurationError(f"--state-partitions {partitions} is none", hint="give at least 1")
    if settings.get(PROVIDER) != BACKENDS["rocksdb"]:
        kept_by = settings.get(PROVIDER, "nothing").rpartition(".")[2]
        raise ConfigurationError(
            f"the state is kept by {kept_by}, and only in RocksDB can it be split into another number of partitions",
            hint=f"leave out --state-partitions: it stays at {settings.get(PARTITIONS, 'what it is')}; or begin a new "
            "checkpoint with state_backend='rocksdb'",
        )
    if not hasattr(spark, "_streamingCheckpointManager"):
        raise ConfigurationError(
            f"this Spark, {spark.version}, cannot repartition state", hint="it needs Spark 4.2 or newer, and no Connect"
        )


def rescale(spark: SparkSession, root: Path, partitions: int) -> None:
    """Repartition the state of the copy in `root`; `DamagedFile` where it is not the same state afterwards."""
    logs = SparkLogs(root)
    if logs.shuffle_partitions() == partitions or not logs.keeps_state():
        return
    with _full_paths(root):
        before = state_digests(spark, root, logs.decided())
        manager = session_for(spark, root, logs.decided())._streamingCheckpointManager
        manager.repartition(str(plain_path(root)), partitions, enforce_exactly_once_sink=True)
        after = state_digests(spark, root, logs.decided())
    if before != after:
        differing = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        raise DamagedFile(
            f"the state in {partitions} partitions is not the state that was there: {', '.join(differing)} differ; "
            "nothing was restored",
            hint="restore without --state-partitions, and report this with the versions of onceward and Spark",
        )


@contextmanager
def _full_paths(root: Path) -> Iterator[None]:
    """Inside, descriptions name their schemas by full path, as Spark wants it; afterwards as a savepoint has it."""
    found = [path for path in root.glob("state/*/_metadata/v2/*") if is_description(path.relative_to(root).as_posix())]
    for path in found:
        path.write_bytes(made_absolute(path.relative_to(root).as_posix(), path.read_bytes(), root))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    yield
    for path in root.glob("state/*/_metadata/v2/*"):
        name = path.relative_to(root).as_posix()
        if is_description(name):
            path.write_bytes(made_relative(name, path.read_bytes()))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
