"""Crash windows and order: scenarios 1 to 6, 9 to 21, 50, 60 to 62, 64 and 67 of docs/scenarios.md, each by its number.

Scenario 7 is in test_two_classic_holes.py; 8 in test_crash_sweep.py; 27 to 30 in test_two_drivers.py.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from sink_cases import fake

from onceward.contracts import Hooks, Outcome, RetryLater
from onceward.epoch import PublishLimits
from onceward.errors import DamagedFile, PublishFailed, StorageFailed
from onceward.testing import (
    Behaviour,
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Faults,
    Finished,
    Harness,
    Late,
    ManualClock,
    MemoryStorage,
    RandomFaults,
    Rates,
    Source,
)

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
Kind = Callable[..., Any]


def job(*kinds: Kind, ends: tuple[int, ...] = (4, 8), **options: Any) -> Harness:
    return Harness(*(fake(kind) for kind in kinds), source=Source(ends=ends), **options)


def finished_cleanly(harness: Harness) -> None:
    harness.drain()
    assert harness.problems() == []


def visible(harness: Harness) -> list[int]:
    return sorted(row["id"] for row in harness.subjects[0].read())


@KINDS
def test_s01_crash_after_staging_before_pre_commit(kind: Kind) -> None:
    harness = job(kind)
    harness.life(DiesAt("storage create manifests/0.0"))
    assert harness.leftovers(), "something was staged"
    assert visible(harness) == []
    finished_cleanly(harness)


@KINDS
def test_s02_crash_after_pre_commit_before_the_decision(kind: Kind) -> None:
    harness = job(kind)
    harness.life(DiesAt("log commit 0"))
    assert visible(harness) == []
    finished_cleanly(harness)
    versions = {row["version"] for row in harness.subjects[0].read() if row["epoch"] == 0}
    assert versions == {"life-2.1"}, "it was thrown away and computed again"


@KINDS
def test_s03_the_decision_is_durable_and_nothing_was_told(kind: Kind) -> None:
    harness = job(kind)
    harness.life(DiesAt("log commit 0", after=True))
    assert visible(harness) == []
    finished_cleanly(harness)
    versions = {row["version"] for row in harness.subjects[0].read() if row["epoch"] == 0}
    assert versions == {"life-1.1"}, "what was decided is what is published"


def test_s04_some_slots_and_sinks_are_published_and_others_not() -> None:
    for at in ("sink two-phase commit", "sink transactional send", "sink two-phase"):
        harness = job(FakeTwoPhaseSink, FakeTransactionalSink)
        harness.life(DiesAt(at, after=True))
        finished_cleanly(harness)


class LosesReplies(Faults):
    """The target does what it is told, and every first answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self._lost: set[str] = set()

    def perform(self, what: str, call: Callable[[], Any], **options: Any) -> Any:
        result = call()
        if what.startswith(("sink two-phase commit", "sink transactional send")) and what not in self._lost:
            self._lost.add(what)
            raise ConnectionError("reply lost")
        return result


@KINDS
def test_s05_committed_and_the_reply_is_lost(kind: Kind) -> None:
    harness = job(kind)
    assert isinstance(harness.life(LosesReplies()), Finished)
    assert harness.problems() == []


@KINDS
@pytest.mark.parametrize("sweep", [False, True], ids=["receipts kept", "receipts pruned"])
def test_s06_published_and_the_commit_entry_is_gone(kind: Kind, sweep: bool) -> None:
    limits = PublishLimits(keep_receipts=0, reap_every=1) if sweep else None
    harness = job(kind, limits=limits)
    harness.life(until=0)
    harness.logs.forget_commit(0)
    finished_cleanly(harness)


@KINDS
def test_s06_half_published_and_the_commit_entry_is_gone(kind: Kind) -> None:
    harness = job(kind, FakeWriteAheadSink)
    harness.life(DiesAt("sink two-phase commit" if kind is FakeTwoPhaseSink else "sink transactional send", after=True))
    harness.logs.forget_commit(0)
    finished_cleanly(harness)
    versions = {row["version"] for row in harness.subjects[0].read() if row["epoch"] == 0}
    assert versions == {"life-1.1"}, "the target's receipt proves the decision"


@KINDS
def test_s09_the_same_checkpoint_recovered_twice(kind: Kind) -> None:
    harness = job(kind)
    harness.life(DiesAt("log commit 1"))
    for _ in range(3):
        harness.life(DiesAt("log commit 1"))
    finished_cleanly(harness)
    finished_cleanly(harness)


