"""`onceward doctor` finds what a start would trip over, and says what fixes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceward.contracts import Finding, Severity
from onceward.doctor import examine
from onceward.sinks import FileSink, PostgresSink, SQLiteSink
from onceward.testing.servers import PostgresServer

from .workspace import SparkWorkspace


def severities(findings: list[Finding]) -> dict[str, Severity]:
    return {finding.about: finding.severity for finding in findings}


def test_a_sound_job_has_nothing_wrong_before_and_after_its_first_start(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(1)
    job = workspace.job()
    before = list(examine(job, spark))
    assert Severity.ERROR not in severities(before).values()
    assert "first start" in before[-1].detail
    job.run(spark)
    assert list(examine(job, spark))[-1] == Finding("checkpoint", Severity.OK, "nothing is pending")
    (*_, last) = examine(workspace.job(name="other"), spark)
    assert last.severity is Severity.ERROR
    assert "belongs to the job 'tested'" in last.detail


def test_every_fault_is_found_in_one_go_and_nothing_is_written(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    blocked = workspace.work / "blocked"
    blocked.touch()
    sinks = [FileSink(blocked / "out"), SQLiteSink(workspace.database, table="t", create_table=False)]
    found = list(examine(workspace.job(sinks=sinks, max_unpublished_epochs=99), spark))
    wrong = [finding for finding in found if finding.severity is Severity.ERROR]
    assert [finding.about for finding in wrong] == ["Spark's log", *(f"sink {sink.name}" for sink in sinks)]
    assert "minBatchesToRetain" in (wrong[0].fix or "")
    assert "CREATE TABLE" in (wrong[2].fix or "")
    assert not workspace.checkpoint.exists()


def test_a_pipeline_that_does_not_stream_or_fails_is_wrong(workspace: SparkWorkspace, spark: SparkSession) -> None:
    for pipeline in (lambda spark: spark.range(3), lambda spark: spark.readStream.json("/does/not/exist")):
        found = list(examine(workspace.job(pipeline=pipeline), spark))
        assert severities(found)["pipeline"] is Severity.ERROR
        assert found[-1].about == "pipeline"


@pytest.mark.cluster
def test_too_few_prepared_transactions_are_a_warning_with_the_statement_that_mends_it(
    workspace: SparkWorkspace, spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    workspace.add_files(1)
    sink = PostgresSink(postgres.url, table="doctor")
    for epochs, severity in ((10, Severity.OK), (1000, Severity.WARNING)):
        found = list(examine(workspace.job(sinks=[sink], max_unpublished_epochs=epochs), spark))
        (room,) = [finding for finding in found if finding.about.endswith("prepared transactions")]
        assert room.severity is severity
        assert ("ALTER SYSTEM" in (room.fix or "")) == (severity is Severity.WARNING)
