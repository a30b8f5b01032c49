"""Calls that do not come back: the job ends and says which one; the epoch stays staged; late success does no harm."""

import gc
import inspect
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceward.contracts import (
    CheckpointCommitter,
    EngineWritten,
    Outcome,
    Sink,
    TemplateChoice,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.epoch import PublisherThread, PublishLimits, Watchdog, no_longer_than, with_watchdog
from onceward.epoch.watchdog_proxy import ASKING, OF_A_COMMITTER, PUBLISHING, STAGING, without_watchdog
from onceward.errors import OncewardError, PublishFailed, TargetUnavailable
from onceward.identity import Generation, JobIdentity, JobName
from onceward.recovery import look_at
from onceward.testing import (
    Crashed,
    DiesAt,
    Failed,
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Finished,
    Harness,
    ManualClock,
    MemoryTarget,
    SinkUnderTest,
    Source,
)
from onceward.testing.fake_sinks import MemoryCommitter

JOB = JobIdentity(JobName("job"), Generation("aaaaaaaa"))
LIMIT_S = 5.0


class Lock:
    """A lock in the target: who meets it lets an hour pass, and goes on when it is let go."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.released = threading.Event()
        self.watchdog = Watchdog(self.clock, LIMIT_S)

    def meet(self) -> None:
        self.clock.pause(3600)
        assert self.released.wait(60)

    def release(self) -> None:
        """Until the call has come back."""
        self.released.set()
        for _ in range(6000):
            if self.watchdog.outstanding() is None:
                return
            threading.Event().wait(0.01)
        raise AssertionError("it never came back")


@pytest.fixture
def lock() -> Iterator[Lock]:
    found = Lock()
    yield found
    found.release()


def hanging(kind: type[Any], call: str, lock: Lock) -> Any:
    """A user's sink of which one call meets the lock, before it does its work."""

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        if not lock.released.is_set():
            lock.meet()
        return getattr(kind, call)(self, *arguments, **named)

    return type(f"Users{kind.__name__}", (kind,), {call: method})


def harness_of(sink: Any, target: MemoryTarget, clock: ManualClock, **more: Any) -> Harness:
    return Harness(
        SinkUnderTest(sink, lambda: target.rows),
        source=Source(ends=(4, 8)),
        clock=clock,
        limits=PublishLimits(deadline_s=LIMIT_S),
        **more,
    )


def error_of(harness: Harness) -> OncewardError:
    ending = harness.life()
    assert isinstance(ending, Failed), ending
    assert isinstance(ending.error, OncewardError)
    return ending.error


PUBLISHED_BY = [
    (FakeTwoPhaseSink, "commit_all"),
    (FakeTwoPhaseSink, "commit"),
    (FakeTransactionalSink, "send_transaction"),
    (FakeSlotwiseSink, "send_transaction"),
    (FakeWriteAheadSink, "send_values"),
]


@pytest.mark.parametrize(("kind", "call"), PUBLISHED_BY)
def test_s77_a_delivery_that_hangs_ends_the_job_and_its_late_success_is_found(
    kind: type[Any], call: str, lock: Lock
) -> None:
    target = MemoryTarget()
    sink = hanging(kind, call, lock)(target)
    harness = harness_of(with_watchdog(sink, lock.watchdog), target, lock.clock)
    error = error_of(harness)
    assert isinstance(error, PublishFailed)
    assert (error.sink, error.epoch, error.exit_code) == (sink.name, 0, 3)
    shown = "commit_all" if kind is FakeTwoPhaseSink else call
    assert f"{shown} has not come back for 3600 s" in error.message
    assert target.rows == []
    assert harness.storage.names("manifests") == ["0.0.json"], "the epoch stays staged"
    # What hangs gets its lock after all, while nobody waits for it any more; the next start finds what it did.
    lock.release()
    after = harness_of(sink, target, lock.clock, storage=harness.storage, logs=harness.logs)
    assert after.life() == Finished()
    assert after.problems() == [], harness.trace + after.trace


@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink, FakeSlotwiseSink])
def test_s77_the_next_start_delivers_what_the_hanging_call_may_deliver_at_the_same_time(
    kind: type[Any], lock: Lock
) -> None:
    """In another process, so to speak: there the call still hangs, and comes to its end last."""
    target = MemoryTarget()
    call = "commit_all" if kind is FakeTwoPhaseSink else "send_transaction"
    harness = harness_of(with_watchdog(hanging(kind, call, lock)(target), lock.watchdog), target, lock.clock)
    error_of(harness)
    after = harness_of(kind(target), target, lock.clock, storage=harness.storage, logs=harness.logs)
    after.drain()
    lock.release()
    assert after.problems() == []
    after.drain()
    assert after.problems() == []


ASKED = [
    (FakeTwoPhaseSink, "receipts"),
    (FakeTransactionalSink, "receipts"),
    (FakeTwoPhaseSink, "pending"),
    (FakeTransactionalSink, "forget"),
]


@pytest.mark.parametrize(("kind", "call"), ASKED)
def test_s77_a_target_that_does_not_answer_ends_the_start(kind: type[Any], call: str, lock: Lock) -> None:
    target = MemoryTarget()
    harness = harness_of(kind(target), target, lock.clock)
    harness.life(until=0)
    # Recovery asks all of these when an epoch was settled and receipts are not kept.
    sink = with_watchdog(hanging(kind, call, lock)(target), lock.watchdog)
    after = harness_of(sink, target, lock.clock, storage=harness.storage, logs=harness.logs)
    after.limits = PublishLimits(deadline_s=LIMIT_S, keep_receipts=0, reap_every=1)
    error = error_of(after)
    assert isinstance(error, TargetUnavailable)
    assert f"{call} has not come back for 3600 s" in error.message
    assert error.sink == sink.name