class FailsToBegin(FakeTwoPhaseSink):
    """After the first epoch, begin fails, and letting go fails too."""

    broken = True

    def begin_transaction(self, context: Any) -> Any:
        transaction = super().begin_transaction(context)
        if self.broken and context.epoch == 1:
            raise StorageFailed("no connection")
        return transaction

    def discard(self, transaction: Any) -> None:
        if self.broken:
            raise StorageFailed("no connection")

    def abort(self, handle: Any) -> None:
        if self.broken:
            raise StorageFailed("no connection")
        super().abort(handle)


def test_s10_pre_commit_works_then_begin_fails_and_the_rollback_fails() -> None:
    harness = job(FailsToBegin)
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert visible(harness) == [0, 1, 2, 3]
    assert any("pending" in left for left in harness.leftovers())
    harness.sinks[0].broken = False
    finished_cleanly(harness)


@KINDS
@pytest.mark.parametrize("at", ["storage delete wal/0", "storage delete manifests/0.0", "storage create settled/0"])
@pytest.mark.parametrize("after", [False, True])
def test_s11_staged_data_removed_and_settle_not_recorded_or_the_other_way_round(
    kind: Kind, at: str, after: bool
) -> None:
    harness = job(kind)
    harness.life(DiesAt(at, after=after))
    finished_cleanly(harness)


@KINDS
def test_s12_a_missed_notification_is_made_up_for_by_the_next(kind: Kind) -> None:
    harness = job(kind, ends=(4, 8, 12))
    assert isinstance(harness.life(behaviour=Behaviour(publishes=lambda epoch: epoch == 1), until=1), Finished)
    assert visible(harness) == list(range(8))
    finished_cleanly(harness)


@KINDS
def test_s13_a_late_notification_for_an_older_epoch_does_nothing(kind: Kind) -> None:
    harness = job(kind, ends=(4, 8, 12))
    seen = []

    def interrupts(publisher: Any) -> None:
        seen.append(publisher.publish_decided())
        seen.append(publisher.publish_decided())

    harness.life(behaviour=Behaviour(interrupts=interrupts))
    assert seen == sorted(seen)
    assert harness.problems() == []


@KINDS
def test_s14_an_epoch_aborts_and_runs_again(kind: Kind) -> None:
    harness = job(kind)
    refused = iter([True, True])

    def object_once(epoch: int) -> None:
        if epoch == 1 and next(refused, False):
            raise StorageFailed("a hook objects")

    for _ in range(2):
        assert isinstance(harness.life(behaviour=Behaviour(hooks=Hooks(on_pre_commit=object_once))), Failed)
        assert visible(harness) == [0, 1, 2, 3]
    finished_cleanly(harness)


