"""Kafka as a source, thin over Spark's own connector: what is lost is said before Spark starts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from onceward.connections.kafka import driver, not_taken
from onceward.errors import ConfigurationError, DamagedFile, SourceDataLost
from onceward.sources.brokers import Brokers
from onceward.sources.positions import OffsetRange, TopicPartition, positions
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.current import current_checkpoint
from onceward.storage import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 20


class KafkaSource:
    """Reads topics of the brokers `servers` with Spark's connector. `onceward run` brings it; elsewhere it must be on
    Spark's class path (`spark.jars.packages`).

    Name `topics`, or a `pattern` for topics that may come later; new partitions are found while running. A checkpoint
    goes on where it stopped, whatever the number of partitions or cores; `start` counts only without one. Records that
    the brokers no longer have stop the job before Spark starts, with their ranges, unless `accept_loss`. An epoch has
    at most `max_records_per_epoch` records; without it, all there are. `options` go to the connector, `config` to our
    own client (librdkafka's names): give the security settings to both.
    """

    def __init__(
        self,
        servers: str,
        *,
        topics: str | Sequence[str] = (),
        pattern: str | None = None,
        start: str = "earliest",
        max_records_per_epoch: int | None = None,
        accept_loss: bool = False,
        options: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.servers = servers
        self.topics = (topics,) if isinstance(topics, str) else tuple(topics)
        if bool(self.topics) == (pattern is not None):
            raise ConfigurationError("name topics or a pattern, and not both", hint="KafkaSource(..., topics='views')")
        if max_records_per_epoch is not None and max_records_per_epoch < 1:
            raise ConfigurationError(f"max_records_per_epoch is {max_records_per_epoch}", hint="give 1 or more")
        self.pattern = pattern
        self.start = start
        self.max_records_per_epoch = max_records_per_epoch
        self.accept_loss = accept_loss
        self.options = dict(options or {})
        self._config = dict(config or {})

    def load(self, spark: SparkSession, checkpoint: str | os.PathLike[str] | None = None) -> DataFrame:
        """The stream, with the connector's columns (`key`, `value`, `topic`, `partition`, `offset`, ...).

        `SourceDataLost` is raised when records that were not read yet are gone. Inside a job's pipeline its checkpoint
        is known; a query of your own has to name it.
        """
        root = local_path(checkpoint) if checkpoint is not None else current_checkpoint()
        if root is not None and not self.accept_loss:
            self._refuse_lost(root)
        wanted = {
            "kafka.bootstrap.servers": self.servers,
            # Aborted and open transactions are none of a reader's business.
            "kafka.isolation.level": "read_committed",
            "startingOffsets": self.start,
            "failOnDataLoss": str(not self.accept_loss).lower(),
            **({"subscribePattern": self.pattern} if self.pattern else {"subscribe": ",".join(self.topics)}),
            **({"maxOffsetsPerTrigger": str(self.max_records_per_epoch)} if self.max_records_per_epoch else {}),
            **self.options,
        }
        return spark.readStream.format("kafka").options(**wanted).load()

    def lost(self, checkpoint: str | os.PathLike[str]) -> list[OffsetRange]:
        """What a start from this checkpoint would have to read, and the brokers no longer have.

        Counted from the end of the last decided epoch: an undecided one is read again. Partitions that are gone, or end
        before that, are not among these: nobody knows what they had. `load` refuses them as well.
        """
        resumed, kept = self._resumed_and_kept(local_path(checkpoint))
        return sorted(
            OffsetRange(*partition, offset, kept[partition].first)
            for partition, offset in resumed.items()
            if partition in kept and kept[partition].first > offset
        )

    def _resumed_and_kept(
        self, checkpoint: Path
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, OffsetRange]]:
        """Where a start would go on, and what the brokers have of these partitions, if anything."""
        resumed = {
            partition: offset
            for partition, offset in positions(checkpoint, SparkLogs(checkpoint).decided()).items()
            if self._reads(partition[0])
        }
        return resumed, (Brokers(self.servers, self._config).kept(resumed) if resumed else {})

    def _reads(self, topic: str) -> bool:
        """A job may read from other brokers, too. A pattern that only Java knows is taken to match."""
        try:
            return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)
        except re.error:
            return True

    def _refuse_lost(self, checkpoint: Path) -> None:
        try:
            resumed, kept = self._resumed_and_kept(checkpoint)
        except DamagedFile:
            return  # The start repairs it, or says what to do. Spark itself stops where data is lost.
        lost = [_why_lost(partition, offset, kept.get(partition)) for partition, offset in sorted(resumed.items())]
        named = [why for why in lost if why]
        if named:
            more = f", and {len(named) - _SHOWN} more partitions" if len(named) > _SHOWN else ""
            raise SourceDataLost(
                f"the brokers no longer have {', '.join(named[:_SHOWN])}{more}",
                hint="restore them, or say accept_loss=True to go on with what is left",
            )


def _why_lost(where: TopicPartition, offset: int, kept: OffsetRange | None) -> str | None:
    """What a job that goes on at this offset would miss; None where everything is there."""
    topic, partition = where
    if kept is None:
        return f"{topic}-{partition}: all from {offset} on (the partition is gone)"
    if kept.first > offset:
        return str(OffsetRange(topic, partition, offset, kept.first))
    if kept.past < offset:
        return f"{topic}-{partition}: all from {offset} on (the topic was made anew, and ends at {kept.past})"
    return None


def offsets_for_monitoring(
    servers: str,
    group: str,
    checkpoint: str | os.PathLike[str] | None = None,
    *,
    config: Mapping[str, str] | None = None,
) -> Callable[[int], None]:
    """A hook for `Hooks(on_publish=…)`: the end of each settled epoch is committed to the consumer group `group`.

    Tools that watch lag see the job then, which with plain Spark they do not. **Never used for recovery**: a job goes
    on where its checkpoint says, whatever stands in the group. The group must have no members of its own. `servers` are
    the brokers, `config` settings of the client (librdkafka's names); `checkpoint` is that of the job whose hook it is.
    """
    given = local_path(checkpoint) if checkpoint is not None else None
    settings: dict[str, Any] = {**(config or {}), "bootstrap.servers": servers, "group.id": group}
    connected: list[Any] = []

    def consumer_of(kafka: ModuleType) -> Any:
        try:
            return kafka.Consumer({**settings, "enable.auto.commit": False})
        except (kafka.KafkaException, TypeError, ValueError) as error:
            raise not_taken(error, config or {}) from None

    def commit(epoch: int) -> None:
        kafka, root = driver("offsets_for_monitoring"), given or current_checkpoint()
        if root is None:
            raise ConfigurationError("the checkpoint is not known here", hint="name it: offsets_for_monitoring(..., P)")
        ends = [kafka.TopicPartition(*partition, offset) for partition, offset in positions(root, epoch).items()]
        if not ends:
            return
        # One client for all epochs, a new one after a failure.
        consumer = connected.pop() if connected else consumer_of(kafka)
        try:
            consumer.commit(offsets=ends, asynchronous=False)
        except BaseException:
            consumer.close()
            raise
        connected.append(consumer)

    return commit
