"""A target that both templates can serve: what one start chose, the next may choose otherwise, and nothing is lost."""

import pytest
from sink_cases import SMALL

from onceward.contracts import AnySink
from onceward.errors import SinkMissing
from onceward.testing import (
    CrashAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Harness,
    MemoryLogs,
    MemoryStorage,
    MemoryTarget,
    SinkUnderTest,
    Source,
)
from onceward.testing.faults import shown


def both_variants(target: MemoryTarget) -> tuple[AnySink, AnySink]:
    """Each with the other as its other way."""
    made: list[AnySink] = []
    for kinds in ((FakeTwoPhaseSink, FakeTransactionalSink), (FakeTransactionalSink, FakeTwoPhaseSink)):
        chosen, other = (kind(target, name="either") for kind in kinds)
        chosen.alternate = other
        made.append(chosen)
    return made[0], made[1]


def world(target: MemoryTarget, sink: AnySink, source: Source = SMALL) -> Harness:
    subject = SinkUnderTest(sink, lambda: target.rows)
    return Harness(subject, source=source, storage=MemoryStorage(), logs=MemoryLogs(), rows_in_a_batch=1)


def change_to(harness: Harness, target: MemoryTarget, sink: AnySink) -> None:
    harness.subjects = (SinkUnderTest(sink, lambda: target.rows),)


@pytest.mark.parametrize("first", [0, 1], ids=["two-phase-then-log", "log-then-two-phase"])
def test_after_a_crash_at_any_point_the_alternate_finishes_what_the_first_began(
    first: int, record_sweep: list[str]
) -> None:
    undisturbed = CrashAt(None)
    world(MemoryTarget(), both_variants(MemoryTarget())[first]).life(undisturbed)
    for point in range(undisturbed.points):
        target = MemoryTarget()
        variants = both_variants(target)
        harness = world(target, variants[first])
        harness.life(CrashAt(point))
        change_to(harness, target, variants[1 - first])
        harness.drain()
        assert not harness.problems(), f"crash at {point}: {harness.problems()}\n{shown(harness.trace)}"
        assert not target.transactions
    assert undisturbed.points > 20
    record_sweep.append(f"template changed after a crash: {undisturbed.points} points")


def test_rows_that_wait_for_a_template_which_the_sink_no_longer_has_stop_the_job() -> None:
    seen = 0
    for point in range(60):
        target = MemoryTarget()
        harness = world(target, FakeTransactionalSink(target, name="either"))
        harness.life(CrashAt(point))
        change_to(harness, target, FakeTwoPhaseSink(target, name="either"))
        ending = harness.life()
        if isinstance(ending, Failed):
            assert isinstance(ending.error, SinkMissing)
            assert "former kind" in str(ending.error)
            seen += 1
            change_to(harness, target, FakeTransactionalSink(target, name="either"))
            harness.drain()
        assert not harness.problems()
    assert seen


class Replacing(FakeTransactionalSink):
    """Every epoch is the whole result."""

    takes_empty_epochs = True

    def __init__(self, target: MemoryTarget) -> None:
        super().__init__(target, name="replacing")
        self.sent: list[tuple[int, int]] = []

    def send_transaction(self, slots, job, checkpoint_id, timestamp):
        self.target.rows.clear()
        self.sent.append((checkpoint_id, sum(slot.rows for slot in slots)))
        return super().send_transaction(slots, job, checkpoint_id, timestamp)


def test_an_empty_epoch_reaches_a_sink_that_replaces_and_no_other() -> None:
    target = MemoryTarget()
    sink = Replacing(target)
    world(target, sink, Source(ends=(2, 2, 3), keys=2)).drain()
    assert sink.sent == [(0, 2), (1, 0), (2, 1)]
    assert len(target.rows) == 1
    assert {(receipt.epoch, receipt.slot) for receipt in target.receipts.values()} >= {(1, 0)}
    plain = MemoryTarget()
    world(plain, FakeTransactionalSink(plain), Source(ends=(2, 2, 3), keys=2)).drain()
    assert {receipt.epoch for receipt in plain.receipts.values()} == {0, 2}


def test_an_empty_epoch_is_replaced_by_recovery_too() -> None:
    for point in range(40):
        target = MemoryTarget()
        sink = Replacing(target)
        harness = world(target, sink, Source(ends=(2, 2), keys=2))
        harness.life(CrashAt(point))
        harness.drain()
        assert target.rows == [], f"crash at {point}\n{shown(harness.trace)}"
