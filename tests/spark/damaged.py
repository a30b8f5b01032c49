"""Real checkpoints of eight kinds, made once, put back as they were before each test, and harmed in every way."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import Job
from onceward.sinks import SQLiteSink
from onceward.verify.stores import version_in

from .processors import processed_by_frames, processed_by_rows
from .workspace import wait_until

EPOCHS = 6
"""Files in the source when the checkpoint is made; one more comes afterwards, for those who resume."""

SNAPSHOT = 4
"""The newest snapshot of the state is of this version or below."""

_STORE = "spark.sql.streaming.stateStore"
_PACKAGE = "org.apache.spark.sql.execution.streaming"
HDFS = {f"{_STORE}.providerClass": f"{_PACKAGE}.state.HDFSBackedStateStoreProvider"}
ROCKSDB = {
    f"{_STORE}.providerClass": f"{_PACKAGE}.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
FORMAT_2 = {**ROCKSDB, f"{_STORE}.checkpointFormatVersion": "2"}
# Else a query whose state ends with time asks for another epoch for ever.
ENDS = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
COMMON = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.fileSource.log.compactInterval": "3",
    f"{_STORE}.minDeltasForSnapshot": "2",
    f"{_STORE}.maintenanceInterval": "50ms",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_PACKAGE}.checkpointing.FileSystemBasedCheckpointFileManager",
}


NO_SNAPSHOTS = {f"{_STORE}.minDeltasForSnapshot": "100", f"{_STORE}.maintenanceInterval": "1h"}


@dataclass(frozen=True)
class Kind:
    """A pipeline with the state store that it runs on, and how its rows reach the table."""

    settings: dict[str, str]
    pipeline: Callable[[DataFrame, Callable[[], DataFrame]], DataFrame]
    keys: tuple[str, ...] = ()


def _counted(rows: DataFrame, _: object) -> DataFrame:
    return rows.groupBy("k").count()


def _windowed(rows: DataFrame, _: object) -> DataFrame:
    windows = rows.withWatermark("t", "1 minute").groupBy(F.window("t", "1 minute"), "k").count()
    return windows.select(F.col("window.start").cast("string").alias("start"), "k", "count")


def _deduped(rows: DataFrame, _: object) -> DataFrame:
    return rows.dropDuplicates(["k", "n"]).select("k", "n")


def _joined(rows: DataFrame, again: Callable[[], DataFrame]) -> DataFrame:
    other = again().withWatermark("t", "1 hour").select("id", F.col("n").alias("m"), F.col("t").alias("u"))
    joined = rows.withWatermark("t", "1 hour").join(other, "id")
    return joined.select("id", "n", "m")


KINDS = {
    "stateless": Kind({}, lambda rows, _: rows.select("id", "k")),
    "count": Kind(HDFS, _counted, ("k",)),
    "window": Kind(ROCKSDB, _windowed, ("start", "k")),
    "dedupe": Kind(HDFS, _deduped),
    "join": Kind(HDFS, _joined),
    "format-2": Kind(FORMAT_2, _counted, ("k",)),
    "rows": Kind({**ROCKSDB, **ENDS}, processed_by_rows, ("k",)),
    "frames": Kind({**FORMAT_2, **ENDS}, processed_by_frames, ("k",)),
}


OFTEN = ("stateless", "count", "window", "format-2", "rows")
"""In every run; the others, which keep their state in the same files, by `make soak`."""


def kind_parameter(kind: str, *values: Any) -> Any:
    return pytest.param(kind, *values, marks=[] if kind in OFTEN else [pytest.mark.soak])


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def stop_stores(spark: SparkSession) -> None:
    """Else their maintenance goes on, and writes snapshots of this run into what is put back."""
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


@dataclass(frozen=True)
class Made:
    """One of them: where it is, and a copy of it as it was made."""

    kind: str
    folder: Path
    kinds: Mapping[str, Kind] = field(default_factory=lambda: KINDS)
    at: str = "checkpoint"
    keeps_snapshots: bool = False
    """Else the second half of the epochs has none, and nothing is left before the newest one in partition 1."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / self.at

    @property
    def database(self) -> Path:
        return self.folder / "out.db"

    @property
    def pristine(self) -> Path:
        return self.folder / "pristine"

    def job(self, **options: Any) -> Job:
        kind = self.kinds[self.kind]
        keys = {"mode": "upsert", "keys": list(kind.keys)} if kind.keys else {}
        return Job(
            name=self.kind,
            checkpoint=self.checkpoint,
            pipeline=self._pipeline,
            sinks=[SQLiteSink(self.database, table="t", **keys)],
            output_mode="update" if kind.keys else "append",
            trigger="available-now",
            **options,
        )

    def _pipeline(self, spark: SparkSession) -> DataFrame:
        def rows() -> DataFrame:
            reader = spark.readStream.schema("id long, k string, n long, t timestamp").option("maxFilesPerTrigger", 1)
            return reader.json(str(self.folder / "in"))

        return self.kinds[self.kind].pipeline(rows(), rows)

    def add_file(self, number: int) -> None:
        source = self.folder / "in"
        source.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": number * 4 + i, "k": f"k{i}", "n": number // 2, "t": f"2026-01-01 00:{number:02}:{i:02}"}
            for i in range(4)
        ]
        hidden = source / f".{number}"
        hidden.write_text("\n".join(map(json.dumps, rows)))
        os.utime(hidden, (1_600_000_000 + number, 1_600_000_000 + number))
        hidden.rename(source / f"{number:03}.json")

    def make(self, spark: SparkSession) -> None:
        """With a snapshot in the middle and changes after it, however busy Spark's maintenance was. In partition 1
        nothing older is left, as Spark purges it: there the snapshot cannot be done without."""
        for number in range(SNAPSHOT):
            self.add_file(number)
        with self._settings(spark):
            self.job().run(spark)
            wait_until(self._has_snapshots, "a snapshot in every store")
        for number in range(SNAPSHOT, EPOCHS):
            self.add_file(number)
        if self.keeps_snapshots:
            self.run(spark)
        else:
            with self._settings(spark, NO_SNAPSHOTS):
                self.job().run(spark)
            stores = {path.parent for path in self.checkpoint.glob("state/0/1/**/*") if _version(path) is not None}
            for folder in stores:
                _purge(folder)
        shutil.copytree(self.checkpoint, self.pristine / "checkpoint")
        shutil.copy(self.database, self.pristine / "out.db")
        self.add_file(EPOCHS)

    def run(self, spark: SparkSession, **options: Any) -> list[tuple[Any, ...]]:
        """Start the job, to the end of its source; the table afterwards."""
        with self._settings(spark):
            self.job().run(spark, **options)
        return self.table()

    @contextmanager
    def _settings(self, spark: SparkSession, more: Mapping[str, str] = {}) -> Iterator[None]:
        # Those that are there already look after their stores as seldom as their settings say: once a minute.
        stop_stores(spark)
        with settings(spark, {**COMMON, **self.kinds[self.kind].settings, **more}):
            try:
                yield
            finally:
                stop_stores(spark)

    def _has_snapshots(self) -> bool:
        stores = {path.parent for path in self.checkpoint.glob("state/0/**/1*.[dc]*") if path.name[0] != "."}
        made = [path for path in self.checkpoint.glob("state/0/**/*") if path.suffix in (".snapshot", ".zip")]
        return stores == {path.parent for path in made}

    def table(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as database:
            return sorted(database.execute("SELECT * FROM t").fetchall())

    def reset(self) -> None:
        """As it was made, in the very directories: a copy would be refused as one."""
        folder = self.checkpoint / "onceward"
        for parent in (folder, self.checkpoint):
            for path in parent.iterdir():
                if path != folder:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.pristine / "checkpoint", self.checkpoint, dirs_exist_ok=True)
        shutil.copy(self.pristine / "out.db", self.database)

    def files(self) -> list[str]:
        """Every file of the checkpoint as it was made."""
        root = self.pristine / "checkpoint"
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    def newest(self, pattern: str) -> str:
        """Of the files that match, the one with the highest number; of table files one that the newest zip names."""
        root = self.pristine / "checkpoint"
        if pattern.endswith(".sst"):
            folder = pattern.removesuffix("/SSTs/*.sst")
            with zipfile.ZipFile(root / self.newest(f"{folder}/*.zip")) as archive:
                described = json.loads(archive.read("metadata").split(b"\n", 1)[1])
            return f"{folder}/SSTs/{described['sstFiles'][0]['dfsSstFileName']}"
        found = [path.relative_to(root).as_posix() for path in root.glob(pattern)]
        return max(found, key=lambda path: [int(number) for number in re.findall("[0-9]+", path.rpartition("/")[2])])


