"""The two holes of every write-ahead sink, and how the receipt closes them (scenario 7; DESIGN §6)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from casts import fake

from onceward.contracts import AnySink
from onceward.testing import (
    Audit,
    Crash,
    Crashed,
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeWriteAheadSink,
    Faults,
    Harness,
    MemoryTarget,
    Source,
)


class CrashWhen(Faults):
    """Dies before the first operation that the test picks."""

    def __init__(self, chosen: Callable[[str], bool]) -> None:
        super().__init__()
        self._chosen = chosen

    def perform(self, what: str, call: Callable[[], Any], **options: Any) -> Any:
        if self.dead or self._chosen(what):
            raise self.die(what)
        return call()


class CrashAfter(CrashWhen):
    """Dies after it."""

    def perform(self, what: str, call: Callable[[], Any], **options: Any) -> Any:
        if self.dead:
            raise Crash(what)
        result = call()
        if self._chosen(what):
            raise self.die(what)
        return result


def after_a_crash(kind: Callable[[MemoryTarget], AnySink], faults: Faults) -> Audit:
    """What the target has after a driver died that way and another one finished."""
    harness = Harness(fake(kind), source=Source(ends=(8,), keys=2), rows_in_a_batch=1)
    assert isinstance(harness.life(faults), Crashed)
    harness.drain()
    return next(iter(harness.audits().values()))


def without_committer(target: MemoryTarget) -> FakeWriteAheadSink:
    return FakeWriteAheadSink(target, committer=False)


@pytest.mark.parametrize("kind", [FakeWriteAheadSink, without_committer])
def test_a_crash_inside_send_values_repeats_rows_with_the_plain_committer(kind: Callable[..., AnySink]) -> None:
    result = after_a_crash(kind, CrashWhen(lambda what: "sent-batch" in what))
    assert result.duplicate
    assert result.at_least_once


@pytest.mark.parametrize("kind", [FakeWriteAheadSink, without_committer])
def test_a_crash_between_send_values_and_committer_repeats_the_slot(kind: Callable[..., AnySink]) -> None:
    result = after_a_crash(kind, CrashAfter(lambda what: "send_values" in what))
    assert len(result.duplicate) == 4, "the whole slot, and not the one that was never sent"
    assert result.at_least_once


def test_the_committer_spares_the_slots_that_it_knows() -> None:
    with_committer = after_a_crash(FakeWriteAheadSink, CrashAfter(lambda what: what == "committer told 0.0"))
    without = after_a_crash(without_committer, CrashAfter(lambda what: "send_values" in what))
    assert with_committer.exactly_once
    assert without.duplicate


class CrashesInside(FakeTransactionalSink):
    """Dies once, in the middle of its transaction: after it has read some rows, before it commits."""

    died = False

    def send_transaction(self, slots: Any, job: Any, checkpoint_id: int, timestamp: datetime) -> bool:
        if not self.died:
            self.died = True
            next(iter(slots[0].read()))
            raise Crash("inside the transaction")
        return super().send_transaction(slots, job, checkpoint_id, timestamp)


@pytest.mark.parametrize("kind", [FakeTransactionalSink, FakeSlotwiseSink])
@pytest.mark.parametrize("faults", [CrashWhen, CrashAfter])
def test_with_the_receipt_neither_hole_is_there(kind: Callable[..., AnySink], faults: type[CrashWhen]) -> None:
    assert after_a_crash(kind, faults(lambda what: " send " in what)).exactly_once


def test_with_the_receipt_a_crash_inside_the_transaction_leaves_no_trace() -> None:
    assert after_a_crash(CrashesInside, Faults()).exactly_once
