"""Rows of small files are computed without a job of Spark's where the plan is simple, and are the same as by one."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaClass
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import foreach_batch
from onceward.spark import first_rows
from onceward.spark.compiled import load_class
from onceward.spark.local_rows import LOCAL_ROWS, SOURCE

from .sinks import RecordingSink
from .workspace import SparkWorkspace, wait_until

EPOCHS = 3
ROWS = 12
BEFORE_THE_FIRST_EPOCH = 2
"""Jobs that look at folders from where the tasks are."""

COLUMNS = (
    "id",
    "cast(id % 3 as int) AS file",
    "concat('ä€😀', id) AS text",
    "cast(if(id % 3 = 0, null, id / 7) as double) AS ratio",
    "timestamp_micros(id * 86399999999) AS at",
)
SCHEMA = "id long, file int, text string, ratio double, at timestamp"


def jobs_begun(spark: SparkSession) -> int:
    """In this session, by the number that the next one gets."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    return 0 if jobs.isEmpty() else int(jobs.head().jobId()) + 1


def recorded(
    workspace: SparkWorkspace, spark: SparkSession, pipeline: Callable[[SparkSession], DataFrame], name: str
) -> tuple[list[dict[str, Any]], pa.Schema, int]:
    """The rows of all epochs, but for the first staged by the driver at any rate; their schema, and how many jobs."""
    sink = RecordingSink(workspace.work / f"recorded-{name}")
    before = jobs_begun(spark)
    workspace.job([sink], pipeline=pipeline, checkpoint=workspace.work / f"checkpoint-{name}").run(spark)
    jobs = jobs_begun(spark) - before
    tables = [table for epoch in range(EPOCHS) for table in sink.tables(epoch)]
    assert {frozenset(sink.processes(epoch)) for epoch in range(1, EPOCHS)} == {frozenset({os.getpid()})}
    return [row for table in tables for row in table.to_pylist()], tables[0].schema, jobs


