"""How many transactions wait in the targets, and how long: noted when someone looks there anyway, told when asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from onceward.contracts import TwoPhaseCommitSink
from onceward.epoch.ground import Ground
from onceward.epoch.reap import Orphan, transactions_of
from onceward.identity import SinkName

LOOK_EVERY_S = 30.0
"""How often the targets are asked while a delivery is being repeated."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The transactions of one sink that are begun and neither committed nor aborted, as its target showed them.

    `oldest_s` is the age of the oldest. A target that does not say when it was prepared (MySQL, files) is taken to have
    it since its epoch was planned. `looked_at` is None before the first look; what was begun since is not counted, what
    was settled since is not either.
    """

    sink: SinkName
    transactions: int
    oldest_s: float | None
    looked_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Look:
    at: datetime
    found: tuple[Orphan, ...]


class Doubts:
    """What one run knows of it. Written by the publisher, read from any thread: a look is replaced as a whole."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._looks: dict[SinkName, _Look] = {}
        self._last_s = ground.clock.monotonic()

    def note(self, listed: Iterable[Orphan]) -> None:
        """All that the targets hold of this job, listed just now."""
        found = list(listed)
        for name in self._names():
            self._looks[name] = _Look(self._ground.clock.now(), tuple(one for one in found if one.sink == name))
        self._last_s = self._ground.clock.monotonic()

    def look_again(self) -> None:
        """Called while a delivery fails: that is when transactions grow old, and no epoch is settled to look after.

        A target that does not answer, as is likely then, keeps the look that it has.
        """
        if self._ground.clock.monotonic() - self._last_s < LOOK_EVERY_S:
            return
        self._last_s = self._ground.clock.monotonic()
        for name in self._names():
            try:
                found = tuple(transactions_of(self._ground, name))
            except Exception:
                continue
            self._looks[name] = _Look(self._ground.clock.now(), found)

    def report(self) -> tuple[Waiting, ...]:
        """One for each sink with transactions of its own. Asks no target."""
        watermark = self._ground.watermark()
        return tuple(self._waiting(name, watermark) for name in self._names())

    def _waiting(self, name: SinkName, watermark: int) -> Waiting:
        look = self._looks.get(name)
        if look is None:
            return Waiting(name, 0, None, None)
        open_ones = [one for one in look.found if one.name.epoch > watermark]
        ages = [age for one in open_ones if (age := age_of(self._ground, one)) is not None]
        return Waiting(name, len(open_ones), max(ages, default=None), look.at)

    def _names(self) -> list[SinkName]:
        ways = (sink.name for sink in self._ground.ways() if isinstance(sink, TwoPhaseCommitSink))
        return list(dict.fromkeys(ways))


def age_of(ground: Ground, found: Orphan) -> float | None:
    """Seconds since the target has it or, where it does not say, since its epoch was planned; None if nobody knows."""
    since = since_of(found)
    if since is None:
        barrier = ground.decisions.barrier(found.name.epoch)
        since = barrier.timestamp if barrier is not None else None
    return None if since is None else max(0.0, (ground.clock.now() - since).total_seconds())


def since_of(found: Orphan) -> datetime | None:
    """When it was begun or pre-committed, as its target says."""
    text = found.handle.get("since")
    return datetime.fromisoformat(text) if isinstance(text, str) else None
