"""State partitions by the cores, unless the user has chosen."""

from __future__ import annotations

import json
import logging

import pytest
from pyspark.sql import DataFrame, SparkSession

from onceward import CheckpointConfig
from onceward.contracts import Workload
from onceward.job import workload_of
from onceward.sinks import FileSink
from onceward.spark.defaults import most_tasks

from .workspace import SparkWorkspace

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture
def unset(spark: SparkSession) -> SparkSession:
    """A session whose user has said nothing about it."""
    session = spark.newSession()
    session.conf.unset(PARTITIONS)
    assert session.conf.get(PARTITIONS) == "200"
    return session


def counted(workspace: SparkWorkspace, spark: SparkSession) -> DataFrame:
    return workspace.stream(spark).groupBy("file").count()


def run(workspace: SparkWorkspace, spark: SparkSession) -> None:
    sink = FileSink(workspace.files)
    workspace.job([sink], pipeline=lambda session: counted(workspace, session), output_mode="update").run(spark)


def recorded(workspace: SparkWorkspace, epoch: int) -> str:
    return str(
        json.loads((workspace.checkpoint / "offsets" / str(epoch)).read_text().splitlines()[1])["conf"][PARTITIONS]
    )


def test_a_new_checkpoint_has_as_many_as_there_are_cores_and_says_so(
    workspace: SparkWorkspace, unset: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="onceward")
    workspace.add_files(1)
    run(workspace, unset)
    assert recorded(workspace, 0) == "2"
    assert "state is kept in 2 partitions, by the cores of local[2]" in caplog.text
    assert unset.conf.get(PARTITIONS) == "200", "other queries of the session are left alone"
    caplog.clear()
    workspace.add_files(1)
    run(workspace, unset)
    assert recorded(workspace, 1) == "2"
    assert "partitions" not in caplog.text


def test_what_the_user_has_chosen_stays(workspace: SparkWorkspace, unset: SparkSession) -> None:
    unset.conf.set(PARTITIONS, 3)
    workspace.add_files(1)
    run(workspace, unset)
    assert recorded(workspace, 0) == "3"


def test_the_transactions_that_a_sink_must_have_room_for_go_by_the_plan(
    workspace: SparkWorkspace, unset: SparkSession
) -> None:
    """Without a shuffle an epoch has no 200 tasks, whatever the setting."""
    workspace.add_files(1)
    job = workspace.job()
    unset.conf.set(PARTITIONS, 200)
    assert workload_of(job, workspace.stream(unset)) == Workload(2, 10)
    assert workload_of(job, counted(workspace, unset)) == Workload(200, 10)
    unset.conf.unset(PARTITIONS)
    assert workload_of(job, counted(workspace, unset)) == Workload(2, 10)


def test_the_tasks_of_an_epoch_of_ones_own_query_are_those_that_it_has(
    workspace: SparkWorkspace, unset: SparkSession
) -> None:
    """It may be changed on its way to us, and nothing is computed to find out."""
    workspace.add_files(1)
    found: list[int] = []

    def count(batch: DataFrame, epoch: int) -> None:
        for frame in (batch, batch.where("id > 3"), batch.union(batch), batch.groupBy("file").count()):
            found.append(most_tasks(frame, workspace.checkpoint, CheckpointConfig()))

    unset.conf.set(PARTITIONS, 7)
    writer = workspace.stream(unset).repartition(3).writeStream
    query = writer.option("checkpointLocation", str(workspace.checkpoint)).foreachBatch(count)
    query.trigger(availableNow=True).start().awaitTermination()
    assert found == [3, 3, 6, 7]
