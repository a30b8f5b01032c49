"""An epoch that fails before its decision and is staged again in the same run: `tolerable_failures`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from one_target import KINDS, Kind
from sink_cases import fake

from onceward.contracts import Guarantee, Hooks
from onceward.epoch import EpochAssignment, stage_epoch
from onceward.errors import Fenced, OncewardError, StorageFailed
from onceward.journal import Register
from onceward.recovery import open_checkpoint
from onceward.testing import Behaviour, CrashAt, Ending, FakeTwoPhaseSink, Faults, Harness, MemoryStorage, Source
from onceward.testing.fakes import Unsynced
from onceward.testing.faults import TargetError
from onceward.testing.harness import Crashed, Failed, Finished
from onceward.testing.sweep import Sweep

T = TypeVar("T")
SOURCE = Source(ends=(4, 8, 12))
ATTEMPTS_OF_A_TASK = 4


class FailsAt(Faults):
    """Fails the n-th write of a life, and so many after it; `applied`: it happens, and its reply is lost."""

    def __init__(self, point: int, *, times: int = 1, applied: bool = False) -> None:
        super().__init__()
        self._failing = range(point, point + times)
        self._applied = applied
        self.writes = 0

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""

        if not writes or what.startswith("log"):
            return call()
        number, self.writes = self.writes, self.writes + 1
        if number not in self._failing:
            return call()
        if self._applied and torn is None:
            call()
        raise StorageFailed(what) if what.startswith("storage") else TargetError(what)


def stubborn(harness: Harness, failures: int = 2) -> Behaviour:
    """Stray attempts of every epoch, which write when the next task has ended: also into the next staging of it."""
    return Behaviour(
        tolerable_failures=failures,
        leaves_zombie=lambda epoch, slot: slot == 0,
        interrupts=lambda publisher: harness.release_zombies(),
    )


@pytest.mark.parametrize("applied", [False, True], ids=["failed", "reply-lost"])
@KINDS
def test_a_failure_at_any_write_is_survived_or_ends_the_run_and_every_row_is_there_once(
    kind: Kind, applied: bool
) -> None:
    """So long that no attempt of a task gets round it: the epoch itself fails, and is staged again."""
    survived, point = 0, 0
    while True:
        harness = Harness(fake(kind), source=SOURCE)
        faults = FailsAt(point, times=ATTEMPTS_OF_A_TASK, applied=applied)
        ending = harness.life(faults, stubborn(harness))
        assert isinstance(ending, (Finished, Failed)), harness.trace
        survived += isinstance(ending, Finished)
        harness.release_zombies()
        harness.drain()
        harness.drain()
        assert harness.problems() == [], harness.trace
        if faults.writes <= point:
            break
        point += 1
    assert survived > point // 2


@KINDS
def test_an_epoch_that_is_staged_again_is_aborted_once_for_each_time_that_it_was_begun(kind: Kind) -> None:
    """Wherever it fails: while it is staged, when all is, or while it is aborted."""
    staged_again = 0
    for point in range(40):
        calls: list[tuple[str, int]] = []
        harness = Harness(fake(kind), source=SOURCE)
        behaviour = Behaviour(
            tolerable_failures=3,
            hooks=Hooks(
                on_begin=lambda epoch, calls=calls: calls.append(("begin", epoch)),
                on_publish=lambda epoch, calls=calls: calls.append(("publish", epoch)),
                on_abort=lambda epoch, calls=calls: calls.append(("abort", epoch)),
            ),
        )
        ending = harness.life(FailsAt(point, times=ATTEMPTS_OF_A_TASK + 1), behaviour)
        for epoch in {epoch for _, epoch in calls if isinstance(ending, Finished)}:
            *before, begun, published = [name for name, number in calls if number == epoch]
            assert (begun, published) == ("begin", "publish"), calls
            assert before == ["begin", "abort"] * (len(before) // 2), calls
            staged_again += len(before) // 2
    assert staged_again > 10


def fails_once(*epochs: int) -> Hooks:
    """The first staging of each of these epochs fails when all of it is staged."""
    failing = set(epochs)

    def fail(epoch: int) -> None:
        if epoch in failing:
            failing.remove(epoch)
            raise TargetError("all is staged, and the manifest is not written")

    return Hooks(on_pre_commit=fail)


@KINDS
def test_a_crash_at_any_point_of_an_epoch_that_is_staged_again(kind: Kind) -> None:
    def life(harness: Harness, crash: CrashAt) -> Ending:
        behaviour = stubborn(harness)
        behaviour.hooks = fails_once(0, 1)
        return harness.life(crash, behaviour)

    def world() -> Harness:
        return Harness(fake(kind), source=SOURCE)

    faults = CrashAt()
    assert life(world(), faults) == Finished()
    written = {line.rpartition("/")[2] for line in faults.trace if line.startswith("storage create manifests/")}
    assert written >= {"0.1.reserved", "0.1.fate", "0.1.json", "1.1.json", "2.0.json"}
    assert not written & {"0.0.json", "1.0.json"}
    assert Sweep(world, life).points() > 50
    assert Sweep(world, life, loss=lambda: Unsynced.GONE).points() > 50


@KINDS
def test_the_rows_are_of_the_staging_that_was_decided(kind: Kind) -> None:
    """A late task of the first staging has a lower number; what it writes after the decision is an orphan."""
    subject = fake(kind)
    harness = Harness(subject, source=Source(ends=(4,)))
    behaviour = Behaviour(tolerable_failures=1, leaves_zombie=lambda epoch, slot: True, hooks=fails_once(0))
    assert harness.life(behaviour=behaviour) == Finished()
    assert {row["version"] for row in subject.read()} == {"life-1.1.1"}
    harness.release_zombies()
    harness.drain()
    assert {row["version"] for row in subject.read()} == {"life-1.1.1"}
    assert harness.problems() == []


def test_a_manifest_that_was_written_before_the_failure_is_void() -> None:
    """Its epoch is staged again; were it to count, other rows would be published than those that Spark decided."""
    subject = fake(FakeTwoPhaseSink)
    storage = MemoryStorage()
    harness = Harness(subject, source=Source(ends=(4,)), storage=storage)
    seen: list[dict[int, bool]] = []

    class LostReply(Faults):
        """The manifest is written, and its writer is not told."""

        def perform(
            self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
        ) -> T:
            result = call()
            if what.startswith("storage create manifests/0.") and what.endswith(".json"):
                files = Register(storage).files(0)
                seen.append({number: number in files.fates for number in files.manifests})
                if len(seen) == 1:
                    raise StorageFailed("the reply is lost")
            return result

    assert harness.life(LostReply(), Behaviour(tolerable_failures=1)) == Finished()
    assert seen == [{0: False}, {0: False, 1: True}]
    assert {row["version"] for row in subject.read()} == {"life-1.1.1"}
    assert harness.problems() == []


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_more_failures_in_a_row_than_are_tolerated_end_the_run(failures: int) -> None:
    subject = fake(FakeTwoPhaseSink)
    harness = Harness(subject, source=SOURCE)
    tried: list[int] = []

    def fail(epoch: int) -> None:
        tried.append(epoch)
        if epoch == 1:
            raise TargetError("never")

    behaviour = Behaviour(tolerable_failures=failures, hooks=Hooks(on_pre_commit=fail))
    assert isinstance(harness.life(behaviour=behaviour), Failed)
    assert tried == [0, *[1] * (failures + 1)]
    assert {row["epoch"] for row in subject.read()} == {0}


def test_another_driver_that_has_taken_the_epoch_meanwhile_is_not_overtaken_again() -> None:
    """The one that failed finds its epoch decided by the other, and stops."""
    subject = fake(FakeTwoPhaseSink)
    harness = Harness(subject, source=Source(ends=(4,)))

    def other_one_runs(epoch: int) -> None:
        harness.drain()
        raise TargetError("and meanwhile the other one has finished")

    behaviour = Behaviour(tolerable_failures=5, hooks=Hooks(on_pre_commit=other_one_runs))
    ending = harness.life(behaviour=behaviour)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, Fenced)
    assert {row["version"] for row in subject.read()} == {"life-2.1"}
    assert harness.problems() == []


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_the_weaker_guarantees_hold_as_well(guarantee: Guarantee) -> None:
    for point in range(30):
        harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE, guarantee=guarantee)
        ending = harness.life(FailsAt(point, times=ATTEMPTS_OF_A_TASK, applied=True), stubborn(harness))
        assert not isinstance(ending, Crashed)
        assert not isinstance(ending, Failed) or isinstance(ending.error, (OncewardError, TargetError))
        harness.release_zombies()
        harness.drain()
        assert harness.problems() == [], harness.trace


def test_an_epoch_that_is_published_already_is_read_again_and_not_taken_over() -> None:
    """Its decision was forgotten, and reading its rows fails once. There is nothing to be taken over."""
    subject = fake(FakeTwoPhaseSink)
    storage = MemoryStorage()
    harness = Harness(subject, source=Source(ends=(4,)), storage=storage)
    harness.drain()
    harness.logs.forget_commit(0)
    opened = open_checkpoint(
        name=harness.name,
        sinks=harness.sinks,
        guarantee=harness.guarantee,
        storage=storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    read: list[EpochAssignment | None] = []

    def work(assignment: EpochAssignment | None) -> None:
        read.append(assignment)
        if len(read) == 1:
            raise TargetError("an executor is lost while the rows are read")

    stage_epoch(opened.coordinator, 0, work, lambda error, failures: True)
    assert read == [None, None]
    assert storage.names("manifests") == []
