"""What cannot work is refused by name, with a hint, before any data moves."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onceward import Job
from onceward.errors import ConfigurationError, GuaranteeUnavailable, OncewardError, TargetRefused
from onceward.sinks import FileSink, SQLiteSink, StdoutSink

from .workspace import SparkWorkspace


def unpicklable(path: Path) -> FileSink:
    sink = FileSink(path)
    sink.lock = threading.Lock()
    return sink


# What is wrong with it, how the job is made, and a word of the message.
WRONG_JOBS: list[tuple[str, Callable[[SparkWorkspace], Job], str]] = [
    ("an unknown file format", lambda g: g.job([FileSink(g.files, format="orc")]), "unknown file format 'orc'"),
    (
        "an upsert without keys",
        lambda g: g.job([SQLiteSink(g.database, table="t", mode="upsert")]),
        "an upsert needs keys",
    ),
    (
        "two sinks of one name",
        lambda g: g.job([FileSink(g.files), FileSink(g.work / "elsewhere" / "out")]),
        "two sinks share a name",
    ),
    ("a sink that does not pickle", lambda g: g.job([unpicklable(g.files)]), "cannot be sent to the executors"),
    ("no sinks", lambda g: Job(name="j", checkpoint=g.checkpoint, pipeline=g.lucky, sinks=[]), "no sinks"),
    ("something that is no sink", lambda g: g.job([object()]), "is not a sink"),
    ("an unknown output mode", lambda g: g.job(output_mode="all"), "output_mode 'all' is unknown"),
    ("an unknown guarantee", lambda g: g.job(guarantee="twice"), "guarantee 'twice' is unknown"),
    ("a sink that gives less", lambda g: g.job([StdoutSink()]), "at best"),
    ("a continuous trigger", lambda g: g.job(trigger="continuous 1 second"), "no micro-batches"),
    ("an unknown trigger", lambda g: g.job(trigger="often"), "trigger 'often' is no interval"),
    (
        "async progress tracking",
        lambda g: g.job(options={"asyncProgressTrackingEnabled": "true"}),
        "async progress tracking is on",
    ),
    ("a checkpoint in an object store", lambda g: g.job(checkpoint="s3://bucket/x"), "not on a local file system"),
    ("an empty checkpoint", lambda g: g.job(checkpoint=" "), "is not a path"),
    ("an empty name", lambda g: g.job(name=""), "cannot be the name of a job"),
    ("a name with a slash", lambda g: g.job(name="a/b"), "cannot be the name of a job"),
    ("a pipeline that is no function", lambda g: g.job(pipeline="SELECT 1"), "pipeline is not a function"),
    ("no room for epochs", lambda g: g.job(max_unpublished_epochs=0), "max_unpublished_epochs"),
]


@pytest.mark.parametrize(("make", "message"), [pytest.param(m, t, id=i) for i, m, t in WRONG_JOBS])
def test_a_job_that_cannot_work_is_refused_when_it_is_made(
    workspace: SparkWorkspace, make: Callable[[SparkWorkspace], Job], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        make(workspace)
    expect_refused(workspace, caught.value)


def socket(spark: SparkSession) -> Any:
    return spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 9).load()


def table_with(columns: str) -> Callable[[SparkWorkspace], Job]:
    def make(workspace: SparkWorkspace) -> Job:
        with sqlite3.connect(workspace.database) as database:
            database.execute(f"CREATE TABLE t ({columns})")
        database.close()
        return workspace.job([SQLiteSink(workspace.database, table="t")])

    return make


def checkpoint_under_a_file(workspace: SparkWorkspace) -> Job:
    (workspace.work / "file").touch()
    return workspace.job(checkpoint=workspace.work / "file" / "checkpoint")


# What is wrong with it, how the job is made, and a word of the message.
WRONG_STARTS: list[tuple[str, Callable[[SparkWorkspace], Job], str]] = [
    ("a checkpoint under a file", checkpoint_under_a_file, "cannot be written"),
    ("a checkpoint where nothing can be made", lambda g: g.job(checkpoint="/proc/onceward"), "cannot be written"),
    ("files where nothing can be made", lambda g: g.job([FileSink("/proc/onceward")]), "cannot write to"),
    ("a database in no folder", lambda g: g.job([SQLiteSink(g.work / "no" / "db", table="t")]), "cannot write to"),
    (
        "a missing table",
        lambda g: g.job([SQLiteSink(g.database, table="t", create_table=False)]),
        "there is no table 't'",
    ),
    ("a table without a column of the stream", table_with("id INTEGER, luck REAL"), "file"),
    ("a table with a column that must be filled", table_with("id, file, luck, more TEXT NOT NULL"), "more"),
    (
        "a key that the stream does not have",
        lambda g: g.job([SQLiteSink(g.database, table="t", mode="upsert", keys="key")]),
        "no key column key",
    ),
    ("a partition column it does not have", lambda g: g.job([FileSink(g.files, partition_by="day")]), "no column day"),
    (
        "a pipeline that is not streaming",
        lambda g: g.job(pipeline=lambda s: s.read.json(str(g.source), schema="id long")),
        "not streaming",
    ),
    ("a pipeline that returns nothing", lambda g: g.job(pipeline=lambda s: None), "returned NoneType"),
    ("a source that forgets", lambda g: g.job(pipeline=socket), "'socket' cannot be read again"),
    (
        "two columns of one name",
        lambda g: g.job(pipeline=lambda s: g.stream(s).selectExpr("id", "file AS id")),
        "two columns of one name",
    ),
    (
        "a type that Arrow does not have",
        lambda g: g.job(pipeline=lambda s: g.stream(s).selectExpr("id", "make_ym_interval(1, 2) AS months")),
        "months",
    ),
    (
        "more unpublished epochs than Spark remembers",
        lambda g: g.job(max_unpublished_epochs=99),
        "Spark keeps 100 entries",
    ),
    (
        "complete results in files",
        lambda g: g.job(pipeline=lambda s: g.stream(s).groupBy("file").count(), output_mode="complete"),
        "a file is never changed",
    ),
    (
        "a count that cannot be appended",
        lambda g: g.job(pipeline=lambda s: g.stream(s).groupBy("file").count()),
        "output mode 'append' for this query",
    ),
]


@pytest.mark.parametrize(("make", "message"), [pytest.param(m, t, id=i) for i, m, t in WRONG_STARTS])
def test_a_job_that_cannot_work_here_is_refused_when_it_starts(
    workspace: SparkWorkspace, spark: SparkSession, make: Callable[[SparkWorkspace], Job], message: str
) -> None:
    workspace.add_files(1)
    with pytest.raises(ConfigurationError, match=message) as caught:
        make(workspace).start(spark)
    expect_refused(workspace, caught.value)


def test_what_kind_of_refusal_it_is(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    with pytest.raises(TargetRefused):
        workspace.job([SQLiteSink(workspace.database, table="t", create_table=False)]).start(spark)
    with pytest.raises(GuaranteeUnavailable):
        workspace.job(pipeline=socket).start(spark)
    with pytest.raises(ConfigurationError, match="can be accepted"):
        workspace.job().start(spark, accept="anything")


def test_the_checkpoint_of_another_job_is_refused(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    workspace.job().run(spark)
    with pytest.raises(ConfigurationError, match="belongs to the job 'tested', not to 'other'") as caught:
        workspace.job(name="other").start(spark)
    assert caught.value.hint
    workspace.expect_exactly_once()


def test_what_spark_itself_refuses_leaves_nothing_behind(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """Counts cannot be appended without a watermark."""
    workspace.add_files(1)
    with pytest.raises(ConfigurationError, match="output mode"):
        workspace.job(pipeline=lambda s: workspace.lucky(s).groupBy("id", "file", "luck").count().drop("count")).run(
            spark
        )
    workspace.job().run(spark)
    workspace.expect_exactly_once()


def expect_refused(workspace: SparkWorkspace, error: OncewardError) -> None:
    """A hint, the exit code of a usage error, and no query, no rows."""
    assert error.hint
    assert error.exit_code == 2
    assert not (workspace.checkpoint / "offsets").exists()
    assert workspace.in_files() == []
