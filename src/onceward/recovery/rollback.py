"""A checkpoint that was restored from a savepoint, and targets that are ahead of it: which epochs, how many rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from onceward.contracts import Receipt
from onceward.epoch import as_ranges
from onceward.errors import CheckpointRolledBack, OncewardError
from onceward.identity import Generation, SinkName
from onceward.journal import Restored, SettledLog
from onceward.storage import LocalStorage

Delivered = Mapping[tuple[SinkName, int], int]
"""How many rows a sink got in an epoch."""


def later_receipts(receipts: Iterable[Receipt], restored: Restored, known: Collection[Generation]) -> list[Receipt]:
    """What the targets have from after the savepoint, and nobody has accepted.

    Of the generations that are `known` only those count that may go on, its ancestors: what the others have left there
    was accepted before. At the first start those that nobody knows count as well; later they are another checkpoint's.
    """
    strangers = not restored.is_begun
    return [
        r
        for r in receipts
        if r.epoch > restored.accepted_of(r.generation, r.sink)
        and (r.generation in restored.ancestors or (strangers and r.generation not in known))
    ]


def begun(restored: Restored | None, receipts: Iterable[Receipt]) -> Restored | None:
    """As it is written down once a start may go on: whatever its ancestors have in the targets is accepted. In each for
    itself: what one has still to come would be a surprise, though another one has it."""
    if restored is None:
        return None
    accepted = {generation: dict(sinks) for generation, sinks in restored.accepted.items()}
    for one in sorted(receipts, key=lambda receipt: receipt.epoch):
        if one.generation in restored.ancestors and one.epoch > restored.accepted_of(one.generation, one.sink):
            accepted.setdefault(one.generation, {})[one.sink] = one.epoch
    return replace(restored, accepted=accepted, is_begun=True)


def rows_delivered(restored: Restored) -> Delivered:
    """As the settled markers of the former checkpoint tell, if that is still where it was."""
    found: dict[tuple[SinkName, int], int] = {}
    markers = SettledLog(LocalStorage(Path(restored.origin) / "onceward"))
    try:
        if not restored.origin or not (Path(restored.origin) / "onceward").is_dir():
            return found
        for epoch in markers.epochs():
            marker = markers.legible(epoch) if epoch > restored.epoch else None
            if marker is not None and marker.manifest is not None:
                found.update({(name, epoch): total.rows for name, total in marker.sinks.items()})
    except (OSError, OncewardError):
        return {}
    return found


def told_by_sink(restored: Restored, later: Sequence[Receipt], delivered: Delivered) -> dict[SinkName, str]:
    """For each sink its later epochs, and how many rows they have, where that is known. Old receipts may be pruned: all
    that is between the savepoint and the newest one is in."""
    told = {}
    for sink in sorted({r.sink for r in later}):
        mine = [r for r in later if r.sink == sink]
        first = min(restored.accepted_of(r.generation, sink) for r in mine) + 1
        epochs = range(first, max(r.epoch for r in mine) + 1)
        rows = [delivered.get((sink, epoch)) for epoch in epochs]
        known = [count for count in rows if count is not None]
        least = "" if len(known) == len(rows) else "at least "
        told[sink] = as_ranges(epochs) + (f" ({least}{sum(known):,} rows)" if known else "")
    return told


def restored_behind(restored: Restored, later: Sequence[Receipt], delivered: Delivered) -> CheckpointRolledBack:
    """The refusal of a restored checkpoint whose targets are ahead of its savepoint."""
    told = "; ".join(f"sink {sink!r} has {what}" for sink, what in told_by_sink(restored, later, delivered).items())
    return CheckpointRolledBack(
        f"this checkpoint was restored from a savepoint of epoch {restored.epoch}, and its targets have later epochs: "
        f"{told}. The source rows since then would be delivered a second time",
        epoch=restored.epoch,
        hint="restore a newer savepoint, or give the job another target; or, to deliver them a second time, "
        "start once with --accept rollback (in Python: accept='rollback'). `onceward savepoint restore` with --job "
        "FILE says what that does to each target",
    )
