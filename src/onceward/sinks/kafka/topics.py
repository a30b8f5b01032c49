"""What is known of the topics that an epoch goes to: looked at before each epoch, and no row is judged by less."""

from __future__ import annotations

from collections.abc import Iterable

from onceward.sinks.kafka.cluster import SURELY_GONE_S, Cluster
from onceward.sinks.kafka.facts import TargetFacts, gone, receipts_gone
from onceward.sinks.kafka.limits import Topic, is_name


class Topics:
    """As they were at the last look. `always` is the one topic of all rows, if there is one."""

    def __init__(self, cluster: Cluster, facts: TargetFacts, *, always: str | None) -> None:
        self._cluster, self._facts, self._always = cluster, facts, always
        self._seen: dict[str, Topic | None] = {}

    def look(self) -> None:
        """At the topic of the receipts, and at those that the last epoch used, all in one question.

        `TargetChanged` when one is gone, or is not the one it was.
        """
        receipts = self._facts.receipts_topic
        used = [name for name, topic in self._seen.items() if topic is not None and name != receipts]
        self._seen.clear()
        self.know([receipts, *([] if self._always is None else [self._always]), *used])
        if self._seen[receipts] is None:
            raise receipts_gone(receipts)
        if self._always is not None and self._seen[self._always] is None:
            raise gone(self._always)

    def know(self, names: Iterable[str | None]) -> None:
        """Look at those of the topics that were not looked at in this epoch, all in one question."""
        wanted = [name for name in dict.fromkeys(names) if name is not None and name not in self._seen]
        asked = [name for name in wanted if is_name(name)]
        found = self._cluster.describe(asked)
        missing = [name for name in asked if name not in found and self._facts.knows(name)]
        found |= self._cluster.describe_patiently(missing, SURELY_GONE_S)
        self._facts.confirm(asked, found)
        for name in wanted:
            self._seen[name] = found[name].topic if name in found else None

    def get(self, name: str) -> Topic | None:
        """The topic, or None when there is none."""
        if name == self._facts.receipts_topic:
            return Topic(name, 1, closed=f"topic {name!r} is that of the receipts")
        self.know([name])
        return self._seen[name]
