"""The two holes of every write-ahead sink, and how the receipt closes them (scenario 7)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from sink_cases import fake

from onceward.contracts import AnySink, Guarantee
from onceward.testing import (
    Audit,
    Behaviour,
    Crash,
    Crashed,
    DiesAt,
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Faults,
    Harness,
    MemoryTarget,
    Source,
)


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
    result = after_a_crash(kind, DiesAt("sink plain sent-batch"))
    assert result.duplicate
    assert result.at_least_once


@pytest.mark.parametrize("kind", [FakeWriteAheadSink, without_committer])
def test_a_crash_between_send_values_and_committer_repeats_the_slot(kind: Callable[..., AnySink]) -> None:
    result = after_a_crash(kind, DiesAt("sink plain send_values", after=True))
    assert len(result.duplicate) == 4, "the whole slot, and not the one that was never sent"
    assert result.at_least_once


def test_the_committer_spares_the_slots_that_it_knows() -> None:
    with_committer = after_a_crash(FakeWriteAheadSink, DiesAt("committer told 0.0", after=True))
    without = after_a_crash(without_committer, DiesAt("sink plain send_values", after=True))
    assert with_committer.exactly_once
    assert without.duplicate


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("others", [(), (FakeTwoPhaseSink,)], ids=["alone", "beside another"])
def test_s06_a_forgotten_decision_is_remembered_by_the_committer(
    guarantee: Guarantee, others: tuple[Callable[..., AnySink], ...]
) -> None:
    """Computed again the epoch would have two slots, and the committer knows two of the three that there were."""
    plain = fake(FakeWriteAheadSink)
    harness = Harness(*map(fake, others), plain, source=Source(ends=(9,)), guarantee=guarantee)
    harness.life(DiesAt("committer told 0.1", after=True), Behaviour(partitions=lambda epoch: 3))
    harness.logs.forget_commit(0)
    harness.drain(behaviour=Behaviour(partitions=lambda epoch: 2))
    found = harness.audits()[plain.sink.name]
    assert found.missing == ()
    assert found.exactly_once


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
@pytest.mark.parametrize("after", [False, True])
def test_with_the_receipt_neither_hole_is_there(kind: Callable[..., AnySink], after: bool) -> None:
    assert after_a_crash(kind, DiesAt("sink transactional send", after=after)).exactly_once


def test_with_the_receipt_a_crash_inside_the_transaction_leaves_no_trace() -> None:
    assert after_a_crash(CrashesInside, Faults()).exactly_once