def without_local_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Spark is on which the class does not compile."""
    monkeypatch.setattr(first_rows, "LOCAL_ROWS", "onceward.NoLocalRows")
    monkeypatch.setattr(first_rows, "LOCAL_SOURCE", "package onceward; public class NoLocalRows { Missing missing; }")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(first_rows, "_MOST_MS", 600_000)


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "orc", "text"])
def test_files_of_every_kind_give_the_same_rows_without_a_job(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    written = spark.range(EPOCHS * ROWS).selectExpr(*COLUMNS).repartition(EPOCHS)
    if kind == "text":
        written = written.selectExpr("concat(id, text) AS value")
    folder = str(workspace.work / "written")
    written.write.format(kind).save(folder)

    def pipeline(session: SparkSession) -> DataFrame:
        schema = "value string" if kind == "text" else SCHEMA
        frame = session.readStream.format(kind).schema(schema).option("maxFilesPerTrigger", 1).load(folder)
        if kind == "text":
            return frame.selectExpr("value", "length(value) AS length").where("value NOT LIKE '7%'")
        return frame.selectExpr("*", "hour(at) AS hour", "_metadata.file_size AS size").where("id % 5 > 0")

    rows, schema, jobs = recorded(workspace, spark, pipeline, "here")
    assert jobs <= BEFORE_THE_FIRST_EPOCH
    without_local_rows(monkeypatch)
    by_jobs, schema_by_jobs, jobs = recorded(workspace, spark, pipeline, "jobs")
    assert jobs >= EPOCHS
    assert rows == by_jobs
    assert len(rows) > EPOCHS * ROWS / 2
    assert schema == schema_by_jobs


def unchanged(batches: Any) -> Any:
    return batches


def from_a_jar(frame: DataFrame) -> DataFrame:
    source = """
        package onceward;
        public class Same implements org.apache.spark.sql.api.java.UDF1 {
            public Object call(Object value) { return value; }
        }
    """
    session = frame.sparkSession
    assert load_class(session, "onceward.Same", source)
    function = JavaClass("onceward.Same", session._jvm._gateway_client)()
    session._jsparkSession.udf().register("same", function, session._jvm.org.apache.spark.sql.types.DataTypes.LongType)
    return frame.selectExpr("*", "same(id) AS same")


LEFT_TO_A_JOB: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a function from a jar": from_a_jar,
    "a function in Python": lambda frame: frame.withColumn("same", F.udf(lambda value: value, "long")("id")),
    "batches in Python": lambda frame: frame.mapInArrow(unchanged, "id long, file int"),
    "drawn": lambda frame: frame.withColumn("luck", F.rand()),
    "by its file": lambda frame: frame.withColumn("path", F.input_file_name()),
    "by reflection": lambda frame: frame.selectExpr("*", "java_method('java.lang.Math', 'abs', cast(id as int))"),
    "by the name of a class": lambda frame: frame.selectExpr("*", "luhn_check(cast(id as string)) AS lucky"),
    "exploded": lambda frame: frame.selectExpr("*", "explode(array(id)) AS one"),
    "with a watermark": lambda frame: frame.selectExpr("*", "timestamp_seconds(id) AS at").withWatermark("at", "1 day"),
    "repartitioned": lambda frame: frame.repartition(2),
    "with state": lambda frame: frame.dropDuplicates(["id"]),
    "joined": lambda frame: frame.join(frame.sparkSession.range(EPOCHS * ROWS), "id"),
    "observed": lambda frame: frame.observe("seen", F.count(F.lit(1)).alias("rows")),
}


@pytest.mark.parametrize("kind", LEFT_TO_A_JOB)
def test_what_is_not_simple_is_left_to_a_job(workspace: SparkWorkspace, spark: SparkSession, kind: str) -> None:
    workspace.add_files(EPOCHS, ROWS)
    rows, _, jobs = recorded(workspace, spark, lambda session: LEFT_TO_A_JOB[kind](workspace.stream(session)), "jobs")
    assert jobs >= EPOCHS
    assert sorted(row["id"] for row in rows) == workspace.ids()


def test_large_files_with_few_rows_are_left_to_a_job(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(EPOCHS, ROWS)
    for path in workspace.source.iterdir():
        path.write_text(path.read_text() + " " * 100_000)
    rows, _, jobs = recorded(workspace, spark, workspace.stream, "jobs")
    assert jobs >= EPOCHS
    assert sorted(row["id"] for row in rows) == workspace.ids()


@pytest.mark.parametrize("name", ["ignoreCorruptFiles", "ignoreMissingFiles"])
@pytest.mark.parametrize("by", ["option", "setting"])
def test_files_whose_errors_are_ignored_are_left_to_a_job(
    workspace: SparkWorkspace, spark: SparkSession, name: str, by: str
) -> None:
    """A reader that is interrupted would be taken for one that has come to the end of its file."""
    workspace.add_files(EPOCHS, ROWS)

    def pipeline(session: SparkSession) -> DataFrame:
        reader = session.readStream.schema("id long, file int").option("maxFilesPerTrigger", 1)
        return (reader.option(name, True) if by == "option" else reader).json(str(workspace.source))

    setting = f"spark.sql.files.{name}"
    spark.conf.set(setting, str(by == "setting").lower())
    try:
        rows, _, jobs = recorded(workspace, spark, pipeline, "jobs")
    finally:
        spark.conf.unset(setting)
    assert jobs >= EPOCHS
    assert sorted(row["id"] for row in rows) == workspace.ids()


def test_more_bytes_than_the_driver_should_hold_are_left_to_a_job(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "_BATCH_BYTES", 50_000)
    workspace.add_files(EPOCHS, ROWS)

    def pipeline(session: SparkSession) -> DataFrame:
        return workspace.stream(session).selectExpr("*", "repeat('x', 5000) AS text")

    rows, _, jobs = recorded(workspace, spark, pipeline, "jobs")
    assert jobs >= EPOCHS
    assert sorted(row["id"] for row in rows) == workspace.ids()


def test_what_takes_long_is_left_to_a_job(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be cancelled as a job can."""
    monkeypatch.setattr(first_rows, "_MOST_MS", 0)
    workspace.add_files(EPOCHS, ROWS)

    def pipeline(session: SparkSession) -> DataFrame:
        return workspace.stream(session).selectExpr("*", "array_max(sequence(1, 2000000 + id)) AS most")

    rows, _, jobs = recorded(workspace, spark, pipeline, "jobs")
    assert jobs >= EPOCHS
    assert sorted(row["id"] for row in rows) == workspace.ids()


