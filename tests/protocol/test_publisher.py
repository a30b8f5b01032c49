"""The publisher by itself: what it compares before it publishes, what it takes for success, and when it gives up."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
from lone_driver import context_of, job, plan, publisher_of

from onceward.contracts import Guarantee, Handle, Outcome, RetryLater
from onceward.epoch import Publisher, PublishLimits
from onceward.epoch.takeover import LOOKS
from onceward.errors import CheckpointRolledBack, DamagedFile, PublishFailed
from onceward.testing import (
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Harness,
    MemoryLogs,
    MemoryTarget,
    PausedAt,
)
from onceward.testing.engine import COMMITS_ENTRY
from onceward.testing.fakes import ManualClock

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
Kind = Callable[..., Any]


def target_of(harness: Harness) -> MemoryTarget:
    target = harness.sinks[0].target
    assert isinstance(target, MemoryTarget)
    return target


@KINDS
def test_a_manifest_of_other_rows_than_those_that_were_decided_is_not_published(kind: Kind) -> None:
    """Another driver wrote over the barrier and decided its own epoch 0; ours was staged for the rows before that."""
    harness = job(kind)
    harness.life(DiesAt("log commit 0"))
    plan(harness, end=3)
    harness.logs.commit(0, COMMITS_ENTRY)
    with pytest.raises(CheckpointRolledBack, match="another epoch of this number"):
        publisher_of(harness).publish_decided()
    assert harness.subjects[0].read() == []
    assert harness.storage.names("settled") == []


def test_a_manifest_that_was_read_after_its_epoch_was_settled_is_not_published() -> None:
    """The zombie's tasks write late too, so that all it names is there: nothing but the watermark tells."""
    harness = job(FakeTwoPhaseSink, ends=(4,))
    zombie = DiesAt("storage create manifests/0.0.json")
    harness.life(zombie)
    late_tasks = deepcopy(target_of(harness).transactions)
    assert late_tasks
    harness.life(DiesAt("storage create settled/0"))

    def settle_then_let_the_zombie_arrive() -> None:
        harness.drain()
        target_of(harness).transactions.update(late_tasks)
        assert zombie.arrive() is True

    publisher_of(
        harness, faults=PausedAt("storage names manifests", settle_then_let_the_zombie_arrive)
    ).publish_decided()
    assert harness.audits()["two-phase"].exactly_once
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_a_manifest_that_is_about_to_be_written_is_waited_for(kind: Kind) -> None:
    harness = job(kind, ends=(4,))
    writer = DiesAt("storage create manifests/0.0.json")
    harness.life(writer)
    harness.logs.commit(0, COMMITS_ENTRY)

    class WritesMeanwhile(ManualClock):
        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            writer.arrive()

    assert publisher_of(harness, clock=WritesMeanwhile()).publish_decided() == 0
    assert harness.audits()[str(harness.sinks[0].name)].exactly_once


@KINDS
def test_an_epoch_that_a_rival_settles_while_its_manifest_is_looked_for_is_no_loss(kind: Kind) -> None:
    """The rival needs all the time that it is given."""
    harness = job(kind, ends=(4,))
    writer = DiesAt("storage create manifests/0.0.json")
    harness.life(writer)
    harness.logs.commit(0, COMMITS_ENTRY)

    class SettledLate(ManualClock):
        pauses = 0

        def pause(self, seconds: float) -> None:
            super().pause(seconds)
            self.pauses += 1
            if self.pauses == LOOKS:
                writer.arrive()
                harness.drain()

    assert publisher_of(harness, clock=SettledLate()).publish_decided() == 0
    assert harness.problems() == []


class Repartitioned(MemoryLogs):
    """Epoch 1 has the barrier of one that Spark makes alone when it repartitions the state."""

    def plan(self, epoch: int, text: str) -> None:
        super().plan(epoch, text.replace('{"end": 8}', '{"end": 4}').replace('"200"', '"50"') if epoch == 1 else text)


@KINDS
@pytest.mark.parametrize("torn", ["manifests/1.0.json", "manifests/1.1.fate"])
def test_an_epoch_with_a_damaged_manifest_was_not_made_by_the_engine_alone(kind: Kind, torn: str) -> None:
    """Whatever its barrier looks like: rows are staged for it."""
    harness = job(kind, ends=(4, 8, 12), logs=Repartitioned())
    harness.life(until=0)
    harness.life(DiesAt("log commit 1", after=True))
    assert harness.logs.is_engine_made(1)
    files = harness.storage.files
    staged = {path for path in files if path.startswith("wal/1/")}
    files[torn] = files.get(torn, b"torn and much too short for it")[:-20]
    if torn.endswith("fate"):
        files["manifests/1.1.reserved"] = b"x"
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, DamagedFile)
    assert staged <= files.keys()
    assert "settled/1" not in files


class LeavesOneOut(FakeTwoPhaseSink):
    """Commits and answers for all slots but the last."""

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        return [self.commit(handle) for handle in handles[:-1]]


