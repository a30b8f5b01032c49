"""*Publish* and *settle*: make decided epochs visible, in order, each until every slot has its receipt.

Works upwards from the settled watermark, never past an epoch it has not published. Every step may be repeated after a
crash: commits answer "already", write-ahead sinks find their receipt, the marker is write-once, removals find nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import assert_never

import pyarrow as pa

from onceward.contracts import (
    AlreadyCommitted,
    AnySink,
    Committed,
    Handle,
    Lost,
    Outcome,
    Receipt,
    RejectedRow,
    RetryLater,
    SlotValues,
    TransactionalWriteAheadSink,
    TryAgain,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.epoch.exits import exits, output_lost, refuse_moved, with_exits
from onceward.epoch.housekeeping import Housekeeping
from onceward.epoch.in_doubt import InDoubtTracker
from onceward.epoch.limits import PublishLimits
from onceward.epoch.reap import PendingTransaction
from onceward.epoch.run_context import RunContext, log, notify
from onceward.epoch.suspicion import Suspicion
from onceward.epoch.takeover import BETWEEN_LOOKS_S, LOOKS, settle_fates
from onceward.epoch.watchdog import no_longer_than
from onceward.errors import (
    CheckpointRolledBack,
    DamagedFile,
    EpochLost,
    Fenced,
    NewerFormat,
    OncewardError,
    OutputLost,
    PublishFailed,
    SinkMissing,
    attributed,
)
from onceward.identity import Fingerprint, SinkName
from onceward.journal import Manifest, Marker, SinkEntry, SinkTotal, SlotEntry
from onceward.wal import is_segment, read_segment


class Publisher:
    """Publishes for one run. `gave_up` is asked before each repetition: True ends the waiting at once."""

    def __init__(
        self, context: RunContext, limits: PublishLimits | None = None, *, gave_up: Callable[[], bool] = lambda: False
    ) -> None:
        self._context = context
        self._limits = limits or PublishLimits()
        self._gave_up = gave_up
        self.in_doubt = InDoubtTracker(context)
        self._housekeeping = Housekeeping(context, self._limits, self.in_doubt, self.deliver)

    def publish_decided(self) -> int:
        """Publish and settle every decided epoch; the watermark afterwards."""
        decided = self._context.decisions.decided()
        watermark = self._context.watermark()
        for epoch in range(watermark + 1, decided + 1):
            self._publish_epoch(epoch)
            watermark = epoch
        return watermark

    def _publish_epoch(self, epoch: int) -> None:
        notify(self._context.hooks.on_decision, epoch)
        try:
            manifest = self._find_manifest(epoch)
        except DamagedFile as error:
            is_known = self._context.how_resolved(epoch) is not None and not isinstance(error, NewerFormat)
            if self._context.watermark() < epoch and not is_known:
                raise with_exits(error, epoch) from error
            manifest = None
        if self._context.watermark() >= epoch:
            # Another driver settled it since we last looked. That frees the names of its files, so the manifest just
            # read may be that of a driver which woke up too late: nothing of it may be published.
            return
        if manifest is None:
            self.settle_without_manifest(epoch)
            return
        barrier = self._context.decisions.barrier(epoch)
        if barrier is not None and barrier.fingerprint != manifest.fingerprint:
            raise CheckpointRolledBack(
                "the manifest belongs to another epoch of this number than the one Spark decided",
                epoch=epoch,
                hint="the checkpoint was put together from two: restore it whole from one backup; or run "
                f"`onceward rewind CHECKPOINT {epoch}`: what was staged is aborted, and Spark computes what its log "
                "has now",
            )
        self._context.decisions.sync_decision(epoch)
        self.publish_manifest(manifest)

    def _find_manifest(self, epoch: int) -> Manifest | None:
        """The manifest that counts. One that is missing is looked for again: its driver may be about to write it."""
        for _ in range(LOOKS):
            manifest = self._context.register.manifest(epoch, settle_fates(self._context, epoch))
            if manifest is not None or self._context.watermark() >= epoch:
                return manifest
            if self._context.decisions.is_engine_made(epoch):
                return None
            self._context.clock.pause(BETWEEN_LOOKS_S)
        return None

    def publish_manifest(self, manifest: Manifest) -> None:
        """Publish what a manifest names, settle it, and tell. What a person took out of it is not published."""
        named, manifest = len(manifest.transactions()), self._context.resolved.without(manifest)
        if len(manifest.transactions()) < named:
            log.warning("epoch %d is published without what was resolved by hand", manifest.epoch)
        try:
            self._deliver_all(manifest)
        except (DamagedFile, OutputLost) as error:
            # What is missing may have been removed by another driver, who published it and settled the epoch.
            if self._context.watermark() >= manifest.epoch:
                return
            raise with_exits(error, manifest.epoch) if isinstance(error, DamagedFile) else error from None
        self._settle(manifest)
        notify(self._context.hooks.on_publish, manifest.epoch)

    def _deliver_all(self, manifest: Manifest) -> None:
        for name, entry in manifest.sinks.items():
            if not entry.slots:
                continue
            sink = self._context.variant_for(name, entry.slots[0].handle)
            if sink is None and self._context.sink(name) is not None:
                raise SinkMissing(
                    f"{entry.rows} rows wait for sink {name!r} as it was before: {entry.mechanism}",
                    epoch=manifest.epoch,
                    sink=name,
                    hint="start once with the former kind of sink so that they can be published, then change it; or "
                    f"give them up: `onceward resolve accept-loss FILE {manifest.epoch} --sink {name!r}`",
                )
            if sink is None:
                raise SinkMissing(
                    f"{entry.rows} rows wait for a sink that the job no longer has",
                    epoch=manifest.epoch,
                    sink=name,
                    hint=f"start once with a sink named {name!r} so that it can be published, then remove it; or "
                    f"give them up: `onceward resolve accept-loss FILE {manifest.epoch} --sink {name!r}`",
                )
            # A driver that was paused while another one moved the receipts may find that one's manifest here.
            refuse_moved(entry, self._context.receipts_at.get(name, ""), epoch=manifest.epoch, sink=name)
            self.deliver(sink, entry, manifest)

    def deliver(self, sink: AnySink, entry: SinkEntry, manifest: Manifest) -> None:
        """Bring one sink's slots to the target. Without receipts where the epoch goes straight to the target."""
        match sink:
            case TwoPhaseCommitSink():
                handles = [slot.handle for slot in entry.slots]
                self._until_done(partial(_commit_all, sink, handles), sink, manifest)
            case TransactionalWriteAheadSink():
                values = [self.values(slot, sink, manifest) for slot in entry.slots]
                groups: Sequence[Sequence[SlotValues]] = [values] if sink.epoch_at_once else [[one] for one in values]
                for group in groups:
                    send = partial(_send_transaction, sink, group, manifest)
                    search = partial(sink.find_rejected, group, manifest.job, manifest.epoch)
                    self._until_done(send, sink, manifest, search=search)
            case WriteAheadSink():
                if sink.committer is not None:
                    sink.committer.open(manifest.job, sink.name)
                for slot in entry.slots:
                    read = self.values(slot, sink, manifest).read
                    self._until_done(partial(_send_values, sink, slot.slot, read, manifest), sink, manifest)
            case _:
                assert_never(sink)

    def values(self, slot: SlotEntry, sink: AnySink, manifest: Manifest) -> SlotValues:
        """One slot of a write-ahead sink as it goes to the target: without the rows that the user took out of it."""
        receipt = Receipt(
            job=manifest.job.name,
            generation=manifest.job.generation,
            sink=sink.name,
            epoch=manifest.epoch,
            slot=slot.slot,
            fingerprint=manifest.fingerprint,
        )
        read = partial(read_segment, self._context.storage, slot.handle) if slot.rows else partial(iter, ())
        diverted = self._context.diverted.get((manifest.epoch, sink.name))
        if diverted is not None and (left_out := diverted.rows.get(str(slot.handle["transaction"]))):
            read = partial(_without, read, frozenset(left_out))
        return SlotValues(slot.slot, slot.rows, None if manifest.immediate else receipt, read)

    def _until_done(
        self,
        attempt: Callable[[], Outcome],
        sink: AnySink,
        manifest: Manifest,
        *,
        search: Callable[[], Sequence[RejectedRow]] = tuple,
    ) -> None:
        """Repeat one delivery with growing pauses until it is done, hopeless, or past the deadline."""
        clock, limits = self._context.clock, self._limits
        suspicion = Suspicion(search, epoch=manifest.epoch, sink=sink.name)
        started, backoff, failure = clock.monotonic(), limits.backoff_s, ""
        while True:
            cause: Exception | None = None
            # A repetition that begins just before the deadline gets a tenth of it: enough to tell slow from hanging.
            left_s = max(started + limits.deadline_s - clock.monotonic(), limits.deadline_s / 10)
            try:
                with no_longer_than(left_s), attributed(sink=sink.name, epoch=manifest.epoch):
                    outcome = attempt()
            except OncewardError:
                raise
            except Exception as error:
                why = str(error) if isinstance(error, TryAgain) else f"{type(error).__name__}: {error}"
                cause, outcome = error, RetryLater(why, after_s=backoff)
            match outcome:
                case Committed() | AlreadyCommitted():
                    return
                case Lost(why):
                    raise output_lost(why, sink, manifest)
                case RetryLater(why, after_s):
                    failure = why
                case _:
                    assert_never(outcome)
            self._watch_transaction_age(sink, manifest, failure)
            suspicion.falls_on(cause)
            self.in_doubt.look_again()
            waited = clock.monotonic() - started
            if waited + after_s > limits.deadline_s or self._gave_up():
                raise PublishFailed(
                    f"the target did not take the epoch within {waited:.0f} s: {failure}",
                    epoch=manifest.epoch,
                    sink=sink.name,
                    hint="the epoch stays staged and is published first at the next start; check the target",
                ) from cause
            log.warning("epoch %d, sink %r: %s; trying again", manifest.epoch, sink.name, failure)
            clock.pause(after_s)
            backoff = min(backoff * 2, limits.max_backoff_s)
            if cause is not None:
                self._housekeeping.look_back_after_failure()

    def _watch_transaction_age(self, sink: AnySink, manifest: Manifest, failure: str) -> None:
        """A transaction that the target will forget must not be waited for in silence."""
        if not isinstance(sink, TwoPhaseCommitSink) or sink.transaction_timeout_s is None:
            return
        age = (self._context.clock.now() - manifest.created_at).total_seconds()
        if age > sink.transaction_timeout_s:
            raise output_lost(
                f"its transactions are {age:.0f} s old and time out at {sink.transaction_timeout_s:.0f} s; {failure}",
                sink,
                manifest,
            )
        if age > sink.transaction_timeout_s * sink.transaction_timeout_warning:
            log.warning(
                "epoch %d, sink %r: transactions are %.0f s old and time out at %.0f s",
                manifest.epoch,
                sink.name,
                age,
                sink.transaction_timeout_s,
            )

    def settle_without_manifest(self, epoch: int) -> None:
        """A decided epoch without a manifest: settled by someone else just now, made by the engine alone, resolved by a
        person, or lost."""
        if self._context.watermark() >= epoch:
            return
        barrier = self._context.decisions.barrier(epoch)
        how = self._context.how_resolved(epoch)
        if how is not None:
            log.warning("epoch %d: %s", epoch, how)
        elif not self._context.decisions.is_engine_made(epoch):
            raise self._why_no_manifest(epoch)
        self._mark(epoch, barrier.fingerprint if barrier else Fingerprint(""), {})

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
        if epoch % self._limits.reap_every == 0:
            self._or_put_off(self.sweep)
        else:
            self._or_put_off(self._housekeeping.look_back_now_and_then)

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
            log.warning("a sweep for orphans and old receipts is put off: %s: %s", type(error).__name__, error)

    def sweep(self) -> None:
        """See `Housekeeping.sweep`."""
        self._housekeeping.sweep()

    def commit_survivors(self, listed: Sequence[PendingTransaction]) -> None:
        """See `Housekeeping.commit_survivors`."""
        self._housekeeping.commit_survivors(listed)


