"""How many transactions wait in the targets, and how long: noted when someone looks there anyway, told when asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from onceward.contracts import TwoPhaseCommitSink
from onceward.epoch.reap import PendingTransaction, transactions_of
from onceward.epoch.run_context import RunContext
from onceward.identity import SinkName

LOOK_EVERY_S = 30.0
"""How often the targets are asked while a delivery is being repeated."""


@dataclass(frozen=True, slots=True)
class InDoubtSummary:
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
    found: tuple[PendingTransaction, ...]


class InDoubtTracker:
    """What one run knows of it. Written by the publisher, read from any thread: a look is replaced as a whole."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._looks: dict[SinkName, _Look] = {}
        self._last_s = context.clock.monotonic()

    def note(self, listed: Iterable[PendingTransaction]) -> None:
        """All that the targets hold of this job, listed just now."""
        found = list(listed)
        for name in self._names():
            self._looks[name] = _Look(self._context.clock.now(), tuple(one for one in found if one.sink == name))
        self._last_s = self._context.clock.monotonic()

    def look_again(self) -> None:
        """Called while a delivery fails: that is when transactions grow old, and no epoch is settled to look after.

        A target that does not answer, as is likely then, keeps the look that it has.
        """
        if self._context.clock.monotonic() - self._last_s < LOOK_EVERY_S:
            return
        self._last_s = self._context.clock.monotonic()
        for name in self._names():
            try:
                found = tuple(transactions_of(self._context, name))
            except Exception:
                continue
            self._looks[name] = _Look(self._context.clock.now(), found)

    def report(self) -> tuple[InDoubtSummary, ...]:
        """One for each sink with transactions of its own. Asks no target."""
        watermark = self._context.watermark()
        return tuple(self._waiting(name, watermark) for name in self._names())

    def _waiting(self, name: SinkName, watermark: int) -> InDoubtSummary:
        look = self._looks.get(name)
        if look is None:
            return InDoubtSummary(name, 0, None, None)
        open_ones = [one for one in look.found if one.name.epoch > watermark]
        ages = [age for one in open_ones if (age := age_of(self._context, one)) is not None]
        return InDoubtSummary(name, len(open_ones), max(ages, default=None), look.at)

    def _names(self) -> list[SinkName]:
        variants = (sink.name for sink in self._context.variants() if isinstance(sink, TwoPhaseCommitSink))
        return list(dict.fromkeys(variants))


def age_of(context: RunContext, found: PendingTransaction) -> float | None:
    """Seconds since the target has it or, where it does not say, since its epoch was planned; None if nobody knows."""
    since = since_of(found)
    if since is None:
        barrier = context.decisions.barrier(found.name.epoch)
        since = barrier.timestamp if barrier is not None else None
    return None if since is None else max(0.0, (context.clock.now() - since).total_seconds())


def since_of(found: PendingTransaction) -> datetime | None:
    """When it was begun or pre-committed, as its target says."""
    text = found.handle.get("since")
    return datetime.fromisoformat(text) if isinstance(text, str) else None
