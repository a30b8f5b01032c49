"""The ways on from a decided epoch that cannot be published as it stands, as they are told to a person."""

from __future__ import annotations

from onceward.contracts import AnySink
from onceward.errors import DamagedFile, EpochLost, OutputLost, ReceiptsMoved
from onceward.identity import SinkName
from onceward.journal import Manifest, SinkEntry


def output_lost(why: str, sink: AnySink, manifest: Manifest) -> OutputLost:
    """The refusal of an epoch that the target has lost a part of."""
    return OutputLost(
        f"the target no longer has what was staged: {why}",
        epoch=manifest.epoch,
        sink=sink.name,
        hint=f"if no slot of it is published, `onceward rewind CHECKPOINT {manifest.epoch}` computes it again; else "
        "bring the rows of the slot named above in by hand (computing it again would repeat the others), and say so: "
        f"`onceward resolve slot-is-in FILE --epoch {manifest.epoch} --sink {sink.name!r} --slot K`; "
        f"{exits(manifest.epoch)}",
    )


def refuse_moved(entry: SinkEntry, now: str, *, epoch: int, sink: SinkName) -> None:
    """A decided epoch may be published, with its receipt where nobody looks any more: it would be sent again."""
    if entry.slots and entry.receipts_at and now and entry.receipts_at != now:
        raise ReceiptsMoved(
            f"the receipts of this epoch stand at {entry.receipts_at}, and the sink keeps them at {now} now",
            epoch=epoch,
            sink=sink,
            hint="start once with the former setting, so that the epoch is settled, then change it; if the "
            f"place is gone and the target has the epoch: `onceward resolve epoch-is-published FILE {epoch}`; "
            f"if it has nothing of it, give up what is staged (`onceward resolve accept-loss FILE {epoch}`), "
            f"then `onceward rewind CHECKPOINT {epoch}`: Spark computes it again",
        )


def with_exits(error: DamagedFile, epoch: int) -> DamagedFile:
    """The same, with the ways to go on without the file."""
    return DamagedFile(
        error.message,
        epoch=epoch,
        sink=error.sink,
        hint=f"{error.hint}; or, if nothing of epoch {epoch} or later is published, `onceward rewind CHECKPOINT "
        f"{epoch}` computes it again; {exits(epoch)}",
    )


def contradiction(epoch: int) -> EpochLost:
    """The refusal of an epoch that the target has, though the engine has not decided it, and nobody knows what of."""
    return EpochLost(
        "the target has receipts of an undecided epoch whose manifest is gone",
        epoch=epoch,
        hint=f"restore the folder onceward/manifests of this checkpoint from a backup; {exits(epoch)}",
    )


def exits(epoch: int) -> str:
    """What a person may say of an epoch that cannot be brought to an end."""
    return (
        f"if it is in the target, `onceward resolve epoch-is-published FILE {epoch}`; to go on without it, "
        f"`onceward resolve accept-loss FILE {epoch}` (both take --sink)"
    )
