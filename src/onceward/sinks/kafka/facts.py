"""What the sink relies on in the brokers: which topics they are, and how those keep what they are given.

Partitions and limits are no facts: they may change at any time, and are looked at before each epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from onceward.contracts import refuse_change
from onceward.errors import TargetChanged
from onceward.sinks.kafka.cluster import Described

_OF_ROWS = ("cleanup.policy",)
_OF_TIMES = ("message.timestamp.type",)
_OF_RECEIPTS = ("cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable")
START_AGAIN = (
    "start again: the start examines the brokers as they are now, and goes on or says what to fix; nothing is lost, "
    "what is staged stays staged"
)


def facts_of(described: Described, *, is_receipts: bool, has_times: bool) -> dict[str, str]:
    """Of one topic; a setting that we may not see is none."""
    name = described.topic.name
    settings = _OF_RECEIPTS if is_receipts else (*_OF_ROWS, *(_OF_TIMES if has_times else ()))
    known = {f"topic {name}: {one}": described.config[one] for one in settings if one in described.config}
    return {f"topic {name}: id": described.id, **known}


@dataclass
class TargetFacts:
    """The facts since the start, by topic. A topic that was not met before is taken as it is."""

    receipts_topic: str
    has_times: bool
    _facts: dict[str, dict[str, str]] = field(default_factory=dict)

    def facts(self, topics: Iterable[str]) -> dict[str, str]:
        """Of these topics, as far as they were met."""
        return {fact: text for topic in topics for fact, text in self._facts.get(topic, {}).items()}

    def take(self, names: Iterable[str], found: Mapping[str, Described]) -> None:
        """At a start: from here on those of these topics that are there stay as they are."""
        self._facts.clear()
        self.confirm(names, found)

    def confirm(self, names: Iterable[str], found: Mapping[str, Described]) -> None:
        """`TargetChanged` when one of these topics is gone, another, or kept otherwise than before."""
        for name in names:
            before = self._facts.get(name)
            if name not in found:
                if before is not None:
                    raise receipts_gone(name) if name == self.receipts_topic else gone(name)
                continue
            now = facts_of(found[name], is_receipts=name == self.receipts_topic, has_times=self.has_times)
            refuse_change(self._facts.setdefault(name, now), now)

    def knows(self, name: str) -> bool:
        """Whether the topic was there before."""
        return name in self._facts


def gone(name: str) -> TargetChanged:
    """For a topic that the sink cannot do without."""
    return TargetChanged(f"topic {name!r} is gone", hint=f"make it anew if it is to be, then {START_AGAIN}")


def receipts_gone(name: str) -> TargetChanged:
    """It is made at a start and never later: only a start sees that receipts of unsettled epochs were in it."""
    return TargetChanged(
        f"topic {name!r}, in which the receipts stand, is gone: without it nobody can say which epochs are in",
        hint=START_AGAIN,
    )


def receipts_do_not_fit(name: str, why: str) -> TargetChanged:
    """A receipt is no row, and cannot be taken out."""
    return TargetChanged(
        f"topic {name!r} does not take a receipt: {why}",
        hint=f"kafka-configs --alter --topic {name} --add-config max.message.bytes=1048588, then {START_AGAIN}",
    )
