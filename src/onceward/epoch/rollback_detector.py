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


class RollbackDetector:
    """Of one run. `gave_up` is as for `SinkDelivery`."""

    def __init__(
        self, context: RunContext, limits: PublishLimits | None = None, *, gave_up: Callable[[], bool] = lambda: False
    ) -> None:
        self._context = context
        self._limits = limits or PublishLimits()
        # It does not look back itself: while survivors are committed, everybody knows that the target went back.
        self._delivery = SinkDelivery(context, self._limits, gave_up=gave_up)
        self._looked_back_s = context.clock.monotonic()

    @property
    def outage(self) -> Outage | None:
        """The commit of a survivor that is being repeated, if one is."""
        return self._delivery.outage

    def after_failure(self) -> None:
        """A target that failed may have been exchanged for an older state of itself: it is asked before anything more
        is published, or newer epochs would come before those that it lacks. While it does not answer, nobody knows."""
        try:
            self.look_back()
        except OncewardError:
            raise
        except Exception as error:
            log.debug("what the targets have cannot be looked at: %s: %s", type(error).__name__, error)

    def now_and_then(self) -> None:
        """While running, once a minute or so, after an epoch. A start looks by itself."""
        if self._context.clock.monotonic() - self._looked_back_s >= self._limits.look_back_every_s:
            self.look_back()

    def look_back(self) -> None:
        """Has the target still what was published? What it holds prepared of that is committed."""
        context = self._context
        self._looked_back_s = context.clock.monotonic()
        markers = newest_markers(context)
        receipts = [receipt for sink in context.sinks for receipt in sink.receipts(context.job)]
        self.commit_survivors(came_back(context, markers, receipts, keep_receipts=self._limits.keep_receipts))

    def commit_survivors(self, listed: Sequence[PendingTransaction]) -> None:
        """A target that went back holds transactions of settled epochs again: they are the only copy of their rows."""
        for found, manifest in survivors(self._context, listed):
            entry = manifest.sinks[found.sink]
            slots = tuple(slot for slot in entry.slots if slot.transaction == str(found.name))
            sink = self._context.variant_for(found.sink, slots[0].handle)
            if isinstance(sink, TwoPhaseCommitSink):
                log.warning(
                    "sink %r holds transaction %s of epoch %d, which was settled, again: it is committed",
                    found.sink,
                    found.name,
                    manifest.epoch,
                    extra={"epoch": manifest.epoch, "sink": found.sink, "transaction": str(found.name)},
                )
                self._delivery.deliver(sink, replace(entry, slots=slots), manifest)
