"""`checkpointing=CheckpointConfig(...)` under a real Spark: what is kept, what is refused, what happens at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from onceward import CheckpointConfig, Hooks
from onceward.errors import CheckpointReplaced, ConfigurationError
from onceward.sinks import FileSink, SQLiteSink
from onceward.spark import compiled, local_manager
from onceward.spark import delivery as delivery_module
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.checkpoint_config import BACKENDS, CHANGELOG, PARTITIONS, PROVIDER, RETAINED
from onceward.spark.defaults import FILE_SYSTEM_MANAGER, MANAGER
from onceward.spark.local_manager import LOCAL_MANAGER, load_local_manager
from onceward.spark.plan import keeps_state

from .workspace import SparkWorkspace

FILE_CONTEXT_MANAGER = FILE_SYSTEM_MANAGER.replace("FileSystem", "FileContext")
WATCHED = (MANAGER, RETAINED, PROVIDER, CHANGELOG, PARTITIONS)


@pytest.fixture
def unset(spark: SparkSession) -> SparkSession:
    """A session whose user has said nothing about any of it."""
    session = spark.newSession()
    for name in WATCHED:
        session.conf.unset(name)
    return session


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What the session of the query, a clone of the user's, says in its first epoch."""
    seen: dict[str, str | None] = {}
    real = delivery_module.may_be_computed_twice

    def look(batch: DataFrame) -> bool:
        seen.update({name: batch.sparkSession.conf.get(name, None) for name in WATCHED})
        return real(batch)

    monkeypatch.setattr(delivery_module, "may_be_computed_twice", look)
    return seen


def counted(workspace: SparkWorkspace) -> Callable[[SparkSession], DataFrame]:
    return lambda session: workspace.stream(session).groupBy("file").count()


def run_counts(workspace: SparkWorkspace, spark: SparkSession, config: CheckpointConfig | None = None) -> None:
    workspace.job(
        [FileSink(workspace.files)],
        pipeline=counted(workspace),
        output_mode="update",
        checkpointing=config or CheckpointConfig(),
    ).run(spark)


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def manager_of_the_source(query: StreamingQuery) -> str:
    """By which a query's file source keeps its lists."""

    def field(of: Any, name: str) -> Any:
        owner = of.getClass()
        while name not in [one.getName() for one in owner.getDeclaredFields()]:
            owner = owner.getSuperclass()
        found = owner.getDeclaredField(name)
        found.setAccessible(True)
        return found.get(of)

    source = query._jsq.streamingQuery().sources().head()
    return str(field(field(source, "metadataLog"), "fileManager").getClass().getName())


