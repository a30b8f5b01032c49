"""Questions to the brokers: which topics there are, what they take, and the receipts that stand in one of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from onceward.connections.kafka import AdminConnection, admin_driver, driver
from onceward.identity import JobName, SinkName
from onceward.sinks.kafka.client import Client, log
from onceward.sinks.kafka.errors import KafkaFailed
from onceward.sinks.kafka.limits import Topic
from onceward.sinks.kafka.receipts import Receipts
from onceward.sinks.kafka.settings import Settings

BY_DEFAULT = -1
"""As many replicas as the brokers give a topic by default."""
# Compaction leaves the segment alone that is being written; with small ones a start has little to read.
_OF_RECEIPTS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
PARTITION_OF_RECEIPTS = 0
"""All receipts stand in it, however many the topic has, so that adding some hides none."""
TRANSACTIONS = "__transaction_state"
_OF_TRANSACTIONS = ("transaction.max.timeout.ms", "transactional.id.expiration.ms")
_OF_KEEPING = ("min.insync.replicas", "unclean.leader.election.enable")
_RECEIPTS_AT_ONCE = 1000
_BETWEEN_LOOKS_S = 0.1
_SOON_S = 0.002
SURELY_GONE_S = 3.0
"""A broker that has just started may be the last to know of a topic."""


def _coming_up() -> tuple[int, ...]:
    """What is said of a topic that was just made, or whose leader was just lost."""
    errors = driver().KafkaError
    return (
        errors.LEADER_NOT_AVAILABLE,
        errors.OFFSET_NOT_AVAILABLE,
        errors.UNKNOWN_TOPIC_OR_PART,
        errors.NOT_LEADER_FOR_PARTITION,
        errors._NOENT,
    )


def _not_there() -> tuple[int, ...]:
    errors = driver().KafkaError
    return (errors.UNKNOWN_TOPIC_OR_PART, errors.TOPIC_EXCEPTION, errors._UNKNOWN_TOPIC)


def _is_open(where: str) -> str:
    return (
        f"a transaction of somebody is open at offset {where}; it ends with its publish or by its time-out, and "
        "`kafka-transactions find-hanging` lists those that never end"
    )


@dataclass(frozen=True, slots=True)
class Described:
    """A topic as the brokers describe it. `id` changes when it is deleted and made anew; `may` names what is allowed
    to us."""

    topic: Topic
    id: str
    replicas: int
    config: Mapping[str, str]
    may: frozenset[str]


class Cluster:
    """One connection for questions; made when needed, closed with `close`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = Client(settings, "asking the brokers")
        self._connection: AdminConnection = self._client.make(AdminConnection, settings.connection())

    def close(self) -> None:
        """It keeps no socket open afterwards."""
        self._client.close()

    @property
    def _admin(self) -> Any:
        return self._connection.client

    def describe(self, names: Iterable[str]) -> dict[str, Described]:
        """Those of the topics that exist."""
        kafka = driver()
        names = list(dict.fromkeys(names))
        found: dict[str, Described] = {}
        if not names:
            return found
        # Both are asked before either is waited for: together they take as long as one.
        asked = self._admin.describe_topics(
            kafka.TopicCollection(names), include_authorized_operations=True, request_timeout=self._settings.timeout_s
        )
        asked_configs = self._ask_for_configs(names)
        described = {}
        for name, future in asked.items():
            try:
                described[name] = self._client.wait(future)
            except KafkaFailed as failed:
                if failed.code == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise KafkaFailed(
                        f"{failed} (nothing, not even WRITE, is allowed on {name!r})", failed.code
                    ) from None
                if failed.code not in _not_there():
                    raise
        for name, one in described.items():
            config = self._config(asked_configs[name])
            if config is None:
                # It came to be, or went, between the two answers.
                continue
            topic = Topic.described(name, len(one.partitions), config, is_internal=bool(one.is_internal))
            may = frozenset(operation.name for operation in one.authorized_operations or ())
            found[name] = Described(topic, str(one.topic_id), len(one.partitions[0].replicas), config, may)
        return found

    def _ask_for_configs(self, names: Iterable[str]) -> dict[str, Future[Any]]:
        admin = admin_driver()
        wanted = {name: admin.ConfigResource(admin.RESOURCE_TOPIC, name) for name in names}
        asked = self._admin.describe_configs(list(wanted.values()), request_timeout=self._settings.timeout_s)
        return {name: asked[resource] for name, resource in wanted.items()}

    def _config(self, asked: Future[Any]) -> dict[str, str] | None:
        """The settings of a topic; none where we may not see them, None where there is no such topic."""
        try:
            return {key: str(entry.value) for key, entry in self._client.wait(asked).items()}
        except KafkaFailed as failed:
            if failed.code == driver().KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return {}
            if failed.code in _not_there():
                return None
            raise

    def of_transactions(self) -> dict[str, str]:
        """How the brokers keep transactions, as far as we may see it."""
        kafka, admin = driver(), admin_driver()
        told: dict[str, str] = {}
        with suppress(KafkaFailed, kafka.KafkaException):
            controller = self._admin.list_topics(TRANSACTIONS, timeout=self._settings.timeout_s).controller_id
            broker = admin.ConfigResource(admin.RESOURCE_BROKER, str(controller))
            asked = self._admin.describe_configs([broker], request_timeout=self._settings.timeout_s)
            entries = self._client.wait(asked[broker])
            told = {f"brokers: {name}": str(entries[name].value) for name in _OF_TRANSACTIONS if name in entries}
        with suppress(KafkaFailed):
            for described in self.describe([TRANSACTIONS]).values():
                kept = {name: described.config[name] for name in _OF_KEEPING if name in described.config}
                told |= {f"topic {TRANSACTIONS}: {name}": value for name, value in kept.items()}
        return told

    def create(self, name: str, *, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Make a topic, unless somebody else just made it."""
        topic = admin_driver().NewTopic(
            name, num_partitions=partitions, replication_factor=replicas, config=dict(config)
        )
        asked = self._admin.create_topics([topic], operation_timeout=self._settings.timeout_s)
        try:
            self._client.wait(asked[name])
        except KafkaFailed as failed:
            if failed.code != driver().KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def describe_new(self, name: str) -> Described:
        """A topic that was just made: a broker learns of it a moment after the controller has confirmed it."""
        found = self.describe_patiently([name], self._settings.timeout_s)
        if name not in found:
            raise self._client.failed(f"topic {name!r} was made, but the brokers do not know of it")
        return found[name]

    def describe_patiently(self, names: Iterable[str], patience_s: float) -> dict[str, Described]:
        """Those of the topics that exist; to those that the brokers do not know yet they get so long to come up."""
        names, found = list(names), dict[str, Described]()
        deadline = time.monotonic() + patience_s
        while missing := [name for name in names if name not in found]:
            try:
                found |= self.describe(missing)
            except KafkaFailed as failed:
                if failed.code not in _coming_up() or time.monotonic() > deadline:
                    raise
            if len(found) == len(names) or time.monotonic() > deadline:
                break
            time.sleep(_BETWEEN_LOOKS_S)
        return found

    def create_for_receipts(self, name: str, like: Described | None) -> None:
        """As many copies of the receipts as of the rows."""
        log.warning("making the topic %r for receipts: it was not there", name)
        self.create(name, partitions=1, replicas=like.replicas if like else BY_DEFAULT, config=_OF_RECEIPTS)

    def is_held_up(self, topic: str) -> bool:
        """Whether a transaction of somebody is open among the receipts."""
        return self.end_of(topic) > self.end_of(topic, read_committed=True)

    def end_of(self, topic: str, *, read_committed: bool = False) -> int:
        """Where the receipts end now, for `read_committed` at the first transaction that is still open, else past them
        all. A new topic gets time to come up.

        One look that meets a topic without a leader waits for all of its time and gets nothing: so the first are
        short. And the driver, once told that a partition has no leader, believes it until it is made to ask again.
        """
        deadline = time.monotonic() + self._settings.timeout_s
        look_s = 1.0
        while True:
            try:
                return self._end_of(topic, min(look_s, self._settings.timeout_s), read_committed=read_committed)
            except KafkaFailed as failed:
                may_come = failed.code in (*_coming_up(), driver().KafkaError._TIMED_OUT)
                if not may_come or time.monotonic() > deadline:
                    raise
                time.sleep(_BETWEEN_LOOKS_S)
                with suppress(driver().KafkaException):
                    self._admin.list_topics(topic, timeout=look_s)
                look_s *= 2

    def _end_of(self, topic: str, look_s: float, *, read_committed: bool) -> int:
        (end,) = self._ends(self._ask_for_ends(topic, [PARTITION_OF_RECEIPTS], look_s, read_committed=read_committed))
        return end

    def _ask_for_ends(
        self, topic: str, partitions: Iterable[int], look_s: float, *, read_committed: bool
    ) -> list[Future[Any]]:
        kafka = driver()
        level = kafka.IsolationLevel.READ_COMMITTED if read_committed else kafka.IsolationLevel.READ_UNCOMMITTED
        places = [kafka.TopicPartition(topic, partition) for partition in partitions]
        latest = admin_driver().OffsetSpec.latest()
        asked = self._admin.list_offsets(dict.fromkeys(places, latest), isolation_level=level, request_timeout=look_s)
        return [asked[place] for place in places]

    def _ends(self, asked: Iterable[Future[Any]]) -> list[int]:
        return [int(self._client.wait(one).offset) for one in asked]

    def wait_for_open_transactions(self, topic: str, partitions: Sequence[int]) -> None:
        """Until all that stands in these partitions now is committed or aborted, for readers, too."""
        look_s, pause_s = self._settings.timeout_s, _SOON_S
        deadline = time.monotonic() + look_s
        # Both are asked before either is waited for.
        stood = self._ask_for_ends(topic, partitions, look_s, read_committed=False)
        asked = self._ask_for_ends(topic, partitions, look_s, read_committed=True)
        ends = dict(zip(partitions, self._ends(stood), strict=True))
        while held_up := [
            (partition, end)
            for partition, end in zip(partitions, self._ends(asked), strict=True)
            if end < ends[partition]
        ]:
            if time.monotonic() > deadline:
                partition, end = held_up[0]
                raise self._client.failed(_is_open(f"{end} of partition {partition} of {topic!r}"))
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _BETWEEN_LOOKS_S)
            asked = self._ask_for_ends(topic, partitions, look_s, read_committed=True)

    def read_receipts(
        self, topic: str, job: JobName, sink: SinkName, *, patience_s: float, read_committed: bool = True
    ) -> Receipts:
        """Every receipt of this job's name and sink whose transaction is committed.

        A committed receipt stays hidden while an *earlier* transaction in the topic is open, be it of another job. So
        it is not enough to read what can be read: this reads up to where the topic ended when asked, and waits for
        those that are open there. They end with their publish, or by their time-out. Not `read_committed`: what may
        never come to be is read too, and nothing is waited for.
        """
        receipts = Receipts(job, sink)
        end = self.end_of(topic)
        if not end:
            return receipts
        kafka = driver()
        client = Client(self._settings, f"reading the receipts in {topic!r}")
        consumer = client.make(kafka.Consumer, self._settings.consumer(read_committed=read_committed))
        try:
            with client.raising_kafka_failed():
                # It would learn of the topic by itself, half a second later.
                consumer.list_topics(topic, timeout=self._settings.timeout_s)
            consumer.assign([kafka.TopicPartition(topic, PARTITION_OF_RECEIPTS, kafka.OFFSET_BEGINNING)])
            self._read_to(end, consumer, receipts, client, patience_s)
        finally:
            consumer.close()
        return receipts

    def _read_to(self, end: int, consumer: Any, receipts: Receipts, client: Client, patience_s: float) -> None:
        kafka = driver()
        deadline = time.monotonic() + patience_s
        reached = before = 0
        while reached < end:
            if reached > before:
                deadline, before = time.monotonic() + patience_s, reached
            if time.monotonic() > deadline:
                raise client.failed(f"{_is_open(f'{reached} of {end}')}, or the brokers do not answer")
            with client.raising_kafka_failed():
                messages = consumer.consume(_RECEIPTS_AT_ONCE, timeout=0.02)
            for message in messages:
                error = message.error()
                if error is None:
                    if message.key() is not None:
                        receipts.add(message.key(), message.value())
                    reached = message.offset() + 1
                elif error.code() == kafka.KafkaError._PARTITION_EOF:
                    # Stands past the markers of transactions too, which are no messages.
                    reached = max(reached, message.offset())
                elif error.code() != kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # The client asks for the group that it wants named; we join none, and need no permission for it.
                    raise client.failed(error.str(), error.code())
