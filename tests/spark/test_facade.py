"""The façade on a real Spark: what a user's first job does, and what each guarantee means."""

from __future__ import annotations

import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import CheckpointConfig, foreach_batch
from onceward.errors import ConfigurationError, PublishFailed
from onceward.sinks import FileSink, SQLiteSink

from .sinks import ClosedTable, WorriedTable
from .workspace import ROWS, SparkWorkspace, expect_exactly_once


def test_files_and_a_table_get_the_same_rows_and_a_restart_goes_on(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(3)
    workspace.job().run(spark)
    workspace.expect_exactly_once()
    workspace.job().run(spark)
    workspace.add_files(2)
    run = workspace.job().start(spark)
    assert run.await_termination()
    status = run.status()
    assert (status.planned, status.decided, status.settled, status.active, status.error) == (4, 4, 4, False, None)
    assert repr(run) == f"<Run {run.name!r}: ended; decided up to epoch 4, settled up to 4>"
    assert repr(workspace.job()).startswith(f"<Job {run.name!r}: append, exactly-once, to ")
    assert "\n" not in repr(workspace.job())
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_columns_whose_names_are_syntax_to_spark_arrive_by_executors_and_by_the_driver(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """The first epoch is staged by executors, the second, being small, by the driver."""
    names = ["id", "a.b", "`c`"]
    workspace.add_files(2)

    def renamed(session: SparkSession) -> DataFrame:
        return workspace.stream(session).withColumn("half", F.col("id") / 2).toDF(*names)

    workspace.job(pipeline=renamed).run(spark)
    expected = [dict(zip(names, (i, i // ROWS, i / 2), strict=True)) for i in workspace.ids()]
    for found in (workspace.in_table(), workspace.in_files()):
        assert sorted(found, key=lambda row: row["id"]) == expected


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_stateful_count_is_upserted_in_every_output_mode_that_fits(
    workspace: SparkWorkspace, spark: SparkSession, mode: str
) -> None:
    """Grows from one key to five, so that an epoch follows which is too large for the driver."""

    def counts(session: SparkSession) -> DataFrame:
        return workspace.stream(session).groupBy((F.col("id") % (F.col("file") + 1)).alias("key")).count()

    def count() -> None:
        sink = SQLiteSink(workspace.database, table="t", mode="upsert", keys="key")
        workspace.job([sink], pipeline=counts, output_mode=mode, small_epoch_rows=3).run(spark)

    workspace.add_files(3)
    count()
    workspace.add_files(2)
    count()
    expected = Counter(identifier % (identifier // ROWS + 1) for identifier in workspace.ids())
    assert {row["key"]: row["count"] for row in workspace.in_table()} == dict(expected)


def test_epochs_and_slots_without_rows_are_settled(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """Epoch 0 is empty, epoch 1 has rows in one slot of two, and a stateful query adds one without input."""

    def few(session: SparkSession) -> DataFrame:
        return (
            workspace.stream(session)
            .where("file = 1")
            .where(f"id = {ROWS}")
            .repartition(2)
            .withColumn("luck", F.rand())
        )

    workspace.add_files(2)
    run = workspace.job(pipeline=few).start(spark)
    run.await_termination()
    assert run.status().settled == 1
    assert [row["id"] for row in workspace.in_table()] == [ROWS] == [row["id"] for row in workspace.in_files()]
    workspace.expect_nothing_staged()


def test_the_batch_is_computed_once_for_all_sinks(workspace: SparkWorkspace, spark: SparkSession) -> None:
    computed = workspace.work / "computed"
    computed.mkdir()

    def write_down(values: pa.Array) -> pa.Array:
        with (computed / str(os.getpid())).open("a") as file:
            file.writelines(f"{value}\n" for value in values.to_pylist())
        return values

    note = F.arrow_udf(write_down, "long")

    def noted(session: SparkSession) -> DataFrame:
        return workspace.lucky(session).withColumn("noted", note("id"))

    workspace.add_files(3)
    sinks = [
        FileSink(workspace.files),
        SQLiteSink(workspace.database, table="t"),
        SQLiteSink(workspace.database, table="again"),
        FileSink(workspace.work / "lines", format="jsonl"),
    ]
    workspace.job(sinks, pipeline=noted).run(spark)
    lines = [int(line) for path in computed.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == workspace.ids()
    workspace.expect_exactly_once()
    assert workspace.in_table("SELECT * FROM again ORDER BY id") == workspace.in_table("SELECT * FROM t ORDER BY id")


def test_a_query_of_ones_own_delivers_through_foreach_batch(workspace: SparkWorkspace, spark: SparkSession) -> None:
    for _ in range(2):
        workspace.add_files(2)
        sinks = [FileSink(workspace.files), SQLiteSink(workspace.database, table="t")]
        deliver = foreach_batch(name="own", checkpoint=workspace.checkpoint, sinks=sinks)
        query = (
            workspace.lucky(spark)
            .writeStream.option("checkpointLocation", str(workspace.checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(deliver)
            .start()
        )
        query.awaitTermination()
        deliver.close()
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_a_query_of_ones_own_is_warned_once_of_what_its_sinks_find(
    workspace: SparkWorkspace, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """As a job is at its start, by the tasks that its epochs have."""
    caplog.set_level(logging.WARNING, logger="onceward")
    workspace.add_files(2)
    sink = WorriedTable(workspace.database, table="t")
    deliver = foreach_batch(name="own", checkpoint=workspace.checkpoint, sinks=[sink], max_unpublished_epochs=4)
    stream = workspace.stream(spark).repartition(5)
    writer = stream.writeStream.option("checkpointLocation", str(workspace.checkpoint))
    writer.foreachBatch(deliver).trigger(availableNow=True).start().awaitTermination()
    deliver.close()
    expect_exactly_once(workspace.in_table(), workspace.ids())
    said = [record.getMessage() for record in caplog.records if "room" in record.getMessage()]
    assert said == [f"sink {str(sink.name)!r}: room: for 5 slots of 4 epochs (make some)"]


def test_a_query_with_another_checkpoint_location_is_refused(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    sinks = [FileSink(workspace.files), SQLiteSink(workspace.database, table="t")]
    deliver = foreach_batch(name="own", checkpoint=workspace.checkpoint, sinks=sinks)
    query = (
        workspace.lucky(spark)
        .writeStream.option("checkpointLocation", str(workspace.work / "elsewhere"))
        .trigger(availableNow=True)
        .foreachBatch(deliver)
        .start()
    )
    with pytest.raises(Exception, match="runs on another checkpoint"):
        query.awaitTermination()
    deliver.close()
    assert isinstance(deliver.error, ConfigurationError)
    assert "checkpointLocation" in str(deliver.error.hint)
    assert workspace.in_files() == []
    assert workspace.in_table("SELECT name FROM sqlite_master WHERE name = 't'") == [], "not even its table was made"


@pytest.mark.parametrize(
    ("guarantee", "in_files", "in_table"), [("exactly-once", 1, 1), ("at-least-once", 2, 1), ("at-most-once", 1, 0)]
)
def test_the_same_failure_shows_what_each_guarantee_means(
    workspace: SparkWorkspace, spark: SparkSession, slow_calls: None, guarantee: str, in_files: int, in_table: int
) -> None:
    """Epoch 1 gets into the files and not into the table, and the job fails: neither, duplicates, or loss."""
    opening = workspace.work / "open"
    sinks = [FileSink(workspace.files), ClosedTable(workspace.database, opening, table="t", first_epoch=1)]
    workspace.add_files(2)
    with pytest.raises(PublishFailed):
        workspace.job(sinks, guarantee=guarantee, publish_deadline_s=0.3).run(spark)
    opening.touch()
    workspace.job(sinks, guarantee=guarantee).run(spark)
    for rows, times in ((workspace.in_files(), in_files), (workspace.in_table(), in_table)):
        counts = Counter(row["id"] for row in rows)
        assert {counts[identifier] for identifier in workspace.ids()[:ROWS]} == {1}
        assert {counts[identifier] for identifier in workspace.ids()[ROWS:]} == {times}


def test_the_internal_property_with_the_batch_id_is_visible_in_tasks(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """Staging refuses a task of another epoch by this key, which Spark does not document."""
    seen: dict[int, set[str | None]] = {}

    def batch_id(batches: object) -> object:
        for _ in batches:
            context = TaskContext.get()
            value = context.getLocalProperty("streaming.sql.batchId") if context else None
            yield pa.RecordBatch.from_pydict({"id": pa.array([value], pa.string())})

    def look(batch: DataFrame, epoch: int) -> None:
        seen[epoch] = {row.id for row in batch.mapInArrow(batch_id, "id string").collect()}

    workspace.add_files(2)
    query = (
        workspace.lucky(spark)
        .writeStream.option("checkpointLocation", str(workspace.checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(look)
        .start()
    )
    query.awaitTermination()
    assert seen == {0: {"0"}, 1: {"1"}}


def test_an_epoch_that_spark_makes_alone_when_state_is_repartitioned_is_recognised(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    repartition = pytest.importorskip("pyspark.sql.streaming.query").__dict__.get("StreamingCheckpointManager")
    if repartition is None:
        pytest.skip("offline state repartitioning came with PySpark 4.2")

    def counts(session: SparkSession) -> DataFrame:
        return workspace.stream(session).groupBy((F.col("id") % 5).alias("key")).count()

    def count(**options: Any) -> None:
        sink = SQLiteSink(workspace.database, table="t", mode="upsert", keys="key")
        workspace.job([sink], pipeline=counts, output_mode="update", **options).run(spark)

    workspace.add_files(2)
    count()
    spark._streamingCheckpointManager.repartition(str(workspace.checkpoint), 3)
    assert workspace.logs.decided() == 2
    assert [workspace.logs.is_engine_made(epoch) for epoch in range(3)] == [False, False, True]
    with pytest.raises(ConfigurationError, match=r"the session asks for .* = 2, and this checkpoint has 3,"):
        count()
    three = CheckpointConfig(state_partitions=3)
    count(checkpointing=three)
    workspace.add_files(1)
    count(checkpointing=three)
    assert not workspace.logs.is_engine_made(3)
    expected = Counter(identifier % 5 for identifier in workspace.ids())
    assert {row["key"]: row["count"] for row in workspace.in_table()} == dict(expected)


def test_rows_of_a_partitioned_text_sink_are_read_back_by_spark(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(2)
    lines = Path(workspace.work / "lines")
    workspace.job([FileSink(lines, format="jsonl", partition_by="file")]).run(spark)
    expect_exactly_once([row.asDict() for row in spark.read.json(str(lines)).collect()], workspace.ids())
