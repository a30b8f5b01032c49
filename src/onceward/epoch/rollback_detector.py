"""When a run looks back (`look_back`): after a failure, and now and then. What a target holds again is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceward.contracts import AnySink
from onceward.epoch.deliver import DeliveryEnded, Outage, SinkDelivery
from onceward.epoch.limits import PublishLimits
from onceward.epoch.look_back import came_back, delivery_of, newest_markers, promised_receipts, survivors, torn
from onceward.epoch.reap import PendingTransaction, pending_transactions
from onceward.epoch.run_context import RunContext, log
from onceward.errors import OncewardError, OutputLost, PublishFailed
from onceward.journal import Manifest, SinkEntry


class _MoreSurvivors(DeliveryEnded):
    """While survivors were committed, the target went back once more."""

    def __init__(self, listed: Sequence[PendingTransaction]) -> None:
        super().__init__()
        self.listed = listed


class RollbackDetector:
    """Of one run. `is_cancelled` and `on_failure` are as for `SinkDelivery`."""

    def __init__(
        self,
        context: RunContext,
        limits: PublishLimits | None = None,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._limits = limits or PublishLimits()
        self._delivery = SinkDelivery(
            context,
            self._limits,
            is_cancelled=is_cancelled,
            on_failure=on_failure,
            before_retry=self._look_before_retry,
        )
        self._to_commit: Sequence[PendingTransaction] = ()
        self._looked_back_s = context.clock.monotonic()
        self.failures = 0
        """How many deliveries have failed."""
        self.owes_look = False
        """A look that was due got no answer: nothing is to be published before one has."""

    @property
    def outage(self) -> Outage | None:
        """The commit of a survivor that is being repeated, if one is."""
        return self._delivery.outage

    def after_failure(self, has_waited: bool = False) -> None:
        """A target that failed may have been exchanged for an older state of itself: it is asked before anything more
        is published, or newer epochs would come before those that it lacks. Without an answer nothing is."""
        self.failures += 1
        self.commit_survivors(self._look())

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
        if survivors(self._context, listed) or torn(self._context, listed):
            # What it holds by then, if that is more: it may have gone back further in between.
            self.commit_survivors(self._look(lists=True))

    def commit_survivors(self, listed: Sequence[PendingTransaction]) -> None:
        """A target that went back holds transactions of settled epochs again: they are the only copy of their rows.

        `PublishFailed` when it goes back again and again until the deadline, as one does that crashes at a commit.
        """
        clock = self._context.clock
        began = clock.monotonic()
        while True:
            found = survivors(self._context, listed)
            try:
                return self._commit(found)
            except _MoreSurvivors as more:
                listed, waited = more.listed, clock.monotonic() - began
                if waited > self._limits.deadline_s:
                    raise PublishFailed(
                        f"the target went back again at each failure, for {waited:.0f} s, while what it holds prepared "
                        "of settled epochs was committed",
                        epoch=found[0][1].epoch,
                        sink=found[0][0].sink,
                        hint="what it holds stays prepared and is committed first at the next start; check the target",
                    ) from None

    def _commit(self, found: Sequence[tuple[PendingTransaction, Manifest]]) -> None:
        for index, (one, manifest) in enumerate(found):
            self._to_commit = [one for one, _ in found[index:]]
            if (delivery := delivery_of(self._context, [one], manifest)) is not None:
                sink, entry = delivery
                log.warning(
                    "sink %r holds transaction %s of epoch %d, which was settled, again: it is committed",
                    one.sink,
                    one.name,
                    manifest.epoch,
                    extra={"epoch": manifest.epoch, "sink": one.sink, "transaction": str(one.name)},
                )
                self._deliver(sink, entry, manifest)

    def _deliver(self, sink: AnySink, entry: SinkEntry, manifest: Manifest) -> None:
        try:
            self._delivery.deliver(sink, entry, manifest)
        except OutputLost as lost:
            self.explain(lost)
            raise

    def explain(self, lost: OutputLost) -> None:
        """Output is gone, and no call has failed: if the target went back, `TargetRolledBack` says what else it lacks,
        and how to go on from there."""
        try:
            self._look()
        except OncewardError:
            raise
        except Exception as error:
            log.warning("what else the targets lack cannot be looked at: %s: %s", type(error).__name__, error)
            raise lost from error

    def _look_before_retry(self, has_waited: bool) -> None:
        """A commit failed: the target may have gone back further, and then more than what is left of the list is to be
        committed, the oldest first. A target that only asks to wait may not list just now what it is waited for; if it
        has gone meanwhile, its commit says so."""
        left = self._to_commit
        listed = self._look(besides=left[:1] if has_waited else ())
        if {one.name for one in listed} - {one.name for one in left}:
            raise _MoreSurvivors(listed)

    def _look(self, *, lists: bool = False, besides: Sequence[PendingTransaction] = ()) -> list[PendingTransaction]:
        context, keep = self._context, self._limits.keep_receipts
        markers = newest_markers(context)
        receipts = promised_receipts(context, markers)
        listed = list(pending_transactions(context)) if lists else None
        found = came_back(context, markers, receipts, keep_receipts=keep, listed=listed, besides=besides)
        self._looked_back_s, self.owes_look = context.clock.monotonic(), False
        return found
