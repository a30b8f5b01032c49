"""Slots to send, topics of their own for every test, and a plain `read_committed` reader of them."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import confluent_kafka as kafka
import pyarrow as pa

from onceward.contracts import Receipt, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import KafkaSink
from onceward.testing.servers import KafkaServer

Row = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = JobIdentity(JobName("page views"), Generation("aaaaaaaa"))
MARK = Fingerprint("fffffffffffffff2")
_numbers = itertools.count()


class KafkaWorkspace:
    """A topic for rows and one for receipts, made for one test and one world of it."""

    def __init__(self, server: KafkaServer, *, partitions: int = 2, servers: str | None = None, **config: str) -> None:
        self.server = server
        self.servers = servers or server.bootstrap
        number = next(_numbers)
        self.topic = server.create_topic(f"rows-{number}", partitions=partitions, **config)
        self._starts: dict[int, int] = {}
        self.receipts_topic = server.create_topic(f"receipts-{number}", cleanup_policy="compact")

    def sink(self, *, check: bool = False, **options: Any) -> KafkaSink:
        """A sink for these topics, with the settings that tests want: no waiting for more records, short patience."""
        given = {"topic": self.topic, "receipts_topic": self.receipts_topic, "name": "kafka", "timeout_s": 10}
        # All tests of the sink can be run with either producer.
        given["producer"] = os.environ.get("ONCEWARD_KAFKA_PRODUCER")
        sink = KafkaSink(self.servers, **{**given, "config": {"linger.ms": 0}, **options})
        if check:
            sink.check(pa.schema([("id", pa.int64())]), output_mode="append")
        return sink

    def messages(self, topic: str | None = None, *, isolation: str = "read_committed") -> list[kafka.Message]:
        """Everything that a plain consumer sees, partition by partition, each in its order."""
        return read_topic(self.server, topic or self.topic, isolation=isolation, starts=self._starts)

    def begin_anew(self) -> None:
        """From here on the topic is as good as empty to `messages` and `rows`: cheaper than to make another."""
        self._starts = ends_of(self.server, self.topic)

    def is_open(self) -> bool:
        """Whether a transaction in the topic holds up `read_committed` readers."""
        return ends_of(self.server, self.topic) != ends_of(self.server, self.topic, isolation="read_committed")

    def rows(self) -> list[Row]:
        """What stands in the topic, where values are JSON objects."""
        return [json.loads(message.value()) for message in self.messages()]


def ends_of(server: KafkaServer, topic: str, *, isolation: str = "read_uncommitted") -> dict[int, int]:
    """Where each partition ends; for a `read_committed` reader that is before the first open transaction."""
    address = {"bootstrap.servers": server.bootstrap, **server.client_settings()}
    consumer = kafka.Consumer({**address, "group.id": "reader", "isolation.level": isolation})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = [kafka.TopicPartition(topic, one) for one in partitions]
        return {place.partition: consumer.get_watermark_offsets(place, timeout=10)[1] for place in places}
    finally:
        consumer.close()


_ENDS_WITHIN_S = 3.0


def read_topic(
    server: KafkaServer,
    topic: str,
    *,
    isolation: str = "read_committed",
    starts: Mapping[int, int] | None = None,
) -> list[kafka.Message]:
    """Up to where the topic ends for such a reader; an open transaction ends it there.

    The brokers confirm a commit before its records can be read: what ends a transaction is waited for.
    """
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            **server.client_settings(),
        }
    )
    found: dict[int, list[kafka.Message]] = {}
    try:
        partitions = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        begin = {one: (starts or {}).get(one, kafka.OFFSET_BEGINNING) for one in partitions}
        consumer.assign([kafka.TopicPartition(topic, one, at) for one, at in begin.items()])
        left, started = set(partitions), time.monotonic()
        held_up: set[int] = set()
        while left - held_up or (left and time.monotonic() < started + _ENDS_WITHIN_S):
            assert time.monotonic() < started + 30, f"no end of {topic} in sight"
            for message in consumer.consume(10_000, timeout=0.02):
                error = message.error()
                if error is None:
                    found.setdefault(message.partition(), []).append(message)
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    place = kafka.TopicPartition(topic, message.partition())
                    _, end = consumer.get_watermark_offsets(place, cached=True)
                    (held_up.add if message.offset() < end else left.discard)(message.partition())
                else:
                    raise AssertionError(str(error))
    finally:
        consumer.close()
    return [message for partition in sorted(found) for message in found[partition]]


def until(holds: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Wait for something that the broker does by itself."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be"
        threading.Event().wait(0.1)


def slot_of(
    sink: KafkaSink,
    *batches: pa.RecordBatch,
    epoch: int = 7,
    slot: int = 0,
    job: JobIdentity = JOB,
    mark: str = MARK,
    read: Callable[[], Any] | None = None,
) -> SlotValues:
    """A slot as the publisher hands it over."""
    receipt = Receipt(job.name, job.generation, sink.name, epoch, slot, Fingerprint(mark))
    return SlotValues(slot, sum(batch.num_rows for batch in batches), receipt, read or (lambda: iter(batches)))


def send(sink: KafkaSink, *slots: SlotValues, epoch: int = 7, job: JobIdentity = JOB) -> bool:
    return sink.send_transaction(slots, job, epoch, NOW)


def write(sink: KafkaSink, batch: pa.RecordBatch, *, epoch: int = 7, **options: Any) -> bool:
    """Send one slot."""
    return send(sink, slot_of(sink, batch, epoch=epoch, **options), epoch=epoch)


def numbers(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def ids(rows: Sequence[Row]) -> list[int]:
    return sorted(row["id"] for row in rows)