def test_s77_an_abort_that_hangs_ends_the_start(lock: Lock) -> None:
    target = MemoryTarget()
    harness = harness_of(FakeTwoPhaseSink(target), target, lock.clock)
    assert isinstance(harness.life(DiesAt("log commit 0")), Crashed)
    sink = with_watchdog(hanging(FakeTwoPhaseSink, "abort", lock)(target), lock.watchdog)
    after = harness_of(sink, target, lock.clock, storage=harness.storage, logs=harness.logs)
    error = error_of(after)
    assert isinstance(error, TargetUnavailable)
    assert "abort has not come back" in error.message
    lock.release()
    harness.drain()
    assert harness.problems() == []


@pytest.mark.parametrize("call", OF_A_COMMITTER)
def test_s77_a_committer_that_hangs_ends_the_job(call: str, lock: Lock) -> None:
    target = MemoryTarget()
    sink = FakeWriteAheadSink(target)
    sink.committer = hanging(MemoryCommitter, call, lock)(target)
    harness = harness_of(with_watchdog(sink, lock.watchdog), target, lock.clock)
    harness.limits = PublishLimits(deadline_s=LIMIT_S, keep_receipts=0, reap_every=1)
    error = error_of(harness)
    assert isinstance(error, PublishFailed)
    assert f"committer.{call} has not come back" in error.message
    assert error.sink == "plain"


@pytest.mark.parametrize("call", ["choose", "check", "diagnose", "find_rejected"])
def test_s77_so_do_the_questions_of_a_start(call: str, lock: Lock) -> None:
    class Users(TemplateChoice, TransactionalWriteAheadSink):
        def choose(self) -> Any:
            lock.meet()

        def check(self, schema: pa.Schema, *, output_mode: str) -> None:
            lock.meet()

        def diagnose(self, workload: object) -> Any:
            # Only once it is read.
            yield lock.meet()

        def find_rejected(self, *_: object) -> Any:
            yield lock.meet()

        def send_transaction(self, *_: object) -> bool:
            return True

    sink = with_watchdog(Users(name="users"), lock.watchdog)
    arguments: dict[str, tuple[object, ...]] = {"check": (None,), "diagnose": (None,), "find_rejected": ((), JOB, 0)}
    named = {"output_mode": "append"} if call == "check" else {}
    with pytest.raises(TargetUnavailable, match=f"{call} has not come back"):
        getattr(sink, call)(*arguments.get(call, ()), **named)


def test_s77_while_a_call_hangs_nothing_more_is_asked_of_that_sink(lock: Lock) -> None:
    target = MemoryTarget()
    sink = with_watchdog(hanging(FakeTwoPhaseSink, "commit_all", lock)(target), lock.watchdog)
    other = with_watchdog(FakeTwoPhaseSink(target, name="other"), lock.watchdog)
    with pytest.raises(PublishFailed, match="has not come back"):
        sink.commit_all([])
    with pytest.raises(PublishFailed, match="commit was not called: commit_all has not come back"):
        sink.commit({"transaction": "t"})
    with pytest.raises(TargetUnavailable, match="receipts was not called"):
        sink.receipts(JOB)
    assert other.commit_all([]) == []
    assert lock.watchdog.outstanding() == "commit_all of sink 'two-phase' has not come back for 3600 s"
    lock.release()
    assert sink.commit_all([]) == []


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


def test_s77_repetitions_and_the_hanging_one_share_the_deadline(lock: Lock) -> None:
    """It fails after three of five seconds; what then hangs gets the rest, and not five more."""
    target = MemoryTarget()

    class Users(FakeTwoPhaseSink):
        def commit_all(self, handles: Any) -> list[Outcome]:
            if lock.clock.seconds < 3:
                lock.clock.pause(3.0)
                raise ConnectionError("refused")
            lock.clock.pause(2.5)
            lock.released.wait(3)
            return [self.commit(handle) for handle in handles]

    harness = harness_of(with_watchdog(Users(target), lock.watchdog), target, lock.clock)
    assert "commit_all has not come back for 2 s" in error_of(harness).message


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


def test_the_other_way_to_a_target_is_watched_too(lock: Lock) -> None:
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


def thread_of(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> PublisherThread:
    """A publisher that meets the lock with its first decided epoch."""
    target = MemoryTarget()
    harness = harness_of(FakeTwoPhaseSink(target), target, lock.clock)
    assert isinstance(harness.life(DiesAt("sink two-phase commit")), Crashed)
    # Its clock stands still: the watchdog alone would wait for ever.
    lock.meet = lambda: lock.released.wait(60)
    context, _ = look_at(
        sinks=(with_watchdog(hanging(FakeTwoPhaseSink, "commit_all", lock)(target), lock.watchdog),),
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=lock.clock,
    )
    monkeypatch.setattr("onceward.epoch.publisher_thread._LAST_WORDS_S", 0.2)
    monkeypatch.setattr("onceward.epoch.publisher_thread._STILL_S", 0.2)
    return PublisherThread(context, PublishLimits(deadline_s=0.1), watchdog=lock.watchdog)


@pytest.mark.parametrize("timeout_s", [0.1, None])
def test_s77_closing_a_publisher_never_waits_without_end(
    timeout_s: float | None, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = thread_of(lock, monkeypatch)
    thread.start()
    with pytest.raises(PublishFailed, match="commit_all of sink 'two-phase' has not come back") as caught:
        thread.close(timeout_s)
    assert caught.value.epoch == 0
    assert thread.why_busy() is not None
    lock.release()
    thread.close(10.0)
    assert thread.why_busy() is None