def test_rows_do_not_count_when_their_query_was_stopped_meanwhile(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """A stop interrupts the reader; who ignores that may have left rows out."""
    workspace.add_files(1, ROWS)
    assert load_class(spark, "onceward.FirstRows", first_rows._SOURCE)
    assert load_class(spark, LOCAL_ROWS, SOURCE)
    computed: list[int | None] = []

    def compute(batch: DataFrame) -> None:
        java = JavaClass(LOCAL_ROWS, batch.sparkSession._jvm._gateway_client)
        found = java.compute(batch._jdf, 100, 1 << 20, 1 << 20, 600_000)
        computed.append(None if found is None else len(found))

    def write(batch: DataFrame, epoch: int) -> None:
        compute(batch)
        (running,) = spark.streams.active
        threading.Thread(target=running.stop).start()
        wait_until(lambda: not running.isActive, "the query is stopped")
        compute(batch)

    writer = workspace.stream(spark).writeStream.option("checkpointLocation", str(workspace.checkpoint))
    query = writer.foreachBatch(write).start()
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination()
    assert computed == [ROWS, None]


def test_a_batch_that_its_user_keeps_is_left_to_a_job(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(EPOCHS, ROWS)
    ids = workspace.ids()
    sink = RecordingSink(workspace.work / "recorded")
    deliver = foreach_batch(name="own", checkpoint=workspace.checkpoint, sinks=[sink])

    def write(batch: DataFrame, epoch: int) -> None:
        batch.persist()
        assert batch.count() == ROWS
        (workspace.source / f"{epoch:05}.json").write_text('{"id": -1, "file": 0}\n')
        deliver(batch, epoch)

    writer = workspace.stream(spark).writeStream.option("checkpointLocation", str(workspace.checkpoint))
    writer.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
    deliver.close()
    rows = [row["id"] for epoch in range(EPOCHS) for table in sink.tables(epoch) for row in table.to_pylist()]
    assert sorted(rows) == ids


def test_a_batch_that_its_user_has_changed_is_left_to_a_job(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """The plan of the query is not its own then."""
    workspace.add_files(EPOCHS, ROWS)
    sink = RecordingSink(workspace.work / "recorded")
    deliver = foreach_batch(name="own", checkpoint=workspace.checkpoint, sinks=[sink])
    writer = workspace.stream(spark).writeStream.option("checkpointLocation", str(workspace.checkpoint))
    query = writer.foreachBatch(lambda batch, epoch: deliver(batch.where("id % 2 = 0"), epoch))
    query.trigger(availableNow=True).start().awaitTermination()
    deliver.close()
    rows = [row["id"] for epoch in range(EPOCHS) for table in sink.tables(epoch) for row in table.to_pylist()]
    assert sorted(rows) == [number for number in workspace.ids() if number % 2 == 0]


def test_spark_counts_the_rows_that_it_did_not_read_by_a_job(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(EPOCHS, ROWS)
    sink = RecordingSink(workspace.work / "recorded")
    deliver = foreach_batch(name="own", checkpoint=workspace.checkpoint, sinks=[sink])
    writer = workspace.stream(spark).writeStream.option("checkpointLocation", str(workspace.checkpoint))
    query = writer.foreachBatch(deliver).trigger(availableNow=True).start()
    query.awaitTermination()
    deliver.close()
    assert [progress.numInputRows for progress in query.recentProgress[:EPOCHS]] == [ROWS] * EPOCHS


def test_a_file_that_cannot_be_read_fails_as_by_a_job_and_nothing_is_delivered(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strict(session: SparkSession) -> DataFrame:
        reader = session.readStream.schema("id long, file int").option("mode", "FAILFAST")
        return reader.option("maxFilesPerTrigger", 1).json(str(workspace.source))

    workspace.add_files(2, ROWS)
    (workspace.source / "00001.json").write_text('{"id": 12, "file": 1}\n{"id": thirteen}')

    def failure(name: str) -> set[str]:
        sink = RecordingSink(workspace.work / f"recorded-{name}")
        with pytest.raises(StreamingQueryException) as failed:
            workspace.job([sink], pipeline=strict, checkpoint=workspace.work / f"checkpoint-{name}").run(spark)
        assert [len(sink.tables(epoch)) for epoch in range(2)] == [1, 0]
        return {line for line in str(failed.value).splitlines() if line.startswith(("Caused by", ": org.apache"))}

    told = failure("here")
    without_local_rows(monkeypatch)
    assert told == failure("jobs")
    assert any("MALFORMED_RECORD" in line for line in told)
