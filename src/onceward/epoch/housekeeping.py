"""Now and then, beside publishing: orphans, transactions that came back, targets that went back, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onceward.contracts import AnySink, TwoPhaseCommitSink, WriteAheadSink
from onceward.epoch.in_doubt import InDoubtTracker
from onceward.epoch.limits import PublishLimits
from onceward.epoch.look_back import missing, newest_markers, rolled_back_target, survivors
from onceward.epoch.reap import PendingTransaction, abort_all, orphans, pending_transactions
from onceward.epoch.run_context import RunContext, log
from onceward.errors import OncewardError
from onceward.journal import Manifest, SinkEntry
from onceward.wal import WAL

Deliver = Callable[[AnySink, SinkEntry, Manifest], None]


class Housekeeping:
    """Of one publisher, whose `deliver` it uses."""

    def __init__(self, context: RunContext, limits: PublishLimits, in_doubt: InDoubtTracker, deliver: Deliver) -> None:
        self._context = context
        self._limits = limits
        self._in_doubt = in_doubt
        self._deliver = deliver
        self._looked_back_s = context.clock.monotonic()
        self._is_looking_back = False

    def sweep(self) -> None:
        """Abort orphans of lost attempts, commit what a target that went back holds again, remove what a crash kept
        from being removed after an epoch was settled, and let the targets forget receipts nobody will ask for."""
        context = self._context
        listed = list(pending_transactions(context))
        found = orphans(context, listed)
        abort_all(context, found)
        self.commit_survivors(listed)
        self.look_back_now_and_then()
        self._in_doubt.note(one for one in listed if one not in found)
        watermark = context.watermark()
        for epoch in context.register.epochs():
            if epoch <= watermark:
                context.register.forget(epoch)
        self._forget_kept()
        if watermark - self._limits.keep_receipts > 0:
            # A target that went back must not be told that what it lacks may be forgotten.
            self._look_back()
            self._forget_receipts(watermark - self._limits.keep_receipts)

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
                self._deliver(sink, replace(entry, slots=slots), manifest)

    def look_back_after_failure(self) -> None:
        """A target that failed may have been exchanged for an older state of itself: it is asked before anything more
        is published, or newer epochs would come before those that it lacks. While it does not answer, nobody knows."""
        if self._is_looking_back or not self._limits.look_back_after_failure:
            return
        try:
            self._look_back()
        except OncewardError:
            raise
        except Exception as error:
            log.debug("what the targets have cannot be looked at: %s: %s", type(error).__name__, error)

    def look_back_now_and_then(self) -> None:
        """While running, once a minute or so, after an epoch. A start looks by itself."""
        if self._context.clock.monotonic() - self._looked_back_s >= self._limits.look_back_every_s:
            self._look_back()

    def _look_back(self) -> None:
        """Has the target still what was published? What it holds prepared of that is committed."""
        context, keep = self._context, self._limits.keep_receipts
        self._looked_back_s = context.clock.monotonic()
        markers = newest_markers(context)
        receipts = [receipt for sink in context.sinks for receipt in sink.receipts(context.job)]
        if not missing(context, markers, receipts, keep_receipts=keep):
            return
        held = [one for one in pending_transactions(context) if one.sink != WAL]
        if lost := missing(context, markers, receipts, held, keep_receipts=keep):
            raise rolled_back_target(lost, context.kept.epochs())
        self._is_looking_back = True
        try:
            self.commit_survivors(held)
        finally:
            self._is_looking_back = False

    def _forget_kept(self) -> None:
        """Let go of segments that were kept long enough; the oldest first, so that few are looked at."""
        context, kept = self._context, sorted(self._context.kept.epochs())
        retention = self._limits.keep_published
        for place, epoch in enumerate(kept):
            marker, newer = context.kept.legible(epoch), len(kept) - place - 1
            if marker is not None and not retention.is_over(marker, newer=newer, now=context.clock.now()):
                return
            context.kept.forget(epoch)
            context.segments.remove_epoch(epoch)

    def _forget_receipts(self, below: int) -> None:
        for sink in self._context.sinks:
            sink.forget(self._context.job, below)
            if isinstance(sink, WriteAheadSink) and sink.committer is not None:
                sink.committer.open(self._context.job, sink.name)
                sink.committer.forget(below)
