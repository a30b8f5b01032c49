"""Before a start: do the targets still have what was published, and do their receipts stand where they stood?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceward.contracts import Receipt
from onceward.epoch import Ground, Orphan, missing, pending_transactions, rolled_back_target
from onceward.errors import DamagedFile, NewerFormat, ReceiptsMoved
from onceward.identity import SinkName
from onceward.manifest import Marker
from onceward.wal import WAL


def receipts_places(ground: Ground) -> Mapping[SinkName, str]:
    """Where each sink's receipts stand now, as its target says."""
    return {sink.name: sink.receipts_at() for sink in ground.sinks}


def refuse_moved_receipts(ground: Ground) -> None:
    """A decided epoch may be published, with its receipt where nobody looks any more: it would be sent again. One that
    is not decided is computed again anyway."""
    waiting = range(ground.watermark() + 1, ground.decisions.decided() + 1)
    for epoch, files in sorted(ground.register.epochs().items()):
        if epoch not in waiting:
            continue
        try:
            manifest = ground.register.manifest(epoch, ground.register.taken(epoch, files))
        except NewerFormat:
            raise
        except DamagedFile:
            continue  # Whether that matters is for the plan to say.
        for name, entry in ground.resolved.without(manifest).sinks.items() if manifest is not None else ():
            now = ground.receipts_at.get(name, "")
            if entry.slots and entry.receipts_at and now and entry.receipts_at != now:
                raise ReceiptsMoved(
                    f"the receipts of this epoch stand at {entry.receipts_at}, and the sink keeps them at {now} now",
                    epoch=epoch,
                    sink=name,
                    hint="start once with the former setting, so that the epoch is settled, then change it; if the "
                    f"place is gone and the target has the epoch: `onceward resolve epoch-is-published FILE {epoch}`; "
                    f"if it has nothing of it, give up what is staged (`onceward resolve accept-loss FILE {epoch}`), "
                    f"then `onceward rewind CHECKPOINT {epoch}`: Spark computes it again",
                )


def came_back(
    ground: Ground, markers: Sequence[Marker], receipts: Sequence[Receipt], *, keep_receipts: int
) -> list[Orphan]:
    """Transactions of settled epochs that a target which went back holds prepared again: they must be committed first.

    `TargetRolledBack` when receipts of settled epochs are gone and their transactions are not there either.
    """
    if not missing(ground, markers, receipts, keep_receipts=keep_receipts):
        return []
    held = [one for one in pending_transactions(ground) if one.sink != WAL]
    if lost := missing(ground, markers, receipts, held, keep_receipts=keep_receipts):
        raise rolled_back_target(lost, ground.kept.epochs())
    return held
