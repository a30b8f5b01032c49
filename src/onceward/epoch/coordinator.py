"""The driver's side of *stage*: what an epoch may do before it begins, and the manifest that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onceward.contracts import AnySink, Guarantee, WriteAheadSink
from onceward.contracts.events import Begun, PreCommitted, Staged
from onceward.epoch.deliver import SinkDelivery
from onceward.epoch.limits import PublishLimits
from onceward.epoch.reap import abort_transactions
from onceward.epoch.rollback_detector import RollbackDetector
from onceward.epoch.run_context import RunContext, notify
from onceward.epoch.stage import EpochAssignment, SinkAck, SlotAck
from onceward.epoch.takeover import highest_taken, take_over
from onceward.epoch.verify import refuse_missing
from onceward.errors import CheckpointRolledBack, DamagedFile, EpochLost, Fenced, OutputLost
from onceward.identity import Fingerprint, SinkName, TransactionName
from onceward.journal import Manifest, SinkEntry, SlotEntry
from onceward.wal import WAL


class Coordinator:
    """Begins epochs and writes their manifests for one run.

    `takeovers` are the epochs this run took over, with their numbers; `published` are undecided epochs that recovery
    found published already: the engine runs them again, and they must be consumed and not staged. `guarantee_of` an
    epoch is the one under which it was begun, which may be another than the job asks for now.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        takeovers: Mapping[int, int] | None = None,
        published: Mapping[int, Fingerprint] | None = None,
        guarantee_of: Callable[[int], Guarantee | None] = lambda epoch: None,
    ) -> None:
        self._context = context
        self._begun_as = guarantee_of
        self._running_as = context.guarantee
        self._takeovers = dict(takeovers or {})
        self._published = dict(published or {})
        self._barriers: dict[int, str] = {}
        self._begun: int | None = None

    def begin(self, epoch: int) -> EpochAssignment | None:
        """The assignment of this epoch's tasks, or None: consume the rows, this epoch is published already."""
        context = self._context
        barrier = context.decisions.barrier(epoch)
        if barrier is None:
            if context.decisions.decided() >= epoch:
                # Another driver went on and had Spark purge the entry.
                raise _fenced(epoch)
            raise EpochLost(
                "the engine runs an epoch that has no entry in its offset log",
                epoch=epoch,
                hint="is the checkpoint given to onceward the checkpointLocation of this query?",
            )
        if (known := self._published.get(epoch)) is not None:
            if known != barrier.fingerprint:
                raise CheckpointRolledBack(
                    "the offset log changed under a published epoch", epoch=epoch, hint="restart to see the choices"
                )
            # A second driver may have written the same entry again since it was forced to the disk.
            context.decisions.sync_barrier(epoch)
            return None
        takeover = self._takeovers.get(epoch, 0)
        self._refuse_if_fenced(epoch, takeover)
        self._barriers = {epoch: barrier.text}
        guarantee = self._running_as = self._guarantee_of(epoch)
        self._begun = epoch
        context.hooks.on_begin(epoch)
        context.emit(Begun(epoch, context.clock.now(), barrier.timestamp, takeover, guarantee.value))
        assignment = EpochAssignment(
            job=context.job,
            epoch=epoch,
            takeover=takeover,
            run=context.run,
            timestamp=barrier.timestamp,
            fingerprint=barrier.fingerprint,
            sinks=context.sinks,
            storage=context.storage,
            immediate=guarantee is not Guarantee.EXACTLY_ONCE,
        )
        return self._announce(assignment) if guarantee is Guarantee.AT_MOST_ONCE else assignment

    def begin_again(self, epoch: int) -> EpochAssignment | None:
        """As `begin`, after staging failed in this run: the epoch is taken over from ourselves.

        To the register that is a driver that died and another one that took its epoch. What the first staging has left,
        and what a stray task of it still writes, bears a lower takeover number: it is aborted here, or later as an
        orphan, and no manifest that counts can name it. A manifest of it, if it was written, is void.

        May be called again when it fails; the number only grows. An epoch that is published already is not taken over.
        """
        if epoch in self._published:
            return self.begin(epoch)
        # Only we could let our engine decide it, and we have not: if it is decided, another driver did it.
        decided = self._context.decisions.decided() >= epoch
        takeover = None if decided else take_over(self._context, epoch)
        if takeover is None:
            raise _fenced(epoch)
        self._takeovers[epoch] = takeover
        self._tell_abort(epoch)
        return self.begin(epoch)

    def finish(self, assignment: EpochAssignment, acks: Sequence[SlotAck], limits: PublishLimits | None = None) -> None:
        """All slots are staged: look at it, let go what may go before the decision, then write the manifest.

        At least once, what needs no log goes to its target now; a plain write-ahead sink waits for the decision as
        always, since its committer spares it most repetitions. At most once, everything goes now, with one try.
        """
        limits = limits or PublishLimits()
        epoch, context = assignment.epoch, self._context
        context.emit(Staged(epoch, context.clock.now(), tuple(ack.as_event() for ack in acks)))
        self._verify(assignment, acks)
        match self._running_as:
            case Guarantee.EXACTLY_ONCE:
                self.pre_commit(assignment, acks)
            case Guarantee.AT_LEAST_ONCE:
                self._deliver(
                    assignment, acks, [s for s in assignment.sinks if not isinstance(s, WriteAheadSink)], limits
                )
                self.pre_commit(assignment, acks, [s.name for s in assignment.sinks if isinstance(s, WriteAheadSink)])
            case Guarantee.AT_MOST_ONCE:
                self._deliver(assignment, acks, assignment.sinks, replace(limits, deadline_s=0.0))
                context.decisions.sync_barrier(epoch)
        context.emit(PreCommitted(epoch, context.clock.now()))

    def _verify(self, assignment: EpochAssignment, acks: Sequence[SlotAck]) -> None:
        """Fail the epoch, and abort it, unless all that is staged is there, seen from where it will be published."""
        try:
            refuse_missing(self._context, assignment, acks)
        except Exception:
            # What cannot be aborted now is aborted at the next start; the first failure is the one to report.
            with contextlib.suppress(Exception):
                self.abort(assignment)
            # Who was overtaken finds nothing either: its transactions were aborted for it.
            if self._running_as is not Guarantee.AT_MOST_ONCE:
                self._refuse_if_fenced(assignment.epoch, assignment.takeover)
            raise

    def _deliver(
        self, assignment: EpochAssignment, acks: Sequence[SlotAck], sinks: Sequence[AnySink], limits: PublishLimits
    ) -> None:
        # The rows are out from here on: after a power loss it must be the same epoch that is delivered again.
        self._context.decisions.sync_barrier(assignment.epoch)
        manifest = replace(self._context.resolved.without(self._manifest(assignment, acks)), immediate=True)
        rollbacks = RollbackDetector(self._context, limits)
        delivery = SinkDelivery(self._context, limits, before_retry=rollbacks.after_failure)
        try:
            for sink in sinks:
                if manifest.sinks[sink.name].slots:
                    delivery.deliver(sink, manifest.sinks[sink.name], manifest)
        except (DamagedFile, OutputLost):
            # What is gone may have been aborted by another driver, who took the epoch over.
            self._refuse_if_fenced(assignment.epoch, assignment.takeover)
            raise

    def pre_commit(
        self, assignment: EpochAssignment, acks: Sequence[SlotAck], waiting: Sequence[SinkName] | None = None
    ) -> Manifest:
        """Make the handles of the sinks that wait for the decision durable. Afterwards the engine may decide."""
        manifest = self._manifest(assignment, acks, waiting)
        self._context.hooks.on_pre_commit(assignment.epoch)
        self._write(manifest)
        # A takeover that was fixed while the manifest was being written makes it void. Saying so now, before the engine
        # is allowed to decide, leaves it nothing to decide.
        if highest_taken(self._context, assignment.epoch) > assignment.takeover:
            raise _fenced(assignment.epoch)
        # The same if another driver has written over the barrier, where the file system lets it.
        barrier = self._context.decisions.barrier(assignment.epoch)
        if barrier is not None and barrier.fingerprint != assignment.fingerprint:
            raise _fenced(assignment.epoch)
        return manifest

    def _manifest(
        self, assignment: EpochAssignment, acks: Sequence[SlotAck], waiting: Sequence[SinkName] | None = None
    ) -> Manifest:
        """The acks of all slots, sorted by sink; those of sinks that do not wait are left out."""
        slots: dict[SinkName, list[SlotEntry]] = {sink.name: [] for sink in assignment.sinks}
        for ack in sorted(acks, key=lambda ack: ack.slot):
            for staged in ack.staged:
                for name in staged.sinks:
                    if waiting is None or name in waiting:
                        slots[name].append(SlotEntry(ack.slot, ack.rows, staged.handle))
        for sink in assignment.sinks:
            is_asked = waiting is None or sink.name in waiting
            if is_asked and not slots[sink.name] and sink.takes_empty_epochs:
                nothing = SinkAck.of({}, assignment.context(WAL, 0, 0))
                slots[sink.name].append(SlotEntry(0, 0, nothing.handle))
        return Manifest(
            job=assignment.job,
            epoch=assignment.epoch,
            takeover=assignment.takeover,
            run=assignment.run,
            fingerprint=assignment.fingerprint,
            timestamp=assignment.timestamp,
            created_at=self._context.clock.now(),
            sinks={
                sink.name: SinkEntry(
                    sink.mechanism,
                    tuple(slots[sink.name]),
                    self._context.receipts_at.get(sink.name, ""),
                    self._context.target_facts.get(sink.name, {}),
                )
                for sink in assignment.sinks
            },
            barrier=self._barriers.get(assignment.epoch, ""),
            guarantee=self._running_as.value,
        )

    def abort(self, assignment: EpochAssignment) -> None:
        """Let go of what this run staged for an epoch whose manifest it has not written."""

        def is_ours(name: TransactionName) -> bool:
            return (name.epoch, name.takeover, name.run) == (assignment.epoch, assignment.takeover, assignment.run)

        abort_transactions(self._context, is_ours)
        self._tell_abort(assignment.epoch)

    def _tell_abort(self, epoch: int) -> None:
        """Once for each time that the epoch was begun: it is aborted when staging fails, or, where that is not possible
        then or not enough, when it is taken over to be staged again."""
        if self._begun == epoch:
            self._begun = None
            notify(self._context.hooks.on_abort, epoch)

    def _announce(self, assignment: EpochAssignment) -> EpochAssignment | None:
        """At most once: record the attempt before the first row leaves. An epoch that has a record is not tried again.

        That too gets a manifest: the run took the epoch over, so only one with its own number counts.
        """
        attempted = self._was_attempted(assignment.epoch)
        self._write(replace(self._manifest(assignment, (), ()), immediate=True))
        return None if attempted else assignment

    def _was_attempted(self, epoch: int) -> bool:
        """Whether an at-most-once attempt was recorded by anyone. Other manifests name what was never visible; one that
        cannot be read is taken for an attempt if the epoch was begun at most once."""
        register = self._context.register
        begun_as = self._begun_as(epoch) or self._context.guarantee
        for takeover in register.files(epoch).manifests:
            try:
                manifest = register.manifest(epoch, takeover)
            except DamagedFile:
                if begun_as is Guarantee.AT_MOST_ONCE:
                    return True
                continue
            if manifest is not None and manifest.immediate:
                return True
        return False

    def _guarantee_of(self, epoch: int) -> Guarantee:
        """An epoch in flight is finished under the guarantee that it was begun under: at most once, its rows may be out
        already; at least once, they may be out twice; exactly once, none is out, and what was staged is aborted."""
        if epoch in self._takeovers and self._was_attempted(epoch):
            return Guarantee.AT_MOST_ONCE
        return self._begun_as(epoch) or self._context.guarantee

    def _write(self, manifest: Manifest) -> None:
        """What the manifest rests on reaches the disk before the manifest does: see `recovery/repair.py`."""
        self._refuse_if_fenced(manifest.epoch, manifest.takeover)
        self._context.decisions.sync_barrier(manifest.epoch)
        if not self._context.register.create_manifest(manifest):
            raise _fenced(manifest.epoch)

    def _refuse_if_fenced(self, epoch: int, takeover: int) -> None:
        """Another driver has decided, settled or taken over the epoch that this one is about to work on.

        One exception: an epoch that we took over and that its former driver decided all the same. Only our manifest
        counts then, so that the epoch is lost unless we finish it.

        The register is read first: it is cleared only when the epoch is settled, so what is gone from it is seen then.
        """
        context = self._context
        files = context.register.files(epoch)
        taken = context.register.taken(epoch, files)
        decided, settled = context.decisions.decided() >= epoch, context.watermark() >= epoch
        ours = takeover > 0 and taken == takeover
        if settled or (decided and not ours) or taken > takeover or takeover in files.manifests:
            raise _fenced(epoch)


def _fenced(epoch: int) -> Fenced:
    return Fenced(
        "another driver works on this checkpoint",
        epoch=epoch,
        hint="stop one of them; this one has published nothing that the other did not",
    )
