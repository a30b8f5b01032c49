"""Savepoints of real checkpoints: Spark itself goes on from each, in another directory, with the rows it would have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from onceward.clock import SystemClock
from onceward.errors import DamagedFile
from onceward.savepoints import restore_savepoint, take, verify_savepoint

from .damaged import HDFS, KINDS, ROCKSDB, Damage, Kind, Made

FORMAT_2 = {**ROCKSDB, "spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}


class Counting(StatefulProcessor):
    """How often each key came, in a value of the state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: object, rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        count = sum(1 for _ in rows) + (self._seen.get()[0] if self._seen.exists() else 0)
        self._seen.update((count,))
        yield Row(k=key[0], count=count)  # type: ignore[index]

    def close(self) -> None:
        pass


def _counted_by_hand(rows: DataFrame, _: object) -> DataFrame:
    return rows.groupBy("k").transformWithState(Counting(), "k string, count long", "Update", "None")


def _sessions(rows: DataFrame, _: object) -> DataFrame:
    late = rows.withWatermark("t", "1 minute")
    sessions = late.groupBy(F.session_window("t", "90 seconds").alias("s"), "k").count()
    return sessions.select(F.col("s.start").cast("string").alias("start"), "k", "count")


SAVED = {
    **KINDS,
    "sessions": Kind(HDFS, _sessions, ()),
    "join in RocksDB": Kind(FORMAT_2, KINDS["join"].pipeline),
    "by hand": Kind(ROCKSDB, _counted_by_hand, ("k",)),
}
"""Memory and RocksDB, formats 1 and 2; what keeps one store a partition, four, or several variables in one."""


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Each of them, made when it is first asked for."""
    root = tmp_path_factory.mktemp("saved")
    return {kind: Made(kind, root / kind.replace(" ", "-"), SAVED, keeps_snapshots=True) for kind in SAVED}


ALWAYS = ("count", "window", "join", "format-2")
"""In every run; the others take a minute each when the soak has time."""


@pytest.fixture(params=[kind if kind in ALWAYS else pytest.param(kind, marks=pytest.mark.soak) for kind in SAVED])
def one(request: pytest.FixtureRequest, made: dict[str, Made], spark: SparkSession) -> Made:
    found = made[request.param]
    if found.kind == "by hand":
        for module in ("grpc", "google.protobuf", "zstandard"):
            pytest.importorskip(module, reason="Spark needs it for transformWithState in Python")
    if not found.pristine.exists():
        found.make(spark)
    found.reset()
    return found


def test_a_restored_job_delivers_what_the_first_one_would_have(one: Made, spark: SparkSession) -> None:
    expected = one.run(spark)
    one.reset()
    saved = take(one.checkpoint, one.folder / "saved", clock=SystemClock(), spark=spark.version)
    assert verify_savepoint(saved.path)[1] == []
    gone = one.folder / "gone"
    shutil.rmtree(gone, ignore_errors=True)
    one.checkpoint.rename(gone)
    try:
        again = replace(one, at="another place/restored")
        restore_savepoint(saved.path, again.checkpoint)
        assert again.run(spark) == expected
        assert again.run(spark) == expected, "the second start of a restored checkpoint"
    finally:
        gone.rename(one.checkpoint)
    everything = sum(path.stat().st_size for path in (one.pristine / "checkpoint").rglob("*") if path.is_file())
    assert saved.savepoint.size < everything


def test_damaged_state_is_not_sealed(one: Made) -> None:
    """The newest of each kind of file, flipped: Hadoop's checksums beside it tell."""
    saved = take(one.checkpoint, one.folder / "saved", clock=SystemClock(), spark="4.3.0")
    names = {Path(name).suffix or name.split("/")[0]: name for name in sorted(saved.savepoint.files)}
    for name in names.values():
        one.reset()
        Damage(name, "flip").do(one.checkpoint)
        with pytest.raises(DamagedFile, match="cannot be taken"):
            take(one.checkpoint, one.folder / "damaged", clock=SystemClock(), spark="4.3.0")
    assert list((one.folder / "damaged").iterdir()) == []
