"""When a run looks back (`look_back`): after a failure, and now and then. What a target holds again is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onceward.contracts import TwoPhaseCommitSink
from onceward.epoch.deliver import Outage, SinkDelivery
from onceward.epoch.limits import PublishLimits
from onceward.epoch.look_back import came_back, newest_markers, survivors
from onceward.epoch.reap import PendingTransaction
from onceward.epoch.run_context import RunContext, log
from onceward.errors import OncewardError
from onceward.journal import Manifest


class _MoreSurvivors(Exception):
    """While survivors were committed, the target went back once more."""

    def __init__(self, listed: Sequence[PendingTransaction]) -> None:
        super().__init__()
        self.listed = listed


class RollbackDetector:
    """Of one run. `gave_up` and `on_failure` are as for `SinkDelivery`."""

    def __init__(
        self,
        context: RunContext,
        limits: PublishLimits | None = None,
        *,
        gave_up: Callable[[], bool] = lambda: False,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._limits = limits or PublishLimits()
        self._delivery = SinkDelivery(
            context, self._limits, gave_up=gave_up, on_failure=on_failure, before_retry=self._look_before_retry
        )
        self._to_commit: frozenset[str] = frozenset()
        self._looked_back_s = context.clock.monotonic()

    @property
    def outage(self) -> Outage | None:
        """The commit of a survivor that is being repeated, if one is."""
        return self._delivery.outage

    def after_failure(self) -> None:
        """A target that failed may have been exchanged for an older state of itself: it is asked before anything more
        is published, or newer epochs would come before those that it lacks."""
        self.commit_survivors(self._look_if_possible())

    def now_and_then(self) -> None:
        """While running, once a minute or so, after an epoch. A start looks by itself."""
        if self._context.clock.monotonic() - self._looked_back_s >= self._limits.look_back_every_s:
            self.look_back()

    def look_back(self) -> None:
        """Has the target still what was published? What it holds prepared of that is committed."""
        self.commit_survivors(self._look())

    def after_listing(self, listed: Sequence[PendingTransaction]) -> None:
        """A target that holds transactions of settled epochs went back: it is asked what else it lacks before they are
        committed, or they would come over a gap."""
        if survivors(self._context, listed):
            self._look()
            self.commit_survivors(listed)

    def commit_survivors(self, listed: Sequence[PendingTransaction]) -> None:
        """A target that went back holds transactions of settled epochs again: they are the only copy of their rows."""
        while True:
            try:
                return self._commit(survivors(self._context, listed))
            except _MoreSurvivors as more:
                listed = more.listed

    def _commit(self, found: Sequence[tuple[PendingTransaction, Manifest]]) -> None:
        for place, (one, manifest) in enumerate(found):
            self._to_commit = _names(found[place:])
            entry = manifest.sinks[one.sink]
            slots = tuple(slot for slot in entry.slots if slot.transaction == str(one.name))
            sink = self._context.variant_for(one.sink, slots[0].handle)
            if isinstance(sink, TwoPhaseCommitSink):
                log.warning(
                    "sink %r holds transaction %s of epoch %d, which was settled, again: it is committed",
                    one.sink,
                    one.name,
                    manifest.epoch,
                    extra={"epoch": manifest.epoch, "sink": one.sink, "transaction": str(one.name)},
                )
                self._delivery.deliver(sink, replace(entry, slots=slots), manifest)

    def _look_before_retry(self) -> None:
        """A commit failed: the target may have gone back further, and then more than what is left of the list is to be
        committed, the oldest first."""
        listed = self._look_if_possible()
        if _names(survivors(self._context, listed)) - self._to_commit:
            raise _MoreSurvivors(listed)

    def _look(self) -> list[PendingTransaction]:
        context = self._context
        self._looked_back_s = context.clock.monotonic()
        markers = newest_markers(context)
        receipts = [receipt for sink in context.sinks for receipt in sink.receipts(context.job)]
        return came_back(context, markers, receipts, keep_receipts=self._limits.keep_receipts)

    def _look_if_possible(self) -> list[PendingTransaction]:
        """While the target does not answer, nobody knows."""
        try:
            return self._look()
        except OncewardError:
            raise
        except Exception as error:
            log.debug("what the targets have cannot be looked at: %s: %s", type(error).__name__, error)
            return []


def _names(found: Sequence[tuple[PendingTransaction, Manifest]]) -> frozenset[str]:
    return frozenset(str(one.name) for one, _ in found)
