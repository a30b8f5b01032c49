"""*Publish* and *settle*: make decided epochs visible, in order, each until every slot has its receipt.

Works upwards from the settled watermark, never past an epoch it has not published. Every step may be repeated after a
crash: commits answer "already", write-ahead sinks find their receipt, the marker is write-once, removals find nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from onceward.contracts import AnySink, WriteAheadSink
from onceward.contracts.events import Decided, Settled
from onceward.epoch.decided import EpochSurvey, ReportLost, Settle, decided_step, survey_epoch
from onceward.epoch.deliver import Outage, SinkDelivery
from onceward.epoch.exits import contradiction, exits, refuse_moved, with_exits
from onceward.epoch.housekeeping import Housekeeping
from onceward.epoch.in_doubt import InDoubtTracker
from onceward.epoch.limits import PublishLimits
from onceward.epoch.rollback_detector import RollbackDetector
from onceward.epoch.run_context import RunContext, log, notify
from onceward.epoch.takeover import BETWEEN_LOOKS_S, LOOKS, settle_fates
from onceward.errors import (
    DamagedFile,
    EpochLost,
    Fenced,
    OncewardError,
    OutputLost,
    PublishFailed,
    SinkMissing,
)
from onceward.identity import Fingerprint, SinkName
from onceward.journal import Manifest, Marker, SinkTotal
from onceward.logs import about
from onceward.wal import is_segment


class Publisher:
    """Publishes for one run. `is_cancelled` is asked before each repetition: True ends the waiting at once."""

    def __init__(
        self,
        context: RunContext,
        limits: PublishLimits | None = None,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = context
        self._limits = limits or PublishLimits()
        self.in_doubt = InDoubtTracker(context)
        self._rollbacks = RollbackDetector(
            context, self._limits, is_cancelled=is_cancelled, on_failure=self.in_doubt.look_again
        )
        self._housekeeping = Housekeeping(context, self._limits, self.in_doubt, self._rollbacks)
        self._delivery = SinkDelivery(
            context,
            self._limits,
            is_cancelled=is_cancelled,
            on_failure=self.in_doubt.look_again,
            before_retry=self._rollbacks.after_failure,
            owes_look=lambda: self._rollbacks.owes_look,
        )

    @property
    def outage(self) -> Outage | None:
        """The delivery that is being repeated, if one is."""
        return self._rollbacks.outage or self._delivery.outage

    def publish_decided(self) -> int:
        """Publish and settle every decided epoch; the watermark afterwards."""
        decided = self._context.decisions.decided()
        watermark = self._context.watermark()
        for epoch in range(watermark + 1, decided + 1):
            self.publish_epoch(epoch)
            watermark = epoch
        return watermark

    def publish_epoch(self, epoch: int) -> None:
        """Publish and settle one decided epoch; nothing, if another driver has done it."""
        with about(epoch=epoch):
            self._publish_epoch(epoch)

    def _publish_epoch(self, epoch: int) -> None:
        notify(self._context.hooks.on_decision, epoch)
        self._context.emit(Decided(epoch, self._context.clock.now()))
        found = self._survey(epoch)
        if self._context.watermark() >= epoch:
            # Another driver settled it since we last looked. That frees the names of its files, so the manifest just
            # read may be that of a driver which woke up too late: nothing of it may be published.
            return
        if found.manifest is not None:
            self._context.decisions.sync_decision(epoch)
        self._end(found, self._why_no_manifest)

    def publish_forgotten(self, epoch: int) -> None:
        """The same for one whose decision is no longer in the engine's log: its receipts prove that it was made."""
        with about(epoch=epoch):
            self._publish_forgotten(epoch)

    def _publish_forgotten(self, epoch: int) -> None:
        found = survey_epoch(self._context, epoch, partial(settle_fates, self._context, epoch))
        if self._context.watermark() < epoch:
            self._end(found, contradiction)

    def _survey(self, epoch: int) -> EpochSurvey:
        """A manifest that is missing is looked for again: its driver may be about to write it."""
        for _ in range(LOOKS):
            found = survey_epoch(self._context, epoch, partial(settle_fates, self._context, epoch))
            is_known = found.manifest is not None or found.damaged is not None or found.engine_made
            if is_known or self._context.watermark() >= epoch:
                break
            self._context.clock.pause(BETWEEN_LOOKS_S)
        return found

    def _end(self, found: EpochSurvey, why_lost: Callable[[int], OncewardError]) -> None:
        """Do what the table says."""
        context = self._context
        sinks = [sink.name for sink in context.sinks]
        step = decided_step(found, context.resolved, context.job.generation, sinks)
        if isinstance(step, ReportLost):
            raise (step.error or why_lost(found.epoch)) from found.damaged
        if found.manifest is not None:
            self.publish_manifest(found.manifest)
        elif isinstance(step, Settle):
            log.warning("epoch %d: %s", found.epoch, step.why)
            self._mark(found.epoch, found.fingerprint or Fingerprint(""), {})

    def publish_manifest(self, manifest: Manifest) -> None:
        """Publish what a manifest names, settle it, and tell. What a person took out of it is not published."""
        named, manifest = len(manifest.transactions()), self._context.resolved.without(manifest)
        if len(manifest.transactions()) < named:
            log.warning("epoch %d is published without what was resolved by hand", manifest.epoch)
        if manifest.takeover:
            # Something failed when it was staged before, and who met that may not have asked the targets.
            self._rollbacks.owes_look = True
        try:
            self._deliver_all(manifest)
        except (DamagedFile, OutputLost) as error:
            # What is missing may have been removed by another driver, who published it and settled the epoch.
            if self._context.watermark() >= manifest.epoch:
                return
            if isinstance(error, DamagedFile):
                raise with_exits(error, manifest.epoch) from None
            self._rollbacks.explain(error)
            raise error from None
        self._settle(manifest)
        notify(self._context.hooks.on_publish, manifest.epoch)

    def _deliver_all(self, manifest: Manifest) -> None:
        """To one sink after the other. Behind a failure one of the targets may have gone back, also to before what it
        already had of this very epoch: who came before the failure is asked again, before the staged rows are removed.
        """
        clock, rollbacks = self._context.clock, self._rollbacks
        waiting = [name for name, entry in manifest.sinks.items() if entry.slots]
        taken: set[SinkName] = set()
        to_ask_again: list[SinkName] = []
        asked_again_s: float | None = None
        while waiting:
            name, failures = waiting.pop(0), rollbacks.failures
            sink, is_again = self._sink_for(name, manifest), name in taken
            if is_again and asked_again_s is None:
                asked_again_s = clock.monotonic()
            self._delivery.deliver(sink, manifest.sinks[name], manifest)
            if rollbacks.failures > failures:
                if asked_again_s is not None and clock.monotonic() - asked_again_s > self._limits.deadline_s:
                    raise PublishFailed(
                        "the targets took the epoch, but asked again one after the other failed until the deadline",
                        epoch=manifest.epoch,
                        sink=name,
                        hint="the epoch stays staged and is published first at the next start; check the targets",
                    )
                waiting, to_ask_again = [*waiting, *to_ask_again], []
            taken.add(name)
            if _can_be_asked_again(sink):
                to_ask_again.append(name)

    def _sink_for(self, name: SinkName, manifest: Manifest) -> AnySink:
        """The variant by which the epoch was staged for this sink."""
        entry, epoch = manifest.sinks[name], manifest.epoch
        sink = self._context.variant_for(name, entry.slots[0].handle)
        if sink is None and self._context.sink(name) is not None:
            raise SinkMissing(
                f"{entry.rows} rows wait for sink {name!r} as it was before: {entry.mechanism}",
                epoch=epoch,
                sink=name,
                hint="start once with the former kind of sink so that they can be published, then change it; or "
                f"give them up: `onceward resolve accept-loss FILE {epoch} --sink {name!r}`",
            )
        if sink is None:
            raise SinkMissing(
                f"{entry.rows} rows wait for a sink that the job no longer has",
                epoch=epoch,
                sink=name,
                hint=f"start once with a sink named {name!r} so that it can be published, then remove it; or "
                f"give them up: `onceward resolve accept-loss FILE {epoch} --sink {name!r}`",
            )
        # A driver that was paused while another one moved the receipts may find that one's manifest here.
        refuse_moved(entry, self._context.receipts_at.get(name, ""), epoch=epoch, sink=name)
        return sink

    def _why_no_manifest(self, epoch: int) -> OncewardError:
        """Void manifests tell that another driver took the epoch over: it may be alive and about to finish it."""
        void = []
        for takeover in self._context.register.files(epoch).manifests:
            with contextlib.suppress(DamagedFile):
                void.append(self._context.register.manifest(epoch, takeover))
        if any(manifest is not None and manifest.run == self._context.run for manifest in void):
            return Fenced(
                "another driver took over an epoch that this one had staged",
                epoch=epoch,
                hint="let the other one finish it; this one must not publish any more",
            )
        alive = "if no other driver runs on this checkpoint (one was taking the epoch over), " if void else ""
        return EpochLost(
            "Spark decided this epoch, but no valid manifest says what was staged for it; it was not published",
            epoch=epoch,
            hint=f"{alive}run `onceward rewind CHECKPOINT {epoch}` to compute it again; {exits(epoch)}",
        )

    def _settle(self, manifest: Manifest) -> None:
        """Record it, then remove what it makes superfluous; the order lets a crash only leave rubbish, never a gap."""
        totals = {}
        for name, entry in manifest.sinks.items():
            sink = self._context.sink(name)
            # The epoch's own, which may be another than the job asks for now.
            asked = manifest.guarantee or self._context.guarantee.value
            guarantee = asked if manifest.immediate or sink is None else sink.guarantee.value
            totals[name] = SinkTotal(entry.mechanism, guarantee, len(entry.slots), entry.rows)
        self._mark(manifest.epoch, manifest.fingerprint, totals, manifest)

    def _mark(
        self, epoch: int, fingerprint: Fingerprint, totals: dict[SinkName, SinkTotal], manifest: Manifest | None = None
    ) -> None:
        context = self._context
        decision = context.decisions.decision(epoch) or ""
        marker = Marker(epoch, fingerprint, context.clock.now(), totals, decision, manifest)
        in_log = manifest is not None and any(is_segment(s.handle) for e in manifest.sinks.values() for s in e.slots)
        is_kept = in_log and self._limits.keep_published.keeps_any
        if is_kept:
            context.kept.keep(marker)
        context.settled.mark(marker)
        if not is_kept:
            context.segments.remove_epoch(epoch)
        context.register.forget(epoch)
        rows = {name: total.rows for name, total in totals.items()}
        context.emit(Settled(epoch, context.clock.now(), rows))
        if epoch % self._limits.reap_every == 0:
            self._or_put_off(self.sweep)
        else:
            self._or_put_off(self._rollbacks.now_and_then)

    def sweep_or_put_off(self) -> None:
        """See `sweep`."""
        self._or_put_off(self.sweep)

    def _or_put_off(self, work: Callable[[], None]) -> None:
        """The epoch is settled: that a target does not answer now is no reason to stop. The next sweep does it all."""
        try:
            work()
        except OncewardError:
            raise
        except Exception as error:
            self._rollbacks.owes_look = True
            log.warning("a sweep for orphans and old receipts is put off: %s: %s", type(error).__name__, error)

    def sweep(self) -> None:
        """See `Housekeeping.sweep`."""
        self._housekeeping.sweep()


def _can_be_asked_again(sink: AnySink) -> bool:
    """Whether it knows what it has: by receipts, or by its committer. Where the output itself is the receipt, readers
    may have taken it away."""
    if isinstance(sink, WriteAheadSink):
        return sink.committer is not None
    return sink.keeps_receipts and not sink.receipts_are_output
