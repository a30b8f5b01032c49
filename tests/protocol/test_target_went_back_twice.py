"""A target that went back is exchanged for a still older state of itself while what it holds again is committed.

Scenario 78.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from restored_target import KEEPING, SOURCE, context_of
from sink_cases import fake

from onceward.admin import commit_by_hand, in_doubt, replay
from onceward.contracts.events import Event, Retried
from onceward.epoch import Publisher
from onceward.errors import TargetRolledBack
from onceward.testing import (
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    MemoryTarget,
    TargetError,
)
from onceward.testing.wrappers import with_faults


def states_before_commit(harness: Harness) -> list[MemoryTarget]:
    """The target as it is just before each of epochs 0 to 2 is committed: that one prepared, those before it done."""
    states: list[MemoryTarget] = []

    class Copies(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("log sync_decision"):
                states.append(two_phase(harness).backup())
            return call()

    harness.life(Copies("never"), until=2)
    return states


def two_phase(harness: Harness) -> MemoryTarget:
    return harness.subjects[0].sink.target


class FailsOver(DiesAt):
    """The first commit of epoch 2 loses its connection, and behind it stands an older state."""

    def __init__(self, harness: Harness, older: MemoryTarget) -> None:
        super().__init__("never")
        self.harness, self.older, self.has_failed = harness, older, False

    def perform(self, what, call, *, writes=True, torn=None):
        if not self.has_failed and what.startswith("sink two-phase commit") and "_2_0_" in what:
            self.has_failed = True
            two_phase(self.harness).restore(self.older)
            raise TargetError("connection lost")
        return call()


def start(harness: Harness, faults: DiesAt) -> None:
    ending = harness.life(faults, until=2)
    if isinstance(ending, Failed):
        raise ending.error
    assert isinstance(ending, Finished)


def sweep(harness: Harness, faults: DiesAt) -> None:
    context = context_of(harness)
    Publisher(replace(context, sinks=tuple(with_faults(sink, faults) for sink in context.sinks))).sweep()


def by_hand(harness: Harness, faults: DiesAt) -> None:
    context = context_of(harness)
    listed = in_doubt(context)
    with_failure = replace(context, sinks=tuple(with_faults(sink, faults) for sink in context.sinks))
    commit_by_hand(with_failure, listed[0].transaction)


commits_survivors = pytest.mark.parametrize("commit", [start, sweep, by_hand])
Commit = Callable[[Harness, DiesAt], None]


@commits_survivors
def test_s78_what_came_back_besides_is_committed_first(commit: Commit) -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, prepared_1, prepared_2 = states_before_commit(harness)
    older = prepared_1.backup()
    older.transactions = prepared_2.backup().transactions | older.transactions
    two_phase(harness).restore(prepared_2)
    commit(harness, FailsOver(harness, older))
    assert [row["epoch"] for row in two_phase(harness).rows] == sorted(row["epoch"] for row in two_phase(harness).rows)
    assert {row["epoch"] for row in two_phase(harness).rows} == {0, 1, 2}
    harness.drain()
    assert harness.problems() == []


@commits_survivors
def test_s78_what_was_committed_just_now_and_came_back_is_committed_again(commit: Commit) -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, prepared_1, prepared_2 = states_before_commit(harness)
    prepared_1.transactions |= prepared_2.transactions
    two_phase(harness).restore(prepared_1)
    commit(harness, FailsOver(harness, prepared_1))
    assert [row["epoch"] for row in two_phase(harness).rows] == sorted(row["epoch"] for row in two_phase(harness).rows)
    assert {row["epoch"] for row in two_phase(harness).rows} == {0, 1, 2}
    harness.drain()
    assert harness.problems() == []


@commits_survivors
def test_s78_an_epoch_that_is_gone_by_then_stops_what_is_newer(commit: Commit) -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, prepared_1, prepared_2 = states_before_commit(harness)
    older = prepared_1.backup()
    older.transactions = prepared_2.backup().transactions
    two_phase(harness).restore(prepared_2)
    with pytest.raises(TargetRolledBack, match="lacks epoch 1"):
        commit(harness, FailsOver(harness, older))
    assert {row["epoch"] for row in two_phase(harness).rows} == {0}


@commits_survivors
def test_s78_what_came_back_over_a_gap_stays_prepared(commit: Commit) -> None:
    """Lacking an epoch from the first: nothing newer may come before it, and nothing has failed yet."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, prepared_1, prepared_2 = states_before_commit(harness)
    prepared_1.transactions = prepared_2.transactions
    two_phase(harness).restore(prepared_1)
    with pytest.raises(TargetRolledBack, match="lacks epoch 1"):
        commit(harness, DiesAt("never"))
    assert {row["epoch"] for row in two_phase(harness).rows} == {0}
    assert two_phase(harness).transactions


@commits_survivors
def test_s78_a_transaction_that_is_gone_by_then_is_what_the_target_lacks(commit: Commit) -> None:
    """Not output that was lost: its epoch is settled, and other ways out are offered for that."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, _, prepared_2 = states_before_commit(harness)
    older = prepared_2.backup()
    older.transactions.clear()
    two_phase(harness).restore(prepared_2)
    with pytest.raises(TargetRolledBack, match="lacks epoch 2"):
        commit(harness, FailsOver(harness, older))


def test_s78_another_target_that_went_back_with_it_is_noticed() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTransactionalSink), source=SOURCE, limits=KEEPING)
    _, _, prepared_2 = states_before_commit(harness)
    in_log = harness.subjects[1].sink.target
    behind = MemoryTarget()
    two_phase(harness).restore(prepared_2)

    class BothFailOver(FailsOver):
        def perform(self, what, call, *, writes=True, torn=None):
            try:
                return super().perform(what, call, writes=writes, torn=torn)
            except TargetError:
                in_log.restore(behind)
                raise

    with pytest.raises(TargetRolledBack, match="sink 'transactional' lacks"):
        start(harness, BothFailOver(harness, prepared_2))
    replay(context_of(harness))
    harness.drain()
    assert harness.problems() == []


def test_s78_an_outage_while_what_came_back_is_committed_is_the_one_that_is_shown() -> None:
    """The delivery that found it is still being repeated beneath it."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, _, prepared_2 = states_before_commit(harness)
    shown: list[int | None] = []

    class Fails(FailsOver):
        """Epoch 3 fails while epoch 2 comes back; and that fails, too."""

        failures = 0

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink two-phase commit") and "_3_0_" in what and not self.failures:
                self.failures = 1
                waiting = {k: v for k, v in two_phase(harness).backup().transactions.items() if "_3_0_" in k}
                two_phase(harness).restore(prepared_2)
                two_phase(harness).transactions |= waiting
                raise TargetError("connection lost")
            if what.startswith("sink two-phase commit") and "_2_0_" in what and self.failures == 1:
                self.failures = 2
                raise TargetError("connection lost again")
            return call()

    harness.life(DiesAt("log commit 3", after=True))
    faults = Fails(harness, prepared_2)
    context = context_of(harness)
    sinks = tuple(with_faults(sink, faults) for sink in context.sinks)

    def look(event: Event) -> None:
        if isinstance(event, Retried):
            shown.append(publisher.outage.epoch if publisher.outage else None)

    publisher = Publisher(replace(context, sinks=sinks, listeners=(look,)))
    publisher.publish_decided()
    assert shown == [3, 2]
    harness.drain()
    assert harness.problems() == []
