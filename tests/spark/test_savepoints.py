"""Savepoints of real checkpoints: Spark itself goes on from each, in another directory, with the rows it would have."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward.clock import SystemClock
from onceward.errors import DamagedFile
from onceward.observe.state_views import state_digests
from onceward.savepoints import restore_savepoint, take, verify_savepoint

from .damaged import ENDS, FORMAT_2, HDFS, KINDS, ROCKSDB, Checkpoints, Damage, Kind, Made


def _sessions(rows: DataFrame, _: object) -> DataFrame:
    late = rows.withWatermark("t", "1 minute")
    sessions = late.groupBy(F.session_window("t", "90 seconds").alias("s"), "k").count()
    return sessions.select(F.col("s.start").cast("string").alias("start"), "k", "count")


def _chained(rows: DataFrame, _: object) -> DataFrame:
    return rows.dropDuplicates(["k", "n"]).groupBy("k").count()


MORE = {"sessions": Kind({}, _sessions), "chained": Kind({}, _chained, ("k",))}
STATEFUL = {name: kind for name, kind in {**KINDS, **MORE}.items() if name not in ("stateless", "format-2")}
ENDS_BY = {"rows": ENDS, "frames": ENDS}
BACKENDS = {"memory": HDFS, "RocksDB": ROCKSDB, "RocksDB, format 2": FORMAT_2}
SAVED = {"stateless": KINDS["stateless"]} | {
    f"{name} in {backend}": replace(kind, settings={**settings, **ENDS_BY.get(name, {})})
    for name, kind in STATEFUL.items()
    for backend, settings in BACKENDS.items()
    if backend != "memory" or name not in ("rows", "frames")
}
"""Every operator of Spark on every store that it can have: one store a partition, four, or several variables in one."""


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return Checkpoints(spark, tmp_path_factory.mktemp("saved"), SAVED, keeps_snapshots=True)


ALWAYS = ("window in RocksDB", "count in RocksDB, format 2")
"""In every run; the others when the soak has time."""


@pytest.fixture(params=[kind if kind in ALWAYS else pytest.param(kind, marks=pytest.mark.soak) for kind in SAVED])
def one(request: pytest.FixtureRequest, made: Checkpoints) -> Made:
    found = made[request.param]
    found.reset()
    return found


def test_a_restored_job_delivers_what_the_first_one_would_have(one: Made, spark: SparkSession) -> None:
    expected = one.run(spark)
    one.reset()
    saved = take(one.checkpoint, one.folder / "saved", clock=SystemClock(), spark=spark.version)
    assert verify_savepoint(saved.path)[1] == []
    state = state_digests(spark, one.checkpoint, saved.savepoint.epoch)
    assert one.kind == "stateless" or any(entries for entries, _ in state.values())
    gone = one.folder / "gone"
    shutil.rmtree(gone, ignore_errors=True)
    one.checkpoint.rename(gone)
    try:
        again = replace(one, at="another place/restored")
        restore_savepoint(saved.path, again.checkpoint)
        assert state_digests(spark, again.checkpoint, saved.savepoint.epoch) == state
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
