"""The rule by which every sink publishes, as a table: which slots still have to be sent."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from onceward.contracts import Receipt, SlotValues
from onceward.errors import CheckpointRolledBack
from onceward.identity import IMMEDIATE, Fingerprint, Generation, JobName, SinkName
from onceward.sinks.receipts import is_in, slots_to_send

OURS, OTHER = Fingerprint("ours"), Fingerprint("other")
EPOCH = 7


def receipt(slot: int) -> Receipt:
    return Receipt(JobName("job"), Generation("aaaaaaaa"), SinkName("sink"), EPOCH, slot, OURS)


def nothing() -> Iterator[pa.RecordBatch]:
    return iter(())


def values(*slots: int, with_receipts: bool = True) -> list[SlotValues]:
    return [SlotValues(slot, 1, receipt(slot) if with_receipts else None, nothing) for slot in slots]


@pytest.mark.parametrize(
    ("found", "settled", "sent"),
    [
        ([], -1, [0, 1, 2]),
        ([], EPOCH - 1, [0, 1, 2]),
        ([(1, OURS)], -1, [0, 2]),
        ([(0, OURS), (1, OURS), (2, OURS)], -1, []),
        # Both attempts of a slot can have left their receipt.
        ([(0, OURS), (0, OURS)], -1, [1, 2]),
        # Receipts below the watermark may have been pruned: all is in.
        ([], EPOCH, []),
        ([], EPOCH + 1, []),
        ([(1, OURS)], EPOCH, []),
        # What went to the target before the decision proves nothing, also beside a proof.
        ([(1, IMMEDIATE)], -1, [0, 1, 2]),
        ([(1, IMMEDIATE), (1, OURS)], -1, [0, 2]),
        # A slot that this epoch has not.
        ([(5, OURS)], -1, [0, 1, 2]),
    ],
)
def test_what_has_its_receipt_or_is_settled_is_not_sent(
    found: list[tuple[int, Fingerprint]], settled: int, sent: list[int]
) -> None:
    assert [slot.slot for slot in slots_to_send(values(0, 1, 2), found, settled=settled)] == sent


@pytest.mark.parametrize("found", [[(1, OTHER)], [(1, OURS), (1, OTHER)], [(1, IMMEDIATE), (1, OTHER)]])
@pytest.mark.parametrize("settled", [-1, EPOCH])
def test_a_receipt_of_other_rows_tells_that_the_checkpoint_went_back(
    found: list[tuple[int, Fingerprint]], settled: int
) -> None:
    with pytest.raises(CheckpointRolledBack, match="slot 1 is that of another epoch 7") as caught:
        slots_to_send(values(0, 1), found, settled=settled)
    assert (caught.value.epoch, caught.value.sink) == (EPOCH, "sink")
    assert "savepoint" in (caught.value.hint or "")


@pytest.mark.parametrize("settled", [-1, EPOCH])
def test_slots_that_are_to_have_no_receipt_are_sent_whatever_the_target_holds(settled: int) -> None:
    slots = values(0, 1, with_receipts=False)
    assert slots_to_send(slots, [(0, OTHER), (1, OURS)], settled=settled) == slots


def test_one_slot_is_judged_as_all_of_them_are() -> None:
    assert is_in(receipt(0), [OURS], settled=-1)
    assert not is_in(receipt(0), [], settled=EPOCH - 1)
    assert is_in(receipt(0), [], settled=EPOCH)