class Checkpoints(dict[str, Made]):
    """One of each kind, made when it is first asked for."""

    def __init__(self, spark: SparkSession, folder: Path, kinds: Mapping[str, Kind] = KINDS, **options: Any) -> None:
        super().__init__()
        self._spark, self._folder, self._kinds, self._options = spark, folder, kinds, options

    def __missing__(self, kind: str) -> Made:
        made = Made(kind, self._folder / kind.replace(" ", "-"), self._kinds, **self._options)
        made.make(self._spark)
        self[kind] = made
        return made


def _version(path: Path) -> int | None:
    return version_in(path.name) if path.is_file() else None


def _purge(folder: Path) -> None:
    """All that the newest snapshot does without."""
    found = {path: version for path in folder.iterdir() if (version := _version(path)) is not None}
    # Under state format 2 another computation of a version has another id, and its snapshot would be none of ours.
    ids = {path.name.removeprefix(".").partition(".")[0] for path in found}
    assert len(ids) == len({*found.values()}), f"a version in {folder} was computed twice: {sorted(ids)}"
    base = max(version for path, version in found.items() if path.suffix in (".snapshot", ".zip"))
    for path, version in found.items():
        is_snapshot = ".snapshot" in path.name or ".zip" in path.name
        if version < base or (version == base and not is_snapshot):
            path.unlink()


