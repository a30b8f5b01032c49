"""A target goes back where nobody would have asked it: inside an epoch, in a replay, while another one does not answer.

Scenario 78.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from restored_target import KEEPING, SOURCE, context_of, target_of, went_back
from sink_cases import fake
from test_target_went_back_twice import FailsOver, states_before_commit, sweep, two_phase
from test_went_back_meanwhile import Acts, epochs_in

from onceward.admin import replay
from onceward.contracts import Outcome, RetryLater, SlotValues
from onceward.epoch import Publisher, PublishLimits, RunContext
from onceward.errors import OutputLost, PublishFailed, TargetRolledBack
from onceward.testing import (
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    MemoryTarget,
    SinkUnderTest,
    TargetError,
)
from onceward.testing.wrappers import with_faults

LIMITS = PublishLimits(deadline_s=2.0)


def under(harness: Harness, faults: DiesAt) -> RunContext:
    context = context_of(harness)
    return replace(context, sinks=tuple(with_faults(sink, faults) for sink in context.sinks))


class FailsOnce(DiesAt):
    """The first call whose name begins so fails, and behind it stands another state."""

    def __init__(self, at: str, exchange: Callable[[], None], *, holds: str = "") -> None:
        super().__init__("never")
        self.at, self.exchange, self.holds, self.has_failed = at, exchange, holds, False

    def perform(self, what, call, *, writes=True, torn=None):
        if not self.has_failed and what.startswith(self.at) and self.holds in what:
            self.has_failed = True
            self.exchange()
            raise TargetError("connection lost")
        return call()


# --- inside an epoch ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
def test_s78_what_a_sink_already_had_of_the_epoch_is_published_again_before_it_is_settled(
    kind: Callable[..., FakeTwoPhaseSink | FakeTransactionalSink],
) -> None:
    """Two sinks of one database: behind the failure of the second the first has lost its part, of which no marker tells
    yet. The staged rows are there until the epoch is settled, and not afterwards."""
    target = MemoryTarget()
    sinks = [kind(target, name="first"), FakeTransactionalSink(target, name="second")]
    harness = Harness(*(SinkUnderTest(sink, lambda: target.rows) for sink in sinks), source=SOURCE, limits=LIMITS)
    states: list[MemoryTarget] = []

    class FailsOverBetween(FailsOnce):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("log sync_decision 1") and not states:
                states.append(target.backup())
            return super().perform(what, call, writes=writes, torn=torn)

    faults = FailsOverBetween("sink second send 1", lambda: target.restore(states[0]))
    assert isinstance(harness.life(faults, until=2), Finished)
    received = [(one.sink, one.epoch) for one in target.receipts.values()]
    assert sorted(set(received)) == [(name, epoch) for name in ("first", "second") for epoch in (0, 1, 2)]
    assert isinstance(harness.life(), Finished)
    assert target.transactions == {}


def test_targets_that_fail_in_turns_end_the_publishing_at_the_deadline() -> None:
    harness = Harness(fake(FakeTransactionalSink), fake(FakeTransactionalSink, "other"), source=SOURCE, limits=LIMITS)
    harness.life(DiesAt("log commit 0", after=True))
    calls: list[str] = []

    class EachFirstCallFails(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if " send 0" in what:
                calls.append(what)
                assert len(calls) < 1000, "it never ends"
                if calls.count(what) % 2:
                    raise TargetError("connection lost")
            return call()

    context = under(harness, EachFirstCallFails("never"))
    with pytest.raises(PublishFailed, match="one after the other"):
        Publisher(context, LIMITS).publish_decided()
    harness.drain()
    assert harness.problems() == []


# --- in a replay ----------------------------------------------------------------------------------------


def test_s78_a_replay_starts_anew_where_the_target_went_back_meanwhile() -> None:
    harness = went_back(FakeTransactionalSink, to=0, limits=KEEPING)
    older = target_of(harness).backup()
    replay(under(harness, FailsOnce("sink transactional send 2", lambda: target_of(harness).restore(older))))
    assert epochs_in(target_of(harness)) == [0, 1, 2]
    harness.drain()
    assert harness.problems() == []


def test_s78_a_replay_of_a_target_that_goes_back_at_each_failure_ends_at_the_deadline() -> None:
    harness = went_back(FakeTransactionalSink, to=0, limits=KEEPING)
    older, failures = target_of(harness).backup(), []

    class Crashes(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink transactional send 2"):
                failures.append(what)
                assert len(failures) < 1000, "it never ends"
                target_of(harness).restore(older)
                raise TargetError("the server has crashed")
            return call()

    with pytest.raises(PublishFailed, match="went back again at each failure"):
        replay(under(harness, Crashes("never")), KEEPING)
    replay(context_of(harness))
    harness.drain()
    assert harness.problems() == []


@pytest.mark.parametrize("fails", [True, False])
def test_s78_a_replay_commits_nothing_over_what_is_gone_by_then(fails: bool) -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    _, prepared_1, prepared_2 = states_before_commit(harness)
    older = prepared_1.backup()
    older.transactions = prepared_2.backup().transactions if fails else {}
    two_phase(harness).restore(prepared_2)
    exchange = Acts("sink two-phase commit", lambda: two_phase(harness).restore(older), holds="_2_0_")
    with pytest.raises(TargetRolledBack, match=r"lacks epochs? 1"):
        replay(under(harness, FailsOver(harness, older) if fails else exchange))
    assert epochs_in(two_phase(harness)) == [0]


# --- while a look gets no answer --------------------------------------------------------------------------


def with_epoch_3_staged(harness: Harness) -> MemoryTarget:
    """Epoch 3 waits to be published; the state in which it is so, and epoch 2 is prepared and not committed."""
    older = states_before_commit(harness)[2]
    harness.life(DiesAt("log commit 3", after=True))
    older.transactions |= two_phase(harness).backup().transactions
    return older


class OtherIsAway(FailsOnce):
    def perform(self, what, call, *, writes=True, torn=None):
        if self.has_failed and what.startswith("sink transactional"):
            raise TargetError("connection refused")
        return super().perform(what, call, writes=writes, torn=torn)


def test_s78_nothing_is_repeated_while_another_target_cannot_be_asked() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTransactionalSink), source=SOURCE)
    older = with_epoch_3_staged(harness)
    faults = OtherIsAway("sink two-phase commit", lambda: two_phase(harness).restore(older), holds="_3_0_")
    with pytest.raises(
        PublishFailed, match=r"cannot be looked at: TargetError: connection refused \(sink 'transactional'\)"
    ):
        Publisher(under(harness, faults), LIMITS).publish_decided()
    assert epochs_in(two_phase(harness)) == [0, 1]
    harness.drain()
    assert epochs_in(two_phase(harness)) == [0, 1, 2, 3]
    assert harness.problems() == []


def test_s78_what_came_back_is_not_committed_over_a_gap_that_cannot_be_asked_about() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTransactionalSink), source=SOURCE)
    _, prepared_1, prepared_2 = states_before_commit(harness)
    older = prepared_1.backup()
    older.transactions = prepared_2.backup().transactions
    two_phase(harness).restore(prepared_2)
    faults = OtherIsAway("sink two-phase commit", lambda: two_phase(harness).restore(older), holds="_2_0_")
    with pytest.raises(PublishFailed):
        sweep(harness, faults)
    assert epochs_in(two_phase(harness)) == [0]


def test_s78_a_look_that_fails_is_repeated_before_the_delivery_is() -> None:
    """A standby that is being promoted answers the look with an error, and the delivery right after it."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    older = with_epoch_3_staged(harness)

    class IsBeingPromoted(FailsOnce):
        was_asked = False

        def perform(self, what, call, *, writes=True, torn=None):
            if self.has_failed and not self.was_asked and what.startswith("sink two-phase receipts"):
                self.was_asked = True
                raise TargetError("the database system is starting up")
            return super().perform(what, call, writes=writes, torn=torn)

    faults = IsBeingPromoted("sink two-phase commit", lambda: two_phase(harness).restore(older), holds="_3_0_")
    Publisher(under(harness, faults), LIMITS).publish_decided()
    assert epochs_in(two_phase(harness)) == [0, 1, 2, 3]


