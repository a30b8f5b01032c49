"""Sinks of which one call meets a lock and does not come back, and jobs that run with them."""

import threading
from typing import Any

from onceward.epoch import PublishLimits, Watchdog
from onceward.errors import OncewardError
from onceward.identity import Generation, JobIdentity, JobName
from onceward.testing import Failed, Harness, ManualClock, MemoryTarget, SinkUnderTest, Source

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
