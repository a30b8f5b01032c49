"""`onceward doctor` finds what a start would trip over, and says what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceward.contracts import Finding, Grade
from onceward.doctor import examine
from onceward.sinks import FileSink, PostgresSink, SQLiteSink
from onceward.testing.servers import PostgresServer

from .ground import Ground


def grades(findings: list[Finding]) -> dict[str, Grade]:
    return {finding.about: finding.grade for finding in findings}


def test_a_sound_job_has_nothing_wrong_before_and_after_its_first_start(ground: Ground, spark: SparkSession) -> None:
    ground.add_files(1)
    job = ground.job()
    before = list(examine(job, spark))
    assert Grade.WRONG not in grades(before).values()
    assert "first start" in before[-1].says
    job.run(spark)
    assert list(examine(job, spark))[-1] == Finding("checkpoint", Grade.FINE, "nothing is pending")


def test_every_fault_is_found_in_one_go_and_nothing_is_written(ground: Ground, spark: SparkSession) -> None:
    ground.add_files(1)
    blocked = ground.work / "blocked"
    blocked.touch()
    sinks = [FileSink(blocked / "out"), SQLiteSink(ground.database, table="t", create_table=False)]
    found = list(examine(ground.job(sinks=sinks, max_unpublished_epochs=99), spark))
    wrong = [finding for finding in found if finding.grade is Grade.WRONG]
    assert [finding.about for finding in wrong] == ["Spark's log", *(f"sink {sink.name}" for sink in sinks)]
    assert "minBatchesToRetain" in (wrong[0].mend or "")
    assert "CREATE TABLE" in (wrong[2].mend or "")
    assert not ground.checkpoint.exists()


def test_a_pipeline_that_does_not_stream_or_fails_is_wrong(ground: Ground, spark: SparkSession) -> None:
    for pipeline in (lambda spark: spark.range(3), lambda spark: spark.readStream.json("/does/not/exist")):
        found = list(examine(ground.job(pipeline=pipeline), spark))
        assert grades(found)["pipeline"] is Grade.WRONG
        assert found[-1].about == "pipeline"


@pytest.mark.cluster
def test_too_few_prepared_transactions_are_a_warning_with_the_statement_that_mends_it(
    ground: Ground, spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    ground.add_files(1)
    sink = PostgresSink(postgres.url, table="doctor")
    for epochs, grade in ((10, Grade.FINE), (1000, Grade.WARNING)):
        found = list(examine(ground.job(sinks=[sink], max_unpublished_epochs=epochs), spark))
        (room,) = [finding for finding in found if finding.about.endswith("prepared transactions")]
        assert room.grade is grade
        assert ("ALTER SYSTEM" in (room.mend or "")) == (grade is Grade.WARNING)
