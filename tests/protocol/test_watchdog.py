"""The watchdog itself: what counts as hanging, which thread makes a call, and that a watched sink is still its sink."""

import gc
import inspect
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hanging_calls import JOB, LIMIT_S, Lock, hanging

from onceward.contracts import (
    CheckpointCommitter,
    EngineWritten,
    Sink,
    TemplateChoice,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.epoch import Watchdog, no_longer_than, with_watchdog
from onceward.epoch.watchdog_proxy import ASKING, OF_A_COMMITTER, PUBLISHING, STAGING, without_watchdog
from onceward.errors import PublishFailed, TargetUnavailable
from onceward.testing import FakeTransactionalSink, FakeTwoPhaseSink, FakeWriteAheadSink, ManualClock, MemoryTarget


@pytest.fixture
def lock() -> Iterator[Lock]:
    found = Lock()
    yield found
    found.release()


def test_a_slow_call_is_not_a_hanging_one() -> None:
    clock = ManualClock()
    watchdog = Watchdog(clock, LIMIT_S)
    assert watchdog.call("s", "slow", lambda: clock.pause(3600) or "done", error=PublishFailed) == "done"
    assert watchdog.outstanding() is None


def test_a_call_that_a_user_interrupts_is_still_out(lock: Lock) -> None:
    class Interrupting(ManualClock):
        def monotonic(self) -> float:
            if self.seconds:
                self.seconds = 0.0
                raise KeyboardInterrupt
            return 0.0

    clock = Interrupting()
    lock.clock, lock.watchdog = clock, Watchdog(clock, LIMIT_S)
    with pytest.raises(KeyboardInterrupt):
        lock.watchdog.call("s", "commit", lock.meet, error=PublishFailed)
    with pytest.raises(PublishFailed, match="was not called"):
        lock.watchdog.call("s", "commit", lambda: None, error=PublishFailed)


def test_errors_and_answers_pass_through_unchanged() -> None:
    watchdog = Watchdog(ManualClock(), LIMIT_S)
    with pytest.raises(KeyError, match="lost"):
        watchdog.call("s", "c", lambda: {}["lost"], error=PublishFailed)
    assert watchdog.call("s", "c", lambda: None, error=PublishFailed) is None


def test_no_longer_than_is_of_one_thread_and_ends_with_its_block() -> None:
    clock = ManualClock()
    watchdog = Watchdog(clock, 3600.0)
    gate = threading.Event()

    def hour() -> None:
        clock.pause(60.0)
        assert gate.wait(60)

    with no_longer_than(30.0), no_longer_than(0.0), pytest.raises(PublishFailed, match="for 60 s"):
        watchdog.call("a", "c", hour, error=PublishFailed)
    gate.set()
    assert watchdog.call("b", "c", hour, error=PublishFailed) is None


def test_calls_of_one_thread_are_made_by_one_helper_which_ends_with_it() -> None:
    watchdog = Watchdog(ManualClock(), LIMIT_S)
    helpers: list[threading.Thread] = []

    def calls() -> None:
        for _ in range(3):
            helpers.append(watchdog.call("s", "c", threading.current_thread, error=PublishFailed))

    caller = threading.Thread(target=calls)
    caller.start()
    caller.join()
    first = helpers[0]
    assert helpers == [first] * 3
    assert first.daemon
    del caller
    gc.collect()
    first.join(60)
    assert not first.is_alive()


def test_a_watched_sink_is_its_sink_in_every_other_respect() -> None:
    class Users(FakeTwoPhaseSink, EngineWritten):
        __slots__ = ("slot",)
        question = "own"

        def __init__(self, target: MemoryTarget) -> None:
            super().__init__(target, name="users")
            self.slot = 7
            self.transaction_timeout_s = 60.0

        def engine_target(self, context: Any, schema: Any) -> None:
            return None

        def engine_pre_commit(self, context: Any) -> Any:
            raise NotImplementedError

    sink = Users(MemoryTarget())
    seen = with_watchdog(sink, Watchdog(ManualClock(), LIMIT_S))
    assert isinstance(seen, Users)
    assert isinstance(seen, EngineWritten)
    assert (seen.name, seen.question, seen.slot, seen.transaction_timeout_s) == ("users", "own", 7, 60.0)
    sink.found = "later"
    assert seen.found == "later"
    assert without_watchdog(seen) is sink
    assert without_watchdog(sink) is sink
    assert seen.keeps_receipts
    assert not with_watchdog(FakeWriteAheadSink(MemoryTarget()), Watchdog(ManualClock(), LIMIT_S)).keeps_receipts
    plain = with_watchdog(FakeTwoPhaseSink(MemoryTarget()), Watchdog(ManualClock(), LIMIT_S))
    assert type(pickle.loads(pickle.dumps(plain))) is FakeTwoPhaseSink


@pytest.mark.parametrize("attribute", ["_watch", "_inner", "_watchdog", "inner", "watchdog"])
def test_a_watched_sink_may_have_attributes_of_any_name(lock: Lock, attribute: str) -> None:
    """Staging on the driver goes through the watched object itself, not through a call that it hands on."""
    sink = FakeTwoPhaseSink(MemoryTarget())
    setattr(sink, attribute, "its own")
    assert getattr(with_watchdog(sink, lock.watchdog), attribute) == "its own"


def test_the_alternate_is_watched_too(lock: Lock) -> None:
    target = MemoryTarget()
    sink = FakeTransactionalSink(target, name="table")
    sink.alternate = hanging(FakeTwoPhaseSink, "pending", lock)(target, name="table")
    seen = with_watchdog(sink, lock.watchdog)
    assert isinstance(seen.alternate, FakeTwoPhaseSink)
    with pytest.raises(TargetUnavailable, match="pending has not come back"):
        list(seen.alternate.pending(JOB))


@pytest.mark.parametrize(
    "contract", [Sink, TwoPhaseCommitSink, WriteAheadSink, TransactionalWriteAheadSink, TemplateChoice, EngineWritten]
)
def test_every_call_of_a_contract_is_either_watched_or_part_of_staging(contract: type) -> None:
    """A method that is added to a contract must be put into one of the lists."""
    calls = {name for name, _ in inspect.getmembers(contract, inspect.isfunction) if not name.startswith("_")}
    assert calls - {*PUBLISHING, *ASKING, *STAGING} == set()
    committers = {name for name, _ in inspect.getmembers(CheckpointCommitter, inspect.isfunction)}
    assert committers == set(OF_A_COMMITTER)