# --- where no call has failed -----------------------------------------------------------------------------


def test_s78_a_sink_that_asks_to_wait_is_asked_what_it_has_like_one_that_fails() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    older = with_epoch_3_staged(harness)

    class Waits(DiesAt):
        has_waited = False

        def perform(self, what, call, *, writes=True, torn=None) -> Outcome:
            if not self.has_waited and what.startswith("sink two-phase commit") and "_3_0_" in what:
                self.has_waited = True
                two_phase(harness).restore(older)
                return RetryLater("the target does not answer")
            return call()

    Publisher(under(harness, Waits("never")), LIMITS).publish_decided()
    assert epochs_in(two_phase(harness)) == [0, 1, 2, 3]
    harness.drain()
    assert harness.problems() == []


def test_what_came_back_and_is_only_waited_for_is_not_missing_though_it_is_not_listed() -> None:
    """As MySQL does not list a transaction for a moment after the connection that prepared it has ended."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    two_phase(harness).restore(states_before_commit(harness)[2])

    class HidesIt(DiesAt):
        waits, hides = True, True

        def perform(self, what, call, *, writes=True, torn=None):
            if self.waits and what.startswith("sink two-phase commit"):
                self.waits = False
                return RetryLater("not listed yet")
            if not self.waits and self.hides and what.startswith("sink two-phase pending"):
                self.hides = False
                return [handle for handle in call() if "_2_0_0_" not in handle["transaction"]]
            return call()

    sweep(harness, HidesIt("never"))
    assert epochs_in(two_phase(harness)) == [0, 1, 2]


class SaysNo(FakeTransactionalSink):
    """Once, and then it has an older state."""

    older: MemoryTarget | None = None

    def send_transaction(self, slots: Sequence[SlotValues], *args) -> bool:
        older, self.older = self.older, None
        if older is None:
            return super().send_transaction(slots, *args)
        self.target.restore(older)
        return False


def test_s78_a_sink_that_answers_false_is_asked_what_it_has() -> None:
    harness = Harness(fake(SaysNo), source=SOURCE)
    harness.life(until=0)
    older = target_of(harness).backup()
    harness.life(until=1)
    harness.subjects[0].sink.older = older
    ending = harness.life(until=2)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack)
    assert epochs_in(target_of(harness)) == [0]


def test_s78_output_that_is_lost_because_the_target_went_back_is_said_to_be_that() -> None:
    """To before the next epoch was prepared, and no call has failed: accepting that loss alone would leave a gap."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(until=0)
    older = target_of(harness).backup()
    harness.life(until=1)
    harness.life(DiesAt("log commit 2", after=True))
    faults = Acts("sink two-phase commit", lambda: target_of(harness).restore(older))
    with pytest.raises(TargetRolledBack, match="lacks epoch 1"):
        Publisher(under(harness, faults), LIMITS).publish_decided()


def test_output_that_is_lost_is_said_to_be_lost_where_the_targets_cannot_be_looked_at() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(DiesAt("log commit 0", after=True))

    class GoesAway(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink two-phase commit"):
                target_of(harness).transactions.clear()
            if what.startswith("sink two-phase receipts"):
                raise TargetError("connection refused")
            return call()

    with pytest.raises(OutputLost):
        Publisher(under(harness, GoesAway("never")), LIMITS).publish_decided()