def test_whether_a_query_keeps_state_is_told_by_its_plan(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    stream = workspace.stream(spark)
    table = spark.createDataFrame([(1, "a")], "id long, name string")
    late = stream.withColumn("at", F.timestamp_seconds("id")).withWatermark("at", "1 minute")
    kept_nothing = {
        "all of it": stream,
        "rows by themselves": stream.where("id > 3").select((F.col("id") + 1).alias("id")),
        "more rows": stream.select(F.explode(F.array("id", "id")).alias("id")),
        "a function": stream.select(F.udf(lambda id: id, "long")("id")),
        "arrow": stream.mapInArrow(numbered, "id long, file int"),
        "a union": stream.union(stream),
        "other partitions": stream.repartition(3).repartition(2, "id"),
        "a table to look up in": stream.join(table, "id", "left"),
        "a table that is counted": stream.join(table.groupBy("id").count(), "id"),
        "a watermark alone": late,
    }
    keeps = {
        "counts": stream.groupBy("file").count(),
        "first of each": stream.dropDuplicates(["id"]),
        "first of each, with an end": late.dropDuplicatesWithinWatermark(["id"]),
        "distinct": stream.distinct(),
        "two streams": late.join(late.withColumnRenamed("at", "then").withWatermark("then", "1 minute"), "id"),
        "only so many": stream.limit(10),
        "windows": late.groupBy(F.window("at", "1 minute")).count(),
        "counts below a projection": stream.groupBy("file").count().select("count"),
    }
    assert {name: keeps_state(frame) for name, frame in kept_nothing.items()} == dict.fromkeys(kept_nothing, False)
    assert {name: keeps_state(frame) for name, frame in keeps.items()} == dict.fromkeys(keeps, True)


def test_our_manager_replaces_state_as_sparks_default_does_and_its_faster_one_does_not(
    unset: SparkSession, tmp_path: Path
) -> None:
    """If the one in the middle fails with a later Spark, decision 0025 may be looked at again."""
    assert load_local_manager(unset)
    made = {}
    for name, wanted in ((FILE_CONTEXT_MANAGER, "second"), (FILE_SYSTEM_MANAGER, "first"), (LOCAL_MANAGER, "second")):
        folder = tmp_path / name / "1"
        manager, path = manager_over(unset, name, folder), java_path(unset, folder / "1.delta")
        manager.mkdirs(path.getParent())
        for text in ("first", "second"):
            stream = manager.createAtomic(path, True)
            stream.write(text.encode())
            stream.close()
        assert (folder / "1.delta").read_text() == wanted
        made[name] = {file.name: (oct(file.stat().st_mode), file.read_bytes()) for file in folder.iterdir()}
        made[name]["."] = (oct(folder.stat().st_mode), b"")

        stream = manager.createAtomic(path, False)
        stream.write(b"third")
        with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
            stream.close()
        assert (folder / "1.delta").read_text() == wanted, "a barrier or a decision is never replaced"
        stream = manager.open(path)
        assert bytes(stream.readAllBytes()).decode() == wanted, "its checksum is right"
        stream.close()
    assert made[LOCAL_MANAGER] == made[FILE_CONTEXT_MANAGER]


def test_our_manager_makes_no_folder_anew_and_leaves_other_file_systems_to_themselves(
    unset: SparkSession, tmp_path: Path
) -> None:
    assert load_local_manager(unset)
    gone = tmp_path / "gone"
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        manager_over(unset, LOCAL_MANAGER, gone).createAtomic(java_path(unset, gone / "1.delta"), True)
    assert not gone.exists()

    raw = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
    manager = manager_over(unset, LOCAL_MANAGER, tmp_path, **raw)
    for _ in range(2):
        manager.createAtomic(java_path(unset, tmp_path / "1.delta"), True).close()
    assert [path.name for path in tmp_path.iterdir()] == ["1.delta"], "that one has no checksums"


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_query_without_state_has_our_manager_or_sparks_faster_one(
    workspace: SparkWorkspace,
    unset: SparkSession,
    told: dict[str, str | None],
    monkeypatch: pytest.MonkeyPatch,
    is_loaded: bool,
) -> None:
    if not is_loaded:
        monkeypatch.setattr(local_manager, "_SOURCE", "no Java")
        monkeypatch.setattr(compiled, "_is_loaded", lambda *_: False)
    manager = LOCAL_MANAGER if is_loaded else FILE_SYSTEM_MANAGER
    workspace.add_files(2)
    run = workspace.job(checkpointing=CheckpointConfig(retained=40)).start(unset)
    assert manager_of_the_source(run.query) == manager
    run.await_termination()
    assert (told[MANAGER], told[RETAINED]) == (manager, "40")
    assert unset.conf.get(MANAGER, None) is None, "other queries of the session are left alone"
    assert unset.conf.get(RETAINED) == "100"
    workspace.expect_exactly_once()


def java_path(spark: SparkSession, path: Path) -> Any:
    return spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path.as_uri())


def manager_over(spark: SparkSession, name: str, folder: Path, **settings: str) -> Any:
    """As Spark makes the one that is set."""
    jvm: Any = spark.sparkContext._jvm
    configuration = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
    for key, value in {MANAGER: name, **settings}.items():
        configuration.set(key, value)
    package = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    return package.CheckpointFileManager.create(java_path(spark, folder), configuration)


