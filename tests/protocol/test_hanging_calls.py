"""Calls that do not come back: the job ends and says which one; the epoch stays staged; late success does no harm."""

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hanging_calls import JOB, LIMIT_S, Lock, error_of, hanging, harness_of

from onceward.contracts import Outcome, TemplateChoice, TransactionalWriteAheadSink
from onceward.epoch import PublisherThread, PublishLimits, with_watchdog
from onceward.epoch.watchdog_proxy import OF_A_COMMITTER
from onceward.errors import PublishFailed, TargetUnavailable
from onceward.recovery import look_at
from onceward.testing import (
    Crashed,
    DiesAt,
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Finished,
    MemoryTarget,
)
from onceward.testing.fake_sinks import MemoryCommitter


@pytest.fixture
def lock() -> Iterator[Lock]:
    found = Lock()
    yield found
    found.release()


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


def test_s77_repetitions_and_the_hanging_one_share_the_deadline(lock: Lock) -> None:
    """It fails after three of five seconds; what then hangs gets the rest, and not five more."""
    target = MemoryTarget()

    class Users(FakeTwoPhaseSink):
        def commit_all(self, handles: Any) -> list[Outcome]:
            if lock.clock.seconds < 3:
                lock.clock.pause(3.0)
                raise ConnectionError("refused")
            lock.clock.pause(2.5)
            lock.released.wait(60)
            return [self.commit(handle) for handle in handles]

    harness = harness_of(with_watchdog(Users(target), lock.watchdog), target, lock.clock)
    assert "commit_all has not come back for 2 s" in error_of(harness).message


def thread_of(lock: Lock, met: threading.Event, monkeypatch: pytest.MonkeyPatch) -> PublisherThread:
    """A publisher that meets the lock with its first decided epoch, and says when."""
    target = MemoryTarget()
    harness = harness_of(FakeTwoPhaseSink(target), target, lock.clock)
    assert isinstance(harness.life(DiesAt("sink two-phase commit")), Crashed)

    def meet() -> None:
        met.set()
        lock.released.wait(60)

    # Its clock stands still: the watchdog alone would wait for ever.
    lock.meet = meet
    context, _ = look_at(
        sinks=(with_watchdog(hanging(FakeTwoPhaseSink, "commit_all", lock)(target), lock.watchdog),),
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=lock.clock,
    )
    monkeypatch.setattr("onceward.epoch.publisher_thread._SHUTDOWN_GRACE_S", 0.2)
    monkeypatch.setattr("onceward.epoch.publisher_thread._STILL_S", 0.2)
    return PublisherThread(context, PublishLimits(deadline_s=0.1), watchdog=lock.watchdog)


@pytest.mark.parametrize("timeout_s", [0.1, None])
def test_s77_closing_a_publisher_never_waits_without_end(
    timeout_s: float | None, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = threading.Event()
    thread = thread_of(lock, met, monkeypatch)
    thread.start()
    assert met.wait(60)
    with pytest.raises(PublishFailed, match="commit_all of sink 'two-phase' has not come back") as caught:
        thread.close(timeout_s)
    assert caught.value.epoch == 0
    assert thread.why_busy() is not None
    lock.release()
    thread.close(60.0)
    assert thread.why_busy() is None