class SaysNo(FakeWriteAheadSink):
    """Returns False for one epoch, as often as asked to."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.refusals = 3

    def send_values(self, values: Iterator[pa.RecordBatch], checkpoint_id: int, timestamp: datetime) -> bool:
        if checkpoint_id == 0 and self.refusals:
            self.refusals -= 1
            return False
        return super().send_values(values, checkpoint_id, timestamp)


def test_s15_send_values_returns_false_and_the_next_epoch_waits() -> None:
    harness = job(SaysNo, limits=PublishLimits(deadline_s=0.0))
    lazy = Behaviour(publishes=lambda epoch: False)
    for _ in range(3):
        ending = harness.life(behaviour=lazy)
        assert isinstance(ending, Failed)
        assert isinstance(ending.error, PublishFailed)
        assert visible(harness) == [], "epoch 1 would succeed, and waits"
    finished_cleanly(harness)
    assert harness.audits()["plain"].exactly_once


class IsDown(FakeTwoPhaseSink):
    """Cannot commit while it is down."""

    down = True

    def commit(self, handle: Any) -> Outcome:
        return RetryLater("restarting", after_s=1.0) if self.down else super().commit(handle)


def test_s16_s50_a_target_that_is_down_longer_than_every_retry_keeps_all_epochs_waiting_in_order() -> None:
    clock = ManualClock()
    harness = job(IsDown, ends=(4, 8, 12), clock=clock, limits=PublishLimits(deadline_s=30.0))
    ending = harness.life(behaviour=Behaviour(publishes=lambda epoch: False))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, PublishFailed)
    assert ending.error.epoch == 0
    assert 29 <= clock.monotonic() <= 31
    assert visible(harness) == []
    harness.sinks[0].down = False
    finished_cleanly(harness)


@KINDS
def test_s17_several_epochs_wait_unpublished_at_once(kind: Kind) -> None:
    harness = job(kind, ends=(4, 8, 12, 16))
    first = "sink two-phase commit" if kind is FakeTwoPhaseSink else "sink transactional send"
    harness.life(DiesAt(first), Behaviour(publishes=lambda epoch: epoch == 2))
    assert visible(harness) == []
    assert harness.logs.decided() == 2
    finished_cleanly(harness)


@KINDS
def test_s18_nothing_is_visible_before_the_decision(kind: Kind) -> None:
    harness = job(kind)
    seen: list[tuple[int, list[int]]] = []
    hooks = Hooks(on_pre_commit=lambda epoch: seen.append((epoch, visible(harness))))
    harness.life(behaviour=Behaviour(hooks=hooks))
    assert seen == [(0, []), (1, [0, 1, 2, 3])]


@KINDS
@pytest.mark.parametrize("ends", [(0,), (0, 0, 4), (4, 4), (1, 1, 2), (0, 3, 3, 3)])
def test_s19_empty_epochs_and_empty_slots(kind: Kind, ends: tuple[int, ...]) -> None:
    harness = job(kind, ends=ends)
    harness.life(DiesAt("log commit 0"))
    finished_cleanly(harness)


@KINDS
def test_s20_the_last_epoch_of_a_finite_run_is_published_before_it_ends(kind: Kind) -> None:
    harness = job(kind)
    assert isinstance(harness.life(behaviour=Behaviour(publishes=lambda epoch: False)), Finished)
    assert harness.problems() == []


@KINDS
def test_s21_rows_belong_to_exactly_one_epoch(kind: Kind) -> None:
    harness = job(kind, ends=(3, 7, 12))
    harness.life(DiesAt("log commit 1"))
    finished_cleanly(harness)
    for epoch in range(3):
        rows = {row["id"] for row in harness.subjects[0].read() if row["epoch"] == epoch}
        assert rows == set(harness.source.rows_of(epoch))


@KINDS
def test_s60_a_replay_with_other_values_and_other_partitions_shows_one_computation(kind: Kind) -> None:
    for at in ("storage create manifests/1", "log commit 1", "storage create settled/1"):
        harness = job(kind)
        harness.life(DiesAt(at), Behaviour(partitions=lambda epoch: 3))
        harness.drain(Behaviour(partitions=lambda epoch: 1))
        assert harness.problems() == []


def test_s61_several_sinks_get_one_computation() -> None:
    harness = job(FakeTwoPhaseSink, FakeTransactionalSink, FakeWriteAheadSink)
    harness.life(DiesAt("sink transactional send"))
    finished_cleanly(harness)
    seen = [{(r["id"], r["version"], r["attempt"]) for r in subject.read()} for subject in harness.subjects]
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut"])
def test_s62_a_segment_that_is_not_what_was_staged_is_refused_at_publish(damage: str) -> None:
    storage = MemoryStorage()
    harness = job(FakeTransactionalSink, storage=storage)
    harness.life(DiesAt("log commit 0", after=True))
    path = next(path for path in storage.files if path.startswith("wal/"))
    whole = storage.files[path]
    changed = {"missing": None, "flipped": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], "cut": whole[:-9]}[damage]
    storage.files.pop(path)
    if changed is not None:
        storage.files[path] = changed
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, DamagedFile)
    assert visible(harness) == []
    storage.files[path] = whole
    finished_cleanly(harness)


@KINDS
def test_s62_a_full_disk_stops_the_job_and_loses_nothing(kind: Kind) -> None:
    for seed in range(20):
        harness = job(kind)
        rates = Rates(disk=0.1, disk_stays_broken=1.0)
        harness.life(RandomFaults(Random(seed), rates, Late()))
        finished_cleanly(harness)


@KINDS
def test_s64_a_stop_in_the_middle_of_an_epoch(kind: Kind) -> None:
    harness = job(kind)

    def stop(publisher: Any) -> None:
        raise StorageFailed("the query is being stopped")

    assert isinstance(harness.life(behaviour=Behaviour(interrupts=stop)), Failed)
    assert visible(harness) == []
    assert harness.leftovers() == [], "what was staged was let go of"
    finished_cleanly(harness)


@KINDS
@pytest.mark.parametrize("seconds", [-864_000.0, 864_000.0])
def test_s67_the_clock_jumps(kind: Kind, seconds: float) -> None:
    clock = ManualClock()
    harness = job(kind, clock=clock)
    harness.life(DiesAt("log commit 0", after=True))
    clock.jump(seconds)
    harness.life(DiesAt("log commit 1"))
    clock.jump(-2 * seconds)
    finished_cleanly(harness)
