"""The driver's side of *stage*: what an epoch may do before it begins, and the manifest that ends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onceward.contracts import Guarantee
from onceward.epoch.ground import Ground
from onceward.epoch.reap import abort_transactions
from onceward.epoch.stage import EpochOrder, SlotAck
from onceward.epoch.takeover import highest_taken
from onceward.errors import CheckpointRolledBack, EpochLost, Fenced
from onceward.identity import Fingerprint, SinkName, TransactionName
from onceward.manifest import Manifest, SinkEntry, SlotEntry


class Coordinator:
    """Begins epochs and writes their manifests for one run.

    `takeovers` are the epochs this run took over, with their numbers; `published` are undecided epochs that recovery
    found published already: the engine runs them again, and they must be consumed and not staged.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        takeovers: Mapping[int, int] | None = None,
        published: Mapping[int, Fingerprint] | None = None,
    ) -> None:
        self._ground = ground
        self._takeovers = dict(takeovers or {})
        self._published = dict(published or {})

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
        if ground.guarantee is Guarantee.EXACTLY_ONCE and (known := self._published.get(epoch)) is not None:
            if known != barrier.fingerprint:
                raise CheckpointRolledBack(
                    "the offset log changed under a published epoch", epoch=epoch, hint="restart to see the choices"
                )
            return None
        takeover = self._takeovers.get(epoch, 0)
        self._refuse_if_fenced(epoch, takeover)
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
        )
        return order if ground.guarantee is Guarantee.EXACTLY_ONCE else self._announce(order)

    def pre_commit(self, order: EpochOrder, acks: Iterable[SlotAck]) -> Manifest:
        """Make the epoch's handles durable. After this returns, the engine may decide."""
        manifest = self.manifest(order, acks)
        self._ground.hooks.on_pre_commit(order.epoch)
        self._write(manifest)
        # A takeover that was fixed while the manifest was being written makes it void. Saying so now, before the engine
        # is allowed to decide, leaves it nothing to decide.
        if highest_taken(self._ground, order.epoch) > order.takeover:
            raise _fenced(order.epoch)
        return manifest

    def manifest(self, order: EpochOrder, acks: Iterable[SlotAck], *, straight: bool = False) -> Manifest:
        """The acks of all slots, sorted by sink."""
        slots: dict[SinkName, list[SlotEntry]] = {sink.name: [] for sink in order.sinks}
        for ack in sorted(acks, key=lambda ack: ack.slot):
            for staged in ack.staged:
                for name in staged.sinks:
                    slots[name].append(SlotEntry(ack.slot, ack.rows, staged.handle))
        return Manifest(
            job=order.job,
            epoch=order.epoch,
            takeover=order.takeover,
            run=order.run,
            fingerprint=order.fingerprint,
            timestamp=order.timestamp,
            created_at=self._ground.clock.now(),
            sinks={sink.name: SinkEntry(sink.means, tuple(slots[sink.name])) for sink in order.sinks},
            straight=straight,
        )

    def abort(self, order: EpochOrder) -> None:
        """Let go of what this run staged for an epoch whose manifest it has not written."""

        def is_ours(name: TransactionName) -> bool:
            return (name.epoch, name.takeover, name.run) == (order.epoch, order.takeover, order.run)

        abort_transactions(self._ground, is_ours)
        self._ground.hooks.on_abort(order.epoch)

    def _announce(self, order: EpochOrder) -> EpochOrder | None:
        """For the weaker guarantees: record the attempt before the first row leaves.

        At most once, an epoch that has any record was attempted and is not delivered again.
        """
        files = self._ground.register.files(order.epoch)
        settled = self._ground.watermark() >= order.epoch
        # Also where nothing is delivered: the run took the epoch over, so only a manifest with its number counts.
        if not settled and order.takeover not in files.manifests:
            self._write(self.manifest(order, (), straight=True))
        attempted = settled or bool(files.manifests)
        return None if attempted and self._ground.guarantee is Guarantee.AT_MOST_ONCE else order

    def _write(self, manifest: Manifest) -> None:
        self._refuse_if_fenced(manifest.epoch, manifest.takeover)
        if not self._ground.register.create_manifest(manifest):
            raise _fenced(manifest.epoch)

    def _refuse_if_fenced(self, epoch: int, takeover: int) -> None:
        """Another driver has decided, settled or taken over the epoch that this one is about to work on."""
        ground = self._ground
        weaker = ground.guarantee is not Guarantee.EXACTLY_ONCE
        if ground.decisions.decided() >= epoch or (ground.watermark() >= epoch and not weaker):
            raise _fenced(epoch)
        files = ground.register.files(epoch)
        if ground.register.taken(epoch, files) > takeover or (takeover in files.manifests and not weaker):
            raise _fenced(epoch)


def _fenced(epoch: int) -> Fenced:
    return Fenced(
        "another driver works on this checkpoint",
        epoch=epoch,
        hint="stop one of them; this one has published nothing that the other did not",
    )