def _commit_all(sink: TwoPhaseCommitSink[object], handles: Sequence[Handle]) -> Outcome:
    """All slots' outcomes as one: the first that is no success."""
    outcomes = sink.commit_all(handles)
    failed = (outcome for outcome in outcomes if not isinstance(outcome, (Committed, AlreadyCommitted)))
    return next(failed, Committed() if len(outcomes) == len(handles) else RetryLater("commit_all left slots out"))


def _send_transaction(sink: TransactionalWriteAheadSink, values: Sequence[SlotValues], manifest: Manifest) -> Outcome:
    sent = sink.send_transaction(values, manifest.job, manifest.epoch, manifest.timestamp)
    return Committed() if sent else RetryLater("send_transaction returned False")


def _send_values(
    sink: WriteAheadSink, slot: int, read: Callable[[], Iterator[pa.RecordBatch]], manifest: Manifest
) -> Outcome:
    committer = None if manifest.immediate else sink.committer
    if committer is not None and committer.is_checkpoint_committed(slot, manifest.epoch):
        return AlreadyCommitted()
    if not sink.send_values(read(), manifest.epoch, manifest.timestamp):
        return RetryLater("send_values returned False")
    if committer is not None:
        committer.commit_checkpoint(slot, manifest.epoch)
    return Committed()


def _without(read: Callable[[], Iterator[pa.RecordBatch]], left_out: frozenset[int]) -> Iterator[pa.RecordBatch]:
    """The batches without these rows, which are counted over all of them."""
    first = 0
    for batch in read():
        numbers = range(first, first + batch.num_rows)
        first += batch.num_rows
        if left_out.isdisjoint(numbers):
            yield batch
        elif kept := [place for place, number in enumerate(numbers) if number not in left_out]:
            yield batch.take(pa.array(kept))
