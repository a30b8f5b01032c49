"""What an attack on the look-back and the replay found: each went wrong once, and is held here."""

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest
from restored_target import KEEPING, SOURCE, Movable, context_of, refusal, target_of, went_back
from sink_cases import fake

from onceward.admin import plan_replay, replay
from onceward.contracts import Guarantee, SlotValues
from onceward.epoch import PublishLimits
from onceward.identity import JobIdentity
from onceward.journal import Diversion, Diversions, Marker
from onceward.testing import (
    DiesAt,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    MemoryStorage,
    MemoryTarget,
    Source,
    TargetError,
)


class Replacing(FakeTransactionalSink):
    """Each epoch takes the place of what was there, also one without rows."""

    takes_empty_epochs = True

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        self.target.rows.clear()
        return super().send_transaction(slots, job, checkpoint_id, timestamp)


def test_an_at_most_once_epoch_is_not_replaced_by_its_own_announcement() -> None:
    harness = Harness(fake(Replacing), source=Source(ends=(4, 8)), guarantee=Guarantee.AT_MOST_ONCE)
    assert isinstance(harness.life(), Finished)
    assert {row["epoch"] for row in target_of(harness).rows} == {1}


def test_receipts_that_moved_with_all_settled_are_not_missed_and_not_replayed() -> None:
    harness = Harness(fake(Movable), source=SOURCE, limits=KEEPING)
    harness.life(until=2)
    harness.subjects[0].sink.at = "schema b"
    target_of(harness).receipts.clear()
    assert isinstance(harness.life(until=2), Finished)
    assert plan_replay(context_of(harness)) == []


def test_a_mirror_whose_receipts_stand_at_another_place_is_compared_all_the_same() -> None:
    harness = Harness(fake(Movable), source=SOURCE, limits=KEEPING)
    harness.life(until=0)
    backup = target_of(harness).backup()
    harness.life(until=2)
    target_of(harness).restore(backup)
    harness.subjects[0].sink.at = "schema b"
    assert "lacks epochs 1 to 2" in refusal(harness).message


def test_what_was_published_on_top_of_the_gap_does_not_hide_what_is_below_it() -> None:
    limits = PublishLimits(deadline_s=2.0, keep_receipts=2, look_back_every_s=1e9)
    harness = Harness(fake(FakeTransactionalSink), source=Source(ends=tuple(range(4, 44, 4))), limits=limits)
    harness.life(until=1)
    backup = target_of(harness).backup()
    harness.life(until=5)

    class Restored(DiesAt):
        """While epoch 6 is staged, without any failure."""

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("storage open_new wal/6"):
                target_of(harness).restore(backup)
            return call()

    harness.life(Restored("never"), until=6)
    assert "lacks epochs 2 to 5" in refusal(harness).message


def test_rows_that_were_diverted_stay_out_of_a_replay() -> None:
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE, limits=KEEPING)
    harness.life(DiesAt("sink transactional send 1"))
    context = context_of(harness)
    manifest = context.register.manifest(1, 0)
    assert manifest is not None
    (name, entry), *_ = manifest.sinks.items()
    left_out = {str(entry.slots[0].handle["transaction"]): (0,)}
    Diversions(harness.storage).create(Diversion(1, name, left_out, "elsewhere"))
    before = target_of(harness).backup()
    harness.life(until=2)
    rows = sorted(row["id"] for row in target_of(harness).rows)
    assert len(rows) == 11
    target_of(harness).restore(before)
    refusal(harness)
    replay(context_of(harness))
    assert sorted(row["id"] for row in target_of(harness).rows) == rows


def test_a_transaction_of_an_epoch_that_a_first_release_settled_is_not_aborted() -> None:
    """Its marker names no transactions: nobody can tell whether this is the only copy."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(DiesAt("sink two-phase commit"))
    backup = target_of(harness).backup()
    harness.life(until=0)
    settled = context_of(harness).settled
    marker = settled.marker(0)
    assert marker is not None
    settled.forget(0)
    settled.mark(Marker(0, marker.fingerprint, marker.settled_at, marker.sinks))
    target_of(harness).restore(backup)
    harness.life()
    assert len(target_of(harness).transactions) >= 1


def test_a_flipped_bit_in_a_kept_epoch_stops_no_sweep() -> None:
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE, limits=KEEPING)
    harness.life(until=1)
    assert isinstance(harness.storage, MemoryStorage)
    harness.storage.files["published/0"] = b"torn"
    assert isinstance(harness.life(), Finished)


def test_a_failure_in_the_middle_of_a_replay_is_no_target_that_went_back() -> None:
    harness = went_back(FakeTransactionalSink, to=0, limits=KEEPING)
    context = context_of(harness)
    send, failures = type(context.sinks[0]).send_transaction, [TargetError("connection lost")]

    class Flaky(FakeTransactionalSink):
        def send_transaction(self, *args):
            if failures:
                raise failures.pop()
            return send(self, *args)

    context.sinks[0].__class__ = Flaky
    assert [one.epoch for one in replay(context)] == [1, 2]


def test_an_epoch_without_rows_is_kept_for_a_sink_that_replaces() -> None:
    harness = Harness(fake(Replacing), source=Source(ends=(4, 4, 8)), limits=KEEPING)
    harness.life(until=0)
    backup = target_of(harness).backup()
    harness.life(until=1)
    target_of(harness).restore(backup)
    refusal(harness)
    assert [one.epoch for one in replay(context_of(harness))] == [1]
    assert target_of(harness).rows == []


def test_receipts_that_moved_under_an_epoch_that_is_not_decided_are_no_reason_to_stop() -> None:
    harness = Harness(fake(Movable), source=SOURCE)
    harness.life(DiesAt("log commit 1"))
    harness.subjects[0].sink.at = "schema b"
    harness.drain()
    assert harness.problems() == []


@pytest.mark.parametrize("kind", [FakeTransactionalSink, FakeTwoPhaseSink], ids=lambda kind: kind.__name__)
def test_it_is_noticed_by_time_and_not_only_every_twentieth_epoch(kind: Callable[..., object]) -> None:
    harness = Harness(fake(kind), source=SOURCE, limits=PublishLimits(deadline_s=2.0, look_back_every_s=0.0))
    backups: list[MemoryTarget] = []

    class Restored(DiesAt):
        """To nothing, after epoch 0 was settled."""

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("log plan 1") and not backups:
                backups.append(MemoryTarget())
                target_of(harness).restore(backups[0])
            return call()

    ending = harness.life(Restored("never"), until=1)
    assert "TargetRolledBack" in repr(ending)
