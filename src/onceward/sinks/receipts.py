"""Which slots of an epoch still have to be sent, given the receipts that the target holds: one rule for every sink.

Pure: the sink reads receipts and watermark where they cannot change before its own are written, and asks here. In Redis
that place is inside the script that writes, which cannot ask here: it has the one copy of the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onceward.contracts import Receipt, SlotValues
from onceward.errors import CheckpointRolledBack
from onceward.identity import IMMEDIATE, Fingerprint


def is_in(receipt: Receipt, found: Iterable[Fingerprint], *, settled: int) -> bool:
    """Whether the target has the slot that this receipt would prove.

    `found` are the fingerprints of the slot's receipts in the target, `settled` is the watermark: up to that epoch
    receipts may be gone, because everything is in; -1 when none is. Output that went to the target before its epoch
    was decided proves nothing. A receipt of other rows tells that this checkpoint went back.
    """
    proofs = {fingerprint for fingerprint in found if fingerprint != IMMEDIATE}
    if proofs - {receipt.fingerprint}:
        raise rolled_back(receipt.slot, epoch=receipt.epoch, sink=receipt.sink)
    return bool(proofs) or receipt.epoch <= settled


def slots_to_send(
    slots: Sequence[SlotValues], found: Iterable[tuple[int, Fingerprint]], *, settled: int
) -> list[SlotValues]:
    """Those that the target does not have, in order, and all that are to have no receipt.

    `found` are the receipts of this epoch in the target: slot and fingerprint.
    """
    by_slot: dict[int, list[Fingerprint]] = {}
    for slot, fingerprint in found:
        by_slot.setdefault(slot, []).append(fingerprint)
    return [
        values
        for values in slots
        if values.receipt is None or not is_in(values.receipt, by_slot.get(values.slot, ()), settled=settled)
    ]


def rolled_back(slot: int, *, epoch: int, sink: str | None = None) -> CheckpointRolledBack:
    """The error for a receipt that proves other rows than those that this checkpoint would send."""
    return CheckpointRolledBack(
        f"the target's receipt of slot {slot} is that of another epoch {epoch}: this checkpoint was rolled back",
        hint="start from the checkpoint that wrote it, or from a savepoint",
        epoch=epoch,
        sink=sink,
    )
