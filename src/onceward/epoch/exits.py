"""The ways on from a decided epoch that cannot be published as it stands, as they are told to a person."""

from __future__ import annotations

from onceward.contracts import AnySink
from onceward.errors import DamagedFile, OutputLost
from onceward.manifest import Manifest


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


def with_exits(error: DamagedFile, epoch: int) -> DamagedFile:
    """The same, with the ways to go on without the file."""
    return DamagedFile(
        error.message,
        epoch=epoch,
        sink=error.sink,
        hint=f"{error.hint}; or, if nothing of epoch {epoch} or later is published, `onceward rewind CHECKPOINT "
        f"{epoch}` computes it again; {exits(epoch)}",
    )


def exits(epoch: int) -> str:
    """What a person may say of an epoch that cannot be brought to an end."""
    return (
        f"if it is in the target, `onceward resolve epoch-is-published FILE {epoch}`; to go on without it, "
        f"`onceward resolve accept-loss FILE {epoch}` (both take --sink)"
    )