@dataclass(frozen=True)
class Damage:
    """One file flipped, cut or removed."""

    path: str
    how: str
    at: float = 0.5

    def do(self, checkpoint: Path) -> None:
        path = checkpoint / self.path
        data = bytearray(path.read_bytes())
        place = min(int(self.at * len(data)), len(data) - 1)
        match self.how:
            case "remove":
                path.unlink()
            case "cut":
                path.write_bytes(data[:place])
            case "flip" if data:
                data[place] ^= 1 << int(self.at * 1000) % 8
                if data[place] in b'"\\':
                    # That would tear a text apart: another damage, which a start may put right.
                    data[place] ^= 1
                path.write_bytes(data)

    def undo(self, made: Made) -> None:
        shutil.copy(made.pristine / "checkpoint" / self.path, made.checkpoint / self.path)


def random_damage(made: Made, files: list[str], chance: random.Random) -> Damage:
    return Damage(chance.choice(files), chance.choice(("flip", "cut", "remove")), chance.random())


def needed(made: Made, last: int) -> set[str]:
    """What resuming reads, by the names alone: a list made apart from the code that is tested.

    A file whose loss an older snapshot makes up for is not in it, nor what a start of ours puts right by itself.
    """
    found = {f"offsets/{last}", f"offsets/{last - 1}", f"commits/{last}"}
    names = made.files()
    for folder in {path.rpartition("/")[0] for path in names if path.endswith((".delta", ".changelog"))}:
        inside = [path.rpartition("/")[2] for path in names if path.rpartition("/")[0] == folder]
        version = {name: int(name.split(".")[0].split("_")[0]) for name in inside if name[0].isdigit()}
        snapshots = {name: version[name] for name in version if name.endswith((".snapshot", ".zip"))}
        base = max(snapshots.values(), default=0)
        changes = [name for name in version if name.endswith((".delta", ".changelog"))]
        found |= {f"{folder}/{name}" for name in changes if version[name] > base}
        if min(version.values()) > 1:
            found |= {f"{folder}/{name}" for name in snapshots if version[name] == base}
    lists = [path for path in names if path.startswith("sources/") and "/." not in path]
    for folder in {path.rpartition("/")[0] for path in lists}:
        numbers = {path: int(path.rpartition("/")[2].split(".")[0]) for path in lists if path.startswith(f"{folder}/")}
        base = max((n for path, n in numbers.items() if path.endswith(".compact")), default=0)
        found |= {path for path, n in numbers.items() if n >= base}
    return found
