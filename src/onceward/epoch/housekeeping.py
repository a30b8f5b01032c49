"""Now and then, beside publishing: orphans, receipts and segments that were kept long enough, a look at the targets."""

from __future__ import annotations

from onceward.contracts import WriteAheadSink
from onceward.epoch.in_doubt import InDoubtTracker
from onceward.epoch.limits import PublishLimits
from onceward.epoch.reap import abort_all, orphans, pending_transactions
from onceward.epoch.rollback_detector import RollbackDetector
from onceward.epoch.run_context import RunContext


class Housekeeping:
    """Of one publisher."""

    def __init__(
        self, context: RunContext, limits: PublishLimits, in_doubt: InDoubtTracker, rollbacks: RollbackDetector
    ) -> None:
        self._context = context
        self._limits = limits
        self._in_doubt = in_doubt
        self._rollbacks = rollbacks

    def sweep(self) -> None:
        """Abort orphans of lost attempts, commit what a target that went back holds again, remove what a crash kept
        from being removed after an epoch was settled, and let the targets forget receipts nobody will ask for."""
        context = self._context
        listed = list(pending_transactions(context))
        found = orphans(context, listed)
        abort_all(context, found)
        self._rollbacks.after_listing(listed)
        self._rollbacks.now_and_then()
        self._in_doubt.note(one for one in listed if one not in found)
        watermark = context.watermark()
        for epoch in context.register.epochs():
            if epoch <= watermark:
                context.register.forget(epoch)
        self._forget_kept()
        if watermark - self._limits.keep_receipts > 0:
            # A target that went back must not be told that what it lacks may be forgotten.
            self._rollbacks.look_back()
            self._forget_receipts(watermark - self._limits.keep_receipts)

    def _forget_kept(self) -> None:
        """Let go of segments that were kept long enough; the oldest first, so that few are looked at."""
        context, kept = self._context, sorted(self._context.kept.epochs())
        retention = self._limits.keep_published
        for index, epoch in enumerate(kept):
            marker, newer = context.kept.legible(epoch), len(kept) - index - 1
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