def test_a_commit_that_does_not_answer_for_every_slot_settles_nothing() -> None:
    harness = job(LeavesOneOut)
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, PublishFailed)
    assert "left slots out" in str(ending.error)
    assert harness.storage.names("settled") == []
    assert harness.leftovers(), "the slot that was left out is still staged"


class LockedOnce(FakeTwoPhaseSink):
    """The second commit of all finds the table locked."""

    commits = 0

    def commit(self, handle: Handle) -> Outcome:
        self.commits += 1
        return RetryLater("locked", after_s=0.1) if self.commits == 2 else super().commit(handle)


def test_a_delivery_that_is_repeated_is_an_outage_until_it_is_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="onceward")
    harness = job(LockedOnce, ends=(4,))
    harness.life(DiesAt("sink two-phase commit"))
    seen: list[tuple[str, int, str, float]] = []

    class Clock(ManualClock):
        def pause(self, seconds: float) -> None:
            outage = publisher.outage
            assert outage is not None
            seen.append((outage.sink, outage.epoch, outage.why, (outage.next_try - self.now()).total_seconds()))
            super().pause(seconds)

    publisher = publisher_of(harness, clock=Clock())
    publisher.publish_decided()
    assert seen == [("two-phase", 0, "locked", 0.1)]
    assert publisher.outage is None
    assert "locked; trying again in 0.1 s" in caplog.text
    assert "sink 'two-phase' takes rows again" in caplog.text


def test_one_slot_that_was_not_committed_keeps_the_whole_epoch_waiting() -> None:
    harness = job(LockedOnce)
    harness.drain()
    assert harness.problems() == []


class NotAtFirst(FakeTransactionalSink):
    """Its first answer is no, and nothing is written."""

    asked = 0

    def send_transaction(self, *args: Any, **options: Any) -> bool:
        self.asked += 1
        return self.asked > 1 and super().send_transaction(*args, **options)


def test_a_transaction_that_was_answered_with_no_is_sent_again() -> None:
    harness = job(NotAtFirst)
    harness.drain()
    assert harness.problems() == []


class RefusedOnce(FakeTransactionalSink):
    """The first transaction of all does not even reach the target."""

    asked = 0

    def send_transaction(self, *args: Any, **options: Any) -> bool:
        self.asked += 1
        if self.asked == 1:
            raise ConnectionError("refused")
        return super().send_transaction(*args, **options)


def test_a_delivery_that_raised_is_not_taken_for_done() -> None:
    harness = job(RefusedOnce)
    harness.drain()
    assert harness.problems() == []


class AlwaysLocked(FakeTwoPhaseSink):
    """Counts how often it was asked."""

    commits = 0

    def commit(self, handle: Handle) -> Outcome:
        self.commits += 1
        return RetryLater("locked", after_s=0.5)


def decided_for_a_locked_target() -> tuple[Harness, AlwaysLocked]:
    harness = job(AlwaysLocked, ends=(4,))
    harness.life(DiesAt("sink two-phase commit"))
    sink = harness.sinks[0]
    assert isinstance(sink, AlwaysLocked)
    return harness, sink


def test_a_target_that_takes_nothing_within_the_deadline_ends_the_waiting_and_keeps_the_epoch() -> None:
    harness, sink = decided_for_a_locked_target()
    clock = ManualClock()
    limits = PublishLimits(deadline_s=2.0)
    with pytest.raises(PublishFailed, match="locked"):
        publisher_of(harness, clock=clock, limits=limits).publish_decided()
    assert clock.monotonic() <= 2.0
    assert sink.commits > 2, "it was asked again"
    assert harness.leftovers()


def test_a_run_that_is_being_stopped_repeats_no_failed_delivery() -> None:
    harness, sink = decided_for_a_locked_target()
    stopping = Publisher(context_of(harness), PublishLimits(), is_cancelled=lambda: True)
    with pytest.raises(PublishFailed):
        stopping.publish_decided()
    assert sink.commits == 1, "nor is the other slot tried"


def test_at_most_once_the_committer_is_told_nothing() -> None:
    """What left before the decision is no proof of one, should the job become exactly-once."""
    harness = job(FakeWriteAheadSink, guarantee=Guarantee.AT_MOST_ONCE)
    harness.drain()
    assert harness.subjects[0].read()
    assert target_of(harness).sent == set()


@KINDS
def test_what_is_gone_because_another_driver_settled_the_epoch_is_no_loss(kind: Kind) -> None:
    harness = job(kind, ends=(4,), limits=PublishLimits(deadline_s=2.0, keep_receipts=0, reap_every=1))
    delivering = "sink two-phase commit" if kind is FakeTwoPhaseSink else "sink transactional send"
    harness.life(DiesAt(delivering))

    def publish_and_forget() -> None:
        harness.drain()
        target_of(harness).receipts.clear()
        target_of(harness).watermarks.clear()

    assert publisher_of(harness, faults=PausedAt(delivering, publish_and_forget)).publish_decided() == 0
    assert harness.audits()[str(harness.sinks[0].name)].exactly_once