def test_new_state_goes_into_rocksdb_and_stays_where_it_is(
    workspace: SparkWorkspace, unset: SparkSession, told: dict[str, str | None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="onceward")
    workspace.add_files(1)
    run_counts(workspace, unset, CheckpointConfig(state_partitions=3))
    logs = SparkLogs(workspace.checkpoint)
    assert (told[PROVIDER], told[CHANGELOG], told[MANAGER]) == (BACKENDS["rocksdb"], "true", LOCAL_MANAGER)
    assert (logs.pinned()[PROVIDER], logs.shuffle_partitions()) == (BACKENDS["rocksdb"], 3)
    assert logs.has_changelogs()
    assert "state is kept in RocksDB" in caplog.text

    caplog.clear()
    workspace.add_files(1)
    run_counts(workspace, unset)
    assert (told[CHANGELOG], logs.shuffle_partitions(), logs.decided()) == ("true", 3, 1)
    assert "state is kept" not in caplog.text

    before = sorted(path.name for path in workspace.checkpoint.rglob("*"))
    workspace.add_files(1)
    with pytest.raises(ConfigurationError, match=r"state_partitions.*= 4.* has 3,"):
        run_counts(workspace, unset, CheckpointConfig(state_partitions=4))
    with pytest.raises(ConfigurationError, match="state_backend"):
        run_counts(workspace, unset, CheckpointConfig(state_backend="memory"))
    with pytest.raises(ConfigurationError, match="keeps state"):
        run_counts(workspace, unset, CheckpointConfig(tolerable_failures=1))
    unset.conf.set(PARTITIONS, 5)
    with pytest.raises(ConfigurationError, match=r"the session asks for .* = 5"):
        run_counts(workspace, unset)
    assert sorted(path.name for path in workspace.checkpoint.rglob("*")) == before, "nothing has moved"


def test_a_checkpoint_that_is_deleted_at_a_clean_end_and_only_then(
    workspace: SparkWorkspace, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="onceward")

    def fail(epoch: int) -> None:
        raise OSError("the hook fails")

    deleting = CheckpointConfig(on_stop="delete")
    workspace.add_files(1)
    with pytest.raises(Exception, match="the hook fails"):
        workspace.job(checkpointing=deleting, hooks=Hooks(on_pre_commit=fail)).run(spark)
    assert workspace.checkpoint.is_dir()

    run = workspace.job(checkpointing=deleting).start(spark)
    assert run.await_termination()
    assert not workspace.checkpoint.exists()
    assert [path.name for path in workspace.work.iterdir() if "deleted" in path.name] == []
    assert "accept a fresh start" in caplog.text
    status = run.status()
    assert (status.decided, status.settled, status.error) == (0, 0, None)
    workspace.expect_exactly_once()

    with pytest.raises(CheckpointReplaced):
        workspace.job(checkpointing=deleting).run(spark)
    run = workspace.job(checkpointing=deleting, trigger="1 second").start(spark, accept="fresh-start")
    while run.status().settled < 0:
        run.await_termination(0.1)
    run.stop()
    assert not workspace.checkpoint.exists()


def failing(times: int, folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are, after so many attempts that died halfway."""

    def go(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            died = len(list(folder.iterdir()))
            if died < times:
                (folder / str(died)).touch()
                raise OSError(f"the executor is lost, {died}")

    return go


@pytest.mark.parametrize("small", [0, 1000])
def test_an_epoch_that_fails_is_staged_again_in_the_same_run(
    workspace: SparkWorkspace, spark: SparkSession, small: int, caplog: pytest.LogCaptureFixture
) -> None:
    died = workspace.work / "died"
    died.mkdir()
    workspace.add_files(1)
    workspace.job(small_epoch_rows=small).run(spark)
    workspace.add_files(2)

    def pipeline(session: SparkSession) -> DataFrame:
        # One task, so that each failure of the epoch is one of its marks.
        rows = workspace.lucky(session).coalesce(1)
        return rows.mapInArrow(failing(2, died), "id long, file int, luck double")

    job = workspace.job(pipeline=pipeline, small_epoch_rows=small, checkpointing=CheckpointConfig(tolerable_failures=2))
    job.run(spark)
    assert len(list(died.iterdir())) == 2
    assert "failure 2 of 2 that are tolerated" in caplog.text
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
    for marker in died.iterdir():
        marker.unlink()
    workspace.add_files(1)
    with pytest.raises(Exception, match="the executor is lost, 1"):
        workspace.job(
            pipeline=pipeline, small_epoch_rows=small, checkpointing=CheckpointConfig(tolerable_failures=1)
        ).run(spark)


def test_staging_begins_no_sooner_than_the_pause_after_the_decision_before(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    begun: dict[int, float] = {}
    hooks = Hooks(on_begin=lambda epoch: begun.__setitem__(epoch, time.time()))
    workspace.add_files(3)
    sinks = [SQLiteSink(workspace.database, table="t")]
    workspace.job(sinks, hooks=hooks, checkpointing=CheckpointConfig(min_pause=1.5)).run(spark)
    for epoch in (1, 2):
        decided_at = (workspace.checkpoint / "commits" / str(epoch - 1)).stat().st_mtime
        # The kernel's clock for files may be a tick behind.
        assert begun[epoch] - decided_at > 1.5 - 0.02
