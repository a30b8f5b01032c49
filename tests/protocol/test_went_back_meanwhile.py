"""A target that went back changes once more while it is looked at, or while what it holds again is committed.

Scenario 78.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from restored_target import KEEPING, SOURCE, context_of
from sink_cases import fake
from test_alternate import both_variants, change_to
from test_target_went_back_twice import by_hand, commits_survivors, start, states_before_commit, sweep, two_phase

from onceward.admin import commit_by_hand, in_doubt, replay
from onceward.epoch import PublishLimits
from onceward.errors import PublishFailed, TargetRolledBack, TargetUnavailable
from onceward.testing import (
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Harness,
    MemoryTarget,
    SinkUnderTest,
    TargetError,
)
from onceward.testing.wrappers import with_faults

Commit = Callable[[Harness, DiesAt], None]


def epochs_in(target: MemoryTarget) -> list[int]:
    """In the order in which they came."""
    return list(dict.fromkeys(row["epoch"] for row in target.rows))


class Acts(DiesAt):
    """Does something at calls whose names begin so."""

    def __init__(self, at: str, act: Callable[[], None], *, call: int = 1, holds: str = "") -> None:
        super().__init__("never")
        self.at, self.act, self.call, self.holds, self.seen = at, act, call, holds, 0

    def perform(self, what, call, *, writes=True, torn=None):
        if what.startswith(self.at) and self.holds in what:
            self.seen += 1
            if self.seen == self.call:
                self.act()
        return call()


@commits_survivors
def test_s78_a_commit_whose_answer_was_lost_may_end_between_two_looks(commit: Commit) -> None:
    """It is among the receipts too late, and no longer among what is prepared."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    two_phase_at_work = []

    class StillAtIt(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink two-phase commit") and "_2_0_" in what and not two_phase_at_work:
                two_phase_at_work.append(call)
                raise TargetError("connection lost; the server is still at it")
            if what.startswith("sink two-phase pending") and len(two_phase_at_work) == 1:
                two_phase_at_work[0]()
                two_phase_at_work.append(None)
            return call()

    two_phase(harness).restore(states_before_commit(harness)[2])
    commit(harness, StillAtIt("never"))
    assert len(two_phase_at_work) == 2
    harness.drain()
    assert harness.problems() == []


@pytest.mark.parametrize("look", [1, 2])
def test_s78_what_another_driver_commits_between_two_looks_is_not_missed(look: int) -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    two_phase(harness).restore(states_before_commit(harness)[2])

    def commit_all() -> None:
        for name in list(two_phase(harness).transactions):
            harness.subjects[0].sink.commit({"transaction": name})

    start(harness, Acts("sink two-phase pending", commit_all, call=look))
    harness.drain()
    assert harness.problems() == []


def test_s78_a_target_that_goes_back_at_each_commit_ends_a_start_at_the_deadline() -> None:
    """As a server does that crashes at this very commit and forgets what was not on its disk."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE, limits=PublishLimits(deadline_s=2.0))
    _, prepared_1, prepared_2 = states_before_commit(harness)
    older = prepared_1.backup()
    older.transactions = prepared_2.backup().transactions | older.transactions
    two_phase(harness).restore(older)
    failures = []

    class Crashes(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink two-phase commit") and "_2_0_" in what:
                failures.append(what)
                assert len(failures) < 1000, "it never ends"
                two_phase(harness).restore(older)
                raise TargetError("the server has crashed")
            return call()

    with pytest.raises(PublishFailed, match="went back again at each failure"):
        start(harness, Crashes("never"))
    harness.drain()
    assert harness.problems() == []


def test_s78_a_replay_commits_what_is_prepared_again_in_its_turn() -> None:
    """A start would commit it afterwards, on top of newer epochs."""
    target = MemoryTarget()
    by_two_phase, by_log = both_variants(target)
    harness = Harness(SinkUnderTest(by_two_phase, lambda: target.rows), source=SOURCE, limits=KEEPING)
    states: list[MemoryTarget] = []
    harness.life(Acts("log sync_decision", lambda: states.append(target.backup()), call=2), until=1)
    change_to(harness, target, by_log)
    harness.life(until=3)
    target.restore(states[0])
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack)
    assert [(one.epoch, one.prepared) for one in replay(context_of(harness))] == [(1, True), (2, False), (3, False)]
    assert epochs_in(target) == [0, 1, 2, 3]
    harness.drain()
    assert harness.problems() == []


def test_s78_by_hand_what_came_back_of_a_settled_epoch_is_committed_though_another_target_is_away() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTransactionalSink), source=SOURCE)
    two_phase(harness).restore(states_before_commit(harness)[2])
    by_hand(harness, Away("never"))
    assert epochs_in(two_phase(harness)) == [0, 1, 2]
    harness.drain()
    assert harness.problems() == []


class Away(DiesAt):
    """The target of the sink that goes by the log."""

    def perform(self, what, call, *, writes=True, torn=None):
        if what.startswith("sink transactional"):
            raise TargetError("connection refused")
        return call()


def test_by_hand_a_decided_epoch_waits_for_a_target_that_is_away_and_that_is_said() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTransactionalSink), source=SOURCE)
    harness.life(DiesAt("log commit 1", after=True))
    context = context_of(harness)
    away = replace(context, sinks=tuple(with_faults(sink, Away("never")) for sink in context.sinks))
    with pytest.raises(TargetUnavailable, match="connection refused") as caught:
        commit_by_hand(away, in_doubt(context)[0].transaction)
    assert caught.value.exit_code == 3
    harness.drain()
    assert harness.problems() == []


def test_s78_what_came_back_after_the_listing_of_a_sweep_is_committed_first() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, prepared_1, prepared_2 = states_before_commit(harness)
    older = prepared_1.backup()
    older.transactions = prepared_2.backup().transactions | older.transactions
    two_phase(harness).restore(prepared_2)
    # The receipts are looked at after the listing.
    sweep(harness, Acts("sink two-phase receipts", lambda: two_phase(harness).restore(older)))
    assert epochs_in(two_phase(harness)) == [0, 1, 2]
    harness.drain()
    assert harness.problems() == []


@commits_survivors
def test_s78_a_commit_that_finds_nothing_is_a_target_that_went_back(commit: Commit) -> None:
    """Not output that was lost, though no call has failed: its epoch is settled, and other ways out are offered."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, _, prepared_2 = states_before_commit(harness)
    older = prepared_2.backup()
    older.transactions.clear()
    two_phase(harness).restore(prepared_2)
    exchange = Acts("sink two-phase commit", lambda: two_phase(harness).restore(older), holds="_2_0_")
    with pytest.raises(TargetRolledBack, match="lacks epoch 2"):
        commit(harness, exchange)
