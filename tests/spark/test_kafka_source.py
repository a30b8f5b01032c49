"""Kafka in, Kafka out, with Spark's own connector: offsets of each epoch, lag for monitoring, and data that is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import confluent_kafka as client
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.errors import ConfigurationError, SourceDataLost, SourceUnavailable
from onceward.sources import KafkaSource, OffsetRange, offset_ranges
from onceward.sources.brokers import Brokers
from onceward.testing.servers import KafkaServer

from .kafka_counting import counting
from .processes import ended_at_last, kill, run_to_end, said, start
from .workspace import SparkWorkspace, wait_until

pytestmark = pytest.mark.cluster
JOB = Path(__file__).with_name("kafka_counting.py")
COMMAND = ["-c", "from onceward.cli import main; main()", "run", str(JOB), "--json", "--spark-log"]
APPS = ("maps", "mail", "news")


@pytest.fixture
def broker(kafka: KafkaServer) -> Iterator[KafkaServer]:
    kafka.create_topic("views", partitions=2)
    kafka.create_topic("pv", partitions=2)
    yield kafka
    kafka.delete_topics("views", "pv")


def view(broker: KafkaServer, count: int, *, partitions: int = 2) -> None:
    """As many page views of each app."""
    producer = client.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count * len(APPS)):
        producer.produce("views", APPS[number % len(APPS)], partition=number % partitions)
    assert producer.flush(30) == 0


def counts(broker: KafkaServer) -> list[tuple[str, int]]:
    """Every record of the output, in order for each app."""
    consumer = client.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([client.TopicPartition("pv", n, client.OFFSET_BEGINNING) for n in range(2)])
    found, ends = [], 0
    while ends < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            row = json.loads(message.value())
            found.append((row["app"], row["count"]))
        else:
            ends += 1
    consumer.close()
    return found


def total(broker: KafkaServer) -> int:
    return sum(dict(counts(broker)).values())


@pytest.mark.usefixtures("connector")
def test_counts_from_kafka_reach_kafka_once_and_offsets_are_shown(
    workspace: SparkWorkspace, broker: KafkaServer, spark: SparkSession
) -> None:
    view(broker, 200)
    counting(workspace.work, kafka=broker.bootstrap).run(spark)
    checkpoint = workspace.work / "checkpoint"
    assert dict(counts(broker)) == dict.fromkeys(APPS, 200), "the last count of each app"
    assert len(counts(broker)) == len(set(counts(broker))), "no count came twice"
    ranges = offset_ranges(checkpoint, 1)
    assert ranges == [OffsetRange("views", 0, 150, 300), OffsetRange("views", 1, 150, 300)]
    shown = CliRunner().invoke(app, ["status", str(checkpoint), "--json"])
    epochs = {epoch["epoch"]: epoch["offsets"] for epoch in json.loads(shown.stdout)["epochs"]}
    assert epochs[1] == "views (0, 300) (1, 300)"
    assert lag(broker) == {0: 300, 1: 300}, "what tools that watch the group see"
    beside = CliRunner().invoke(app, ["status", str(checkpoint), "--state", "--epoch", "0"]).stdout
    assert "epoch 0: offset views (0, 150) (1, 150) · state (mail, 100) (maps, 100) (news, 100)\n" in beside


def lag(broker: KafkaServer) -> dict[int, int]:
    consumer = client.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "counted-lag"})
    places = consumer.committed([client.TopicPartition("views", n) for n in range(2)], timeout=30)
    consumer.close()
    return {place.partition: place.offset for place in places}


@pytest.mark.usefixtures("connector")
def test_records_that_are_gone_stop_the_job_with_their_ranges_unless_accepted(
    workspace: SparkWorkspace, broker: KafkaServer, spark: SparkSession
) -> None:
    view(broker, 200)
    counting(workspace.work, kafka=broker.bootstrap).run(spark)
    view(broker, 200)
    admin = broker.admin()
    for done in admin.delete_records([client.TopicPartition("views", 1, 450)]).values():
        done.result(30)
    source = KafkaSource(broker.bootstrap, topics="views")
    assert source.lost(workspace.work / "checkpoint") == [OffsetRange("views", 1, 300, 450)]
    with pytest.raises(SourceDataLost, match=r"views-1: 300 to 449 \(150 records\)"):
        counting(workspace.work, kafka=broker.bootstrap).run(spark)
    assert dict(counts(broker)) == dict.fromkeys(APPS, 200), "nothing was read past the gap"
    counting(workspace.work, kafka=broker.bootstrap, accept_loss=True).run(spark)
    assert sum(dict(counts(broker)).values()) == 1200 - 150


@pytest.mark.usefixtures("connector")
def test_a_topic_that_was_made_anew_or_is_gone_stops_the_job_unless_accepted(
    broker: KafkaServer, workspace: SparkWorkspace, spark: SparkSession
) -> None:
    view(broker, 200)
    counting(workspace.work, kafka=broker.bootstrap).run(spark)
    source, nobody = KafkaSource(broker.bootstrap, topics="views"), cast(SparkSession, None)
    broker.delete_topics("views")
    with pytest.raises(SourceDataLost, match=r"views-0: all from 300 on \(the partition is gone\), views-1"):
        source.load(nobody, workspace.checkpoint)
    broker.create_topic("views", partitions=2)
    view(broker, 10)
    with pytest.raises(SourceDataLost, match=r"views-0: all from 300 on \(the topic was made anew, and ends at 15\)"):
        source.load(nobody, workspace.checkpoint)
    counting(workspace.work, kafka=broker.bootstrap, accept_loss=True).run(spark)
    view(broker, 5)
    counting(workspace.work, kafka=broker.bootstrap).run(spark)
    assert dict(counts(broker)) == dict.fromkeys(APPS, 205), "goes on behind what the new topic had by then"


@pytest.mark.soak
def test_partitions_that_are_added_while_running_are_read_and_another_number_of_cores_goes_on(
    broker: KafkaServer, workspace: SparkWorkspace, connector: dict[str, str]
) -> None:
    view(broker, 100)
    config = {"kafka": broker.bootstrap, "settings": connector}
    process = start(workspace, *COMMAND, **config, trigger="500 milliseconds")
    with ended_at_last(process):
        wait_until(lambda: total(broker) == 300 or process.poll() is not None, "the job has counted all")
        assert process.poll() is None, said(workspace)
        broker.grow_topic("views", partitions=5)
        view(broker, 100, partitions=5)
        wait_until(lambda: total(broker) == 600 or process.poll() is not None, "the new partitions are read")
        assert process.poll() is None, said(workspace)
        kill(process)
    broker.grow_topic("views", partitions=7)
    view(broker, 100, partitions=7)
    assert run_to_end(workspace, *COMMAND, **config, master="local[1]") == 0, said(workspace)
    assert dict(counts(broker)) == dict.fromkeys(APPS, 300)
    assert len(counts(broker)) == len(set(counts(broker))), "no count came twice"


def test_brokers_that_do_not_answer_are_named() -> None:
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1 do not say what they have"):
        Brokers("127.0.0.1:1", {}, timeout_s=1).kept([("views", 0)])


@pytest.mark.parametrize(
    "options", [{}, {"topics": "a", "pattern": "b.*"}, {"topics": "a", "max_records_per_epoch": 0}], ids=str
)
def test_a_source_that_cannot_work_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        KafkaSource("localhost:9092", **options)
