"""The driver's side of *stage*: what an epoch may do before it begins, and the manifest that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onceward.contracts import AnySink, Guarantee, WriteAheadSink
from onceward.epoch.ground import Ground, notify
from onceward.epoch.limits import PublishLimits
from onceward.epoch.publish import Publisher
from onceward.epoch.reap import abort_transactions
from onceward.epoch.stage import EpochOrder, SlotAck
from onceward.epoch.takeover import highest_taken
from onceward.epoch.verify import refuse_missing
from onceward.errors import CheckpointRolledBack, DamagedFile, EpochLost, Fenced, OutputLost
from onceward.identity import Fingerprint, SinkName, TransactionName
from onceward.manifest import Manifest, SinkEntry, SlotEntry
from onceward.wal import WAL


class Coordinator:
    """Begins epochs and writes their manifests for one run.

    `takeovers` are the epochs this run took over, with their numbers; `published` are undecided epochs that recovery
    found published already: the engine runs them again, and they must be consumed and not staged. `guarantee_of` an
    epoch is the one under which it was begun, which may be another than the job asks for now.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        takeovers: Mapping[int, int] | None = None,
        published: Mapping[int, Fingerprint] | None = None,
        guarantee_of: Callable[[int], Guarantee | None] = lambda epoch: None,
    ) -> None:
        self._ground = ground
        self._begun_as = guarantee_of
        self._running_as = ground.guarantee
        self._takeovers = dict(takeovers or {})
        self._published = dict(published or {})
        self._barriers: dict[int, str] = {}

    def begin(self, epoch: int) -> EpochOrder | None:
        """The order for this epoch's tasks, or None: consume the rows, this epoch is published already."""
        ground = self._ground
        barrier = ground.decisions.barrier(epoch)
        if barrier is None:
            if ground.decisions.decided() >= epoch:
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
            return None
        takeover = self._takeovers.get(epoch, 0)
        self._refuse_if_fenced(epoch, takeover)
        self._barriers = {epoch: barrier.text}
        guarantee = self._running_as = self._guarantee_of(epoch)
        ground.hooks.on_begin(epoch)
        order = EpochOrder(
            job=ground.job,
            epoch=epoch,
            takeover=takeover,
            run=ground.run,
            timestamp=barrier.timestamp,
            fingerprint=barrier.fingerprint,
            sinks=ground.sinks,
            storage=ground.storage,
            straight=guarantee is not Guarantee.EXACTLY_ONCE,
        )
        return self._announce(order) if guarantee is Guarantee.AT_MOST_ONCE else order

    def finish(self, order: EpochOrder, acks: Sequence[SlotAck], limits: PublishLimits | None = None) -> None:
        """All slots are staged: look at it, let go what may go before the decision, then write the manifest.

        At least once, what needs no log goes to its target now; a plain write-ahead sink waits for the decision as
        always, since its committer spares it most repetitions. At most once, everything goes now, with one try.
        """
        limits = limits or PublishLimits()
        self._verify(order, acks)
        match self._running_as:
            case Guarantee.EXACTLY_ONCE:
                self.pre_commit(order, acks)
            case Guarantee.AT_LEAST_ONCE:
                self._deliver(order, acks, [s for s in order.sinks if not isinstance(s, WriteAheadSink)], limits)
                self.pre_commit(order, acks, [s.name for s in order.sinks if isinstance(s, WriteAheadSink)])
            case Guarantee.AT_MOST_ONCE:
                self._deliver(order, acks, order.sinks, replace(limits, deadline_s=0.0))
                self._ground.decisions.sync_barrier(order.epoch)

    def _verify(self, order: EpochOrder, acks: Sequence[SlotAck]) -> None:
        """Fail the epoch, and abort it, unless all that is staged is there, seen from where it will be published."""
        try:
            refuse_missing(self._ground, order, acks)
        except Exception:
            # What cannot be aborted now is aborted at the next start; the first failure is the one to report.
            with contextlib.suppress(Exception):
                self.abort(order)
            # Who was overtaken finds nothing either: its transactions were aborted for it.
            if self._running_as is not Guarantee.AT_MOST_ONCE:
                self._refuse_if_fenced(order.epoch, order.takeover)
            raise

    def _deliver(
        self, order: EpochOrder, acks: Sequence[SlotAck], sinks: Sequence[AnySink], limits: PublishLimits
    ) -> None:
        # The rows are out from here on: after a power loss it must be the same epoch that is delivered again.
        self._ground.decisions.sync_barrier(order.epoch)
        manifest = replace(self._manifest(order, acks), straight=True)
        publisher = Publisher(self._ground, limits)
        try:
            for sink in sinks:
                if manifest.sinks[sink.name].slots:
                    publisher.deliver(sink, manifest.sinks[sink.name], manifest)
        except (DamagedFile, OutputLost):
            # What is gone may have been aborted by another driver, who took the epoch over.
            self._refuse_if_fenced(order.epoch, order.takeover)
            raise

    def pre_commit(
        self, order: EpochOrder, acks: Sequence[SlotAck], waiting: Sequence[SinkName] | None = None
    ) -> Manifest:
        """Make the handles of the sinks that wait for the decision durable. Afterwards the engine may decide."""
        manifest = self._manifest(order, acks, waiting)
        self._ground.hooks.on_pre_commit(order.epoch)
        self._write(manifest)
        # A takeover that was fixed while the manifest was being written makes it void. Saying so now, before the engine
        # is allowed to decide, leaves it nothing to decide.
        if highest_taken(self._ground, order.epoch) > order.takeover:
            raise _fenced(order.epoch)
        # The same if another driver has written over the barrier, where the file system lets it.
        barrier = self._ground.decisions.barrier(order.epoch)
        if barrier is not None and barrier.fingerprint != order.fingerprint:
            raise _fenced(order.epoch)
        return manifest

    def _manifest(
        self, order: EpochOrder, acks: Sequence[SlotAck], waiting: Sequence[SinkName] | None = None
    ) -> Manifest:
        """The acks of all slots, sorted by sink; those of sinks that do not wait are left out."""
        slots: dict[SinkName, list[SlotEntry]] = {sink.name: [] for sink in order.sinks}
        for ack in sorted(acks, key=lambda ack: ack.slot):
            for staged in ack.staged:
                for name in staged.sinks:
                    if waiting is None or name in waiting:
                        slots[name].append(SlotEntry(ack.slot, ack.rows, staged.handle))
        for sink in order.sinks:
            is_asked = waiting is None or sink.name in waiting
            if is_asked and not slots[sink.name] and sink.takes_empty_epochs:
                nothing = {"transaction": str(order.context(WAL, 0, 0).transaction)}
                slots[sink.name].append(SlotEntry(0, 0, nothing))
        return Manifest(
            job=order.job,
            epoch=order.epoch,
            takeover=order.takeover,
            run=order.run,
            fingerprint=order.fingerprint,
            timestamp=order.timestamp,
            created_at=self._ground.clock.now(),
            sinks={
                sink.name: SinkEntry(
                    sink.means,
                    tuple(slots[sink.name]),
                    self._ground.receipts_at.get(sink.name, ""),
                    self._ground.target_facts.get(sink.name, {}),
                )
                for sink in order.sinks
            },
            barrier=self._barriers.get(order.epoch, ""),
            guarantee=self._running_as.value,
        )

    def abort(self, order: EpochOrder) -> None:
        """Let go of what this run staged for an epoch whose manifest it has not written."""

        def is_ours(name: TransactionName) -> bool:
            return (name.epoch, name.takeover, name.run) == (order.epoch, order.takeover, order.run)

        abort_transactions(self._ground, is_ours)
        notify(self._ground.hooks.on_abort, order.epoch)

    def _announce(self, order: EpochOrder) -> EpochOrder | None:
        """At most once: record the attempt before the first row leaves. An epoch that has a record is not tried again.

        That too gets a manifest: the run took the epoch over, so only one with its own number counts.
        """
        attempted = self._was_attempted(order.epoch)
        self._write(replace(self._manifest(order, (), ()), straight=True))
        return None if attempted else order

    def _was_attempted(self, epoch: int) -> bool:
        """Whether an at-most-once attempt was recorded by anyone. Other manifests name what was never visible; one that
        cannot be read is taken for an attempt if the epoch was begun at most once."""
        register = self._ground.register
        begun_as = self._begun_as(epoch) or self._ground.guarantee
        for takeover in register.files(epoch).manifests:
            try:
                manifest = register.manifest(epoch, takeover)
            except DamagedFile:
                if begun_as is Guarantee.AT_MOST_ONCE:
                    return True
                continue
            if manifest is not None and manifest.straight:
                return True
        return False

    def _guarantee_of(self, epoch: int) -> Guarantee:
        """An epoch in flight is finished under the guarantee that it was begun under: at most once, its rows may be out
        already; at least once, they may be out twice; exactly once, none is out, and what was staged is aborted."""
        if epoch in self._takeovers and self._was_attempted(epoch):
            return Guarantee.AT_MOST_ONCE
        return self._begun_as(epoch) or self._ground.guarantee

    def _write(self, manifest: Manifest) -> None:
        """What the manifest rests on reaches the disk before the manifest does: see `recovery/repair.py`."""
        self._refuse_if_fenced(manifest.epoch, manifest.takeover)
        self._ground.decisions.sync_barrier(manifest.epoch)
        if not self._ground.register.create_manifest(manifest):
            raise _fenced(manifest.epoch)

    def _refuse_if_fenced(self, epoch: int, takeover: int) -> None:
        """Another driver has decided, settled or taken over the epoch that this one is about to work on.

        One exception: an epoch that we took over and that its former driver decided all the same. Only our manifest
        counts then, so that the epoch is lost unless we finish it.

        The register is read first: it is cleared only when the epoch is settled, so what is gone from it is seen then.
        """
        ground = self._ground
        files = ground.register.files(epoch)
        taken = ground.register.taken(epoch, files)
        decided, settled = ground.decisions.decided() >= epoch, ground.watermark() >= epoch
        ours = takeover > 0 and taken == takeover
        if settled or (decided and not ours) or taken > takeover or takeover in files.manifests:
            raise _fenced(epoch)


def _fenced(epoch: int) -> Fenced:
    return Fenced(
        "another driver works on this checkpoint",
        epoch=epoch,
        hint="stop one of them; this one has published nothing that the other did not",
    )
