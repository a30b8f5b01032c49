"""Where each epoch begins and ends in Kafka, as Spark's offset log has it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onceward.spark.checkpoint import SparkLogs

TopicPartition = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one partition from `first` up to, and without, `past`."""

    topic: str
    partition: int
    first: int
    past: int

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.topic}-{self.partition}: {self.first} to {self.past - 1} ({self.past - self.first} records)"


def positions(checkpoint: Path, epoch: int) -> dict[TopicPartition, int]:
    """Where the epoch ends in every partition of every Kafka source; nothing where Spark has purged its entry.

    One that two sources read is left out: they may be different brokers, or at different places.
    """
    found = [pair for line in SparkLogs(checkpoint).sources(epoch) for pair in _kafka_offsets(line)]
    times = Counter(partition for partition, _ in found)
    return {partition: offset for partition, offset in found if times[partition] == 1}


def offset_ranges(checkpoint: Path, epoch: int) -> list[OffsetRange]:
    """What the epoch reads. A partition that the epoch before did not know yet has no known beginning: left out."""
    before, end = positions(checkpoint, epoch - 1) if epoch else {}, positions(checkpoint, epoch)
    return sorted(
        OffsetRange(*partition, before[partition], past) for partition, past in end.items() if partition in before
    )


def shown(offsets: Mapping[TopicPartition, int]) -> str:
    """For tables: `views (0, 60000) (1, 55000)`."""
    topics: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, []).append((partition, offset))
    return "; ".join(f"{topic} " + " ".join(f"({p}, {o})" for p, o in found) for topic, found in topics.items())


def _kafka_offsets(line: str) -> Iterator[tuple[TopicPartition, int]]:
    """Those of one source, if it is Kafka: `{"topic": {"0": 12, "1": 7}}`. Other sources write other things."""
    try:
        found = json.loads(line)
    except ValueError:
        return
    if not isinstance(found, dict):
        return
    for topic, partitions in found.items():
        if isinstance(partitions, dict) and all(p.isdigit() and isinstance(o, int) for p, o in partitions.items()):
            yield from (((topic, int(partition)), offset) for partition, offset in partitions.items())
