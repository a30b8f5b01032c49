"""The façade on a real Spark: what a user's first job does, and what each guarantee means."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import foreach_batch
from onceward.errors import ConfigurationError, PublishFailed
from onceward.sinks import FileSink, SQLiteSink

from .ground import ROWS, Ground, expect_exactly_once
from .sinks import ClosedTable


def test_files_and_a_table_get_the_same_rows_and_a_restart_goes_on(ground: Ground, spark: SparkSession) -> None:
    ground.add_files(3)
    ground.job().run(spark)
    ground.expect_exactly_once()
    ground.job().run(spark)
    ground.add_files(2)
    run = ground.job().start(spark)
    assert run.await_termination()
    status = run.status()
    assert (status.planned, status.decided, status.settled, status.active) == (4, 4, 4, False)
    ground.expect_exactly_once()
    ground.expect_nothing_staged()


def test_columns_whose_names_are_syntax_to_spark_arrive_by_executors_and_by_the_driver(
    ground: Ground, spark: SparkSession
) -> None:
    """The first epoch is staged by executors, the second, being small, by the driver."""
    names = ["id", "a.b", "`c`"]
    ground.add_files(2)

    def renamed(session: SparkSession) -> DataFrame:
        return ground.stream(session).withColumn("half", F.col("id") / 2).toDF(*names)

    ground.job(pipeline=renamed).run(spark)
    expected = [dict(zip(names, (i, i // ROWS, i / 2), strict=True)) for i in ground.ids()]
    for found in (ground.in_table(), ground.in_files()):
        assert sorted(found, key=lambda row: row["id"]) == expected


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_stateful_count_is_upserted_in_every_output_mode_that_fits(
    ground: Ground, spark: SparkSession, mode: str
) -> None:
    """Grows from one key to five, so that an epoch follows which is too large for the driver."""

    def counts(session: SparkSession) -> DataFrame:
        return ground.stream(session).groupBy((F.col("id") % (F.col("file") + 1)).alias("key")).count()

    def count() -> None:
        sink = SQLiteSink(ground.database, table="t", mode="upsert", keys="key")
        ground.job([sink], pipeline=counts, output_mode=mode, small_epoch_rows=3).run(spark)

    ground.add_files(3)
    count()
    ground.add_files(2)
    count()
    expected = Counter(identifier % (identifier // ROWS + 1) for identifier in ground.ids())
    assert {row["key"]: row["count"] for row in ground.in_table()} == dict(expected)


def test_epochs_and_slots_without_rows_are_settled(ground: Ground, spark: SparkSession) -> None:
    """Epoch 0 is empty, epoch 1 has rows in one slot of two, and a stateful query adds one without input."""

    def few(session: SparkSession) -> DataFrame:
        return (
            ground.stream(session).where("file = 1").where(f"id = {ROWS}").repartition(2).withColumn("luck", F.rand())
        )

    ground.add_files(2)
    run = ground.job(pipeline=few).start(spark)
    run.await_termination()
    assert run.status().settled == 1
    assert [row["id"] for row in ground.in_table()] == [ROWS] == [row["id"] for row in ground.in_files()]
    ground.expect_nothing_staged()


def test_the_batch_is_computed_once_for_all_sinks(ground: Ground, spark: SparkSession) -> None:
    computed = ground.work / "computed"
    computed.mkdir()

    def write_down(values: pa.Array) -> pa.Array:
        with (computed / str(os.getpid())).open("a") as file:
            file.writelines(f"{value}\n" for value in values.to_pylist())
        return values

    note = F.arrow_udf(write_down, "long")

    def noted(session: SparkSession) -> DataFrame:
        return ground.lucky(session).withColumn("noted", note("id"))

    ground.add_files(3)
    sinks = [
        FileSink(ground.files),
        SQLiteSink(ground.database, table="t"),
        SQLiteSink(ground.database, table="again"),
        FileSink(ground.work / "lines", format="jsonl"),
    ]
    ground.job(sinks, pipeline=noted).run(spark)
    lines = [int(line) for path in computed.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == ground.ids()
    ground.expect_exactly_once()
    assert ground.in_table("SELECT * FROM again ORDER BY id") == ground.in_table("SELECT * FROM t ORDER BY id")


def test_a_query_of_ones_own_delivers_through_foreach_batch(ground: Ground, spark: SparkSession) -> None:
    for _ in range(2):
        ground.add_files(2)
        sinks = [FileSink(ground.files), SQLiteSink(ground.database, table="t")]
        deliver = foreach_batch(name="own", checkpoint=ground.checkpoint, sinks=sinks)
        query = (
            ground.lucky(spark)
            .writeStream.option("checkpointLocation", str(ground.checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(deliver)
            .start()
        )
        query.awaitTermination()
        deliver.close()
    ground.expect_exactly_once()
    ground.expect_nothing_staged()


def test_a_query_with_another_checkpoint_location_is_refused(ground: Ground, spark: SparkSession) -> None:
    ground.add_files(1)
    sinks = [FileSink(ground.files), SQLiteSink(ground.database, table="t")]
    deliver = foreach_batch(name="own", checkpoint=ground.checkpoint, sinks=sinks)
    query = (
        ground.lucky(spark)
        .writeStream.option("checkpointLocation", str(ground.work / "elsewhere"))
        .trigger(availableNow=True)
        .foreachBatch(deliver)
        .start()
    )
    with pytest.raises(Exception, match="runs on another checkpoint"):
        query.awaitTermination()
    deliver.close()
    assert isinstance(deliver.error, ConfigurationError)
    assert "checkpointLocation" in str(deliver.error.hint)
    assert ground.in_files() == []
    assert ground.in_table("SELECT name FROM sqlite_master WHERE name = 't'") == [], "not even its table was made"


@pytest.mark.parametrize(
    ("guarantee", "in_files", "in_table"), [("exactly-once", 1, 1), ("at-least-once", 2, 1), ("at-most-once", 1, 0)]
)
def test_the_same_failure_shows_what_each_guarantee_means(
    ground: Ground, spark: SparkSession, guarantee: str, in_files: int, in_table: int
) -> None:
    """Epoch 1 gets into the files and not into the table, and the job fails: neither, duplicates, or loss."""
    opening = ground.work / "open"
    sinks = [FileSink(ground.files), ClosedTable(ground.database, opening, table="t", first_epoch=1)]
    ground.add_files(2)
    with pytest.raises(PublishFailed):
        ground.job(sinks, guarantee=guarantee, publish_deadline_s=0.3).run(spark)
    opening.touch()
    ground.job(sinks, guarantee=guarantee).run(spark)
    for rows, times in ((ground.in_files(), in_files), (ground.in_table(), in_table)):
        counts = Counter(row["id"] for row in rows)
        assert {counts[identifier] for identifier in ground.ids()[:ROWS]} == {1}
        assert {counts[identifier] for identifier in ground.ids()[ROWS:]} == {times}


def test_the_internal_property_with_the_batch_id_is_visible_in_tasks(ground: Ground, spark: SparkSession) -> None:
    """Staging refuses a task of another epoch by this key, which Spark does not document."""
    seen: dict[int, set[str | None]] = {}

    def batch_id(batches: object) -> object:
        for _ in batches:  # type: ignore[attr-defined]
            context = TaskContext.get()
            value = context.getLocalProperty("streaming.sql.batchId") if context else None
            yield pa.RecordBatch.from_pydict({"id": pa.array([value], pa.string())})

    def look(batch: DataFrame, epoch: int) -> None:
        seen[epoch] = {row.id for row in batch.mapInArrow(batch_id, "id string").collect()}

    ground.add_files(2)
    query = (
        ground.lucky(spark)
        .writeStream.option("checkpointLocation", str(ground.checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(look)
        .start()
    )
    query.awaitTermination()
    assert seen == {0: {"0"}, 1: {"1"}}


def test_an_epoch_that_spark_makes_alone_when_state_is_repartitioned_is_recognised(
    ground: Ground, spark: SparkSession
) -> None:
    repartition = pytest.importorskip("pyspark.sql.streaming.query").__dict__.get("StreamingCheckpointManager")
    if repartition is None:
        pytest.skip("offline state repartitioning came with PySpark 4.2")

    def counts(session: SparkSession) -> DataFrame:
        return ground.stream(session).groupBy((F.col("id") % 5).alias("key")).count()

    def count() -> None:
        sink = SQLiteSink(ground.database, table="t", mode="upsert", keys="key")
        ground.job([sink], pipeline=counts, output_mode="update").run(spark)

    ground.add_files(2)
    count()
    spark._streamingCheckpointManager.repartition(str(ground.checkpoint), 3)
    assert ground.logs.decided() == 2
    assert [ground.logs.is_engine_made(epoch) for epoch in range(3)] == [False, False, True]
    count()
    ground.add_files(1)
    count()
    assert not ground.logs.is_engine_made(3)
    expected = Counter(identifier % 5 for identifier in ground.ids())
    assert {row["key"]: row["count"] for row in ground.in_table()} == dict(expected)


def test_rows_of_a_partitioned_text_sink_are_read_back_by_spark(ground: Ground, spark: SparkSession) -> None:
    ground.add_files(2)
    lines = Path(ground.work / "lines")
    ground.job([FileSink(lines, format="jsonl", partition_by="file")]).run(spark)
    expect_exactly_once([row.asDict() for row in spark.read.json(str(lines)).collect()], ground.ids())
