"""One job into files and Kafka, while driver and broker are killed: a plain `read_committed` reader gets each row once.

Scenarios 4, 5, 22, 47, 51 and 60 with real Spark and a real broker.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as kafka_client
import pytest

from onceward.testing.servers import SOON_BACK, KafkaServer

from .ground import Ground, expect_exactly_once, wait_until
from .processes import ended_at_last, kill, run_to_end, said, start
from .servers import starts

pytestmark = pytest.mark.cluster
DRIVER = Path(__file__).with_name("kafka_driver.py")
COMMAND = ["-c", "from onceward.cli import main; main()", "run", str(DRIVER), "--json"]
KILLS = 4


@pytest.fixture
def broker(kafka: KafkaServer) -> Iterator[KafkaServer]:
    """For this test alone: it is killed. The session's own proves that there is one to be had."""
    with KafkaServer(**SOON_BACK) as server:
        server.create_topic("rows", partitions=2)
        yield server


class Reader:
    """Reads the topic all the while, as any application would, and keeps what it got in order."""

    def __init__(self, server: KafkaServer) -> None:
        settings = {"bootstrap.servers": server.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = kafka_client.Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        places = [kafka_client.TopicPartition("rows", n, kafka_client.OFFSET_BEGINNING) for n in range(2)]
        self._consumer.assign(places)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.rows: list[dict[str, Any]] = []

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _work(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    self.rows.append(json.loads(message.value()))


def test_killed_with_its_broker_a_plain_reader_gets_every_row_once_and_from_one_computation(
    ground: Ground, broker: KafkaServer, record_property: pytest.RecordProperty
) -> None:
    seed = int(os.environ.get("ONCEWARD_SEED", random.SystemRandom().randrange(10**6)))
    print(f"ONCEWARD_SEED={seed}")
    record_property("seed", seed)
    dice = random.Random(seed)
    with Reader(broker) as reader:
        for number in range(KILLS):
            ground.add_files(dice.randrange(3, 6))
            live_and_die(ground, broker, dice, kills_broker=number % 2 == 1)
        code = run_to_end(ground, *COMMAND, kafka=broker.bootstrap)
        assert code == 0, said(ground)
        wait_until(lambda: len(reader.rows) >= len(ground.ids()), "the reader has caught up")
    expect_exactly_once(reader.rows, ground.ids())
    expect_exactly_once(ground.in_files(), ground.ids())
    files = {row["id"]: row["luck"] for row in ground.in_files()}
    assert {row["id"]: row["luck"] for row in reader.rows} == files, "both targets have one computation of every row"
    ground.expect_nothing_staged()


def live_and_die(ground: Ground, broker: KafkaServer, dice: random.Random, *, kills_broker: bool) -> None:
    """A driver that is killed some time after it came up; its broker too, and first, where that is asked."""
    before = starts(ground)
    process = start(ground, *COMMAND, trigger=None, small=dice.choice([0, 1000]), kafka=broker.bootstrap)
    with ended_at_last(process):
        wait_until(lambda: starts(ground) > before or process.poll() is not None, "the driver starts")
        threading.Event().wait(dice.uniform(2.0, 8.0))
        if kills_broker:
            broker.kill()
            threading.Event().wait(dice.uniform(0.0, 1.0))
            broker.start()
            threading.Event().wait(dice.uniform(0.0, 4.0))
        kill(process)
