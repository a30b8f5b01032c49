"""What the brokers still have of a topic, asked with patience: a partition may be without a leader for a while."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from onceward.connections.kafka import AdminConnection, admin_driver, driver, not_taken, said, without_secrets
from onceward.errors import SourceUnavailable
from onceward.sources.positions import OffsetRange, TopicPartition

_USER = "KafkaSource"
_TIMEOUT_S = 30.0
_BETWEEN_LOOKS_S = 0.2


class Brokers:
    """A client for questions. `config` has librdkafka's names; none of it is ever shown."""

    def __init__(self, servers: str, config: Mapping[str, str], *, timeout_s: float = _TIMEOUT_S) -> None:
        self._servers, self._config = servers, config
        self._timeout_s = timeout_s
        kafka = driver(_USER)
        try:
            self._admin = AdminConnection({**config, "bootstrap.servers": servers}, user=_USER)
        except (kafka.KafkaException, TypeError, ValueError) as error:
            raise not_taken(error, config) from None

    def kept(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
        """The records that they have, for those of the partitions that exist."""
        kafka = driver(_USER)
        deadline = time.monotonic() + self._timeout_s
        wanted = set(partitions)
        while True:
            try:
                there = wanted & self._partitions({topic for topic, _ in wanted})
                first, past = (self._offsets(there, kind) for kind in ("earliest", "latest"))
            except kafka.KafkaException as error:
                if time.monotonic() > deadline:
                    raise SourceUnavailable(
                        f"the brokers at {self._servers} do not say what they have: "
                        f"{without_secrets(said(error), self._config)}",
                        hint="start the job again when they can be reached",
                    ) from None
                time.sleep(_BETWEEN_LOOKS_S)
            else:
                return {partition: OffsetRange(*partition, first[partition], past[partition]) for partition in there}

    def _partitions(self, topics: set[str]) -> set[TopicPartition]:
        """Those that exist. Asking for them also tells the driver of leaders anew, which it never does by itself."""
        found = self._admin.client.list_topics(timeout=self._timeout_s).topics
        return {(topic, number) for topic in topics & set(found) for number in found[topic].partitions}

    def _offsets(self, partitions: set[TopicPartition], kind: str) -> dict[TopicPartition, int]:
        kafka, specs = driver(_USER), admin_driver(_USER).OffsetSpec
        wanted = {kafka.TopicPartition(*partition): getattr(specs, kind)() for partition in partitions}
        asked = self._admin.client.list_offsets(wanted, request_timeout=self._timeout_s) if wanted else {}
        return {
            (partition.topic, partition.partition): int(future.result().offset) for partition, future in asked.items()
        }
