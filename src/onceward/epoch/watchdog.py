"""A limit for every call that leaves the process: whoever waits for it stops waiting, and says what it waited for.

A call cannot be ended from outside. It goes on in a thread of its own, may still succeed, and must then be harmless: it
is, for the same reasons for which a driver that everybody took for dead may wake (receipts, write-once names, commits
that answer "already"). But while it hangs, this process asks nothing more of that sink.

Each thread that makes calls has one helper, which makes them for it, one after the other. So a sink sees its calls come
from as many threads as without the watchdog, and handing one over costs less than a system call to a target does.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onceward.contracts import Clock
from onceward.errors import OncewardError

log = logging.getLogger("onceward")
T = TypeVar("T")

_LOOK_S = 0.25
"""How often the clock is looked at while a call is out. Its end is noticed at once."""

_LEAST_S = 1.0
"""No call is taken for hanging before that."""


class _Task(Generic[T]):
    """One call, and how it ended."""

    def __init__(self, do: Callable[[], T]) -> None:
        self._do = do
        self._context = contextvars.copy_context()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._meeting = threading.Lock()
        self._came_back: Callable[[], None] | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """By the helper."""
        try:
            self._result.append(self._context.run(self._do))
        except BaseException as error:
            self._error = error
        with self._meeting:
            self.done.set()
            came_back = self._came_back
        if came_back is not None:
            came_back()

    def abandon(self, came_back: Callable[[], None]) -> bool:
        """Nobody waits any more; `came_back` is called once it has ended. False: it has, in this very moment."""
        with self._meeting:
            if self.done.is_set():
                return False
            self._came_back = came_back
            return True

    def outcome(self) -> T:
        """What it returned, or raised."""
        if self._error is not None:
            # Not kept here: an error holds the frames that hold this task.
            error, self._error = self._error, None
            raise error
        return self._result[0]


class _Helper:
    """A thread that makes calls for one other thread, and ends with it."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task[Any] | None] = queue.SimpleQueue()
        name = f"{threading.current_thread().name}-calls"
        threading.Thread(target=_work, args=(self._tasks,), name=name, daemon=True).start()

    def give(self, task: _Task[T]) -> None:
        self._tasks.put(task)

    def __del__(self) -> None:
        self._tasks.put(None)


def _work(tasks: queue.SimpleQueue[_Task[Any] | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task


class _OfThisThread(threading.local):
    helper: _Helper | None = None
    left_s: float | None = None


_mine = _OfThisThread()


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Calls that this thread makes inside get no more than this; nothing changes where it is not above zero."""
    before = _mine.left_s
    if seconds > 0:
        _mine.left_s = seconds
    try:
        yield
    finally:
        _mine.left_s = before


@dataclass(frozen=True, slots=True)
class _Started:
    """A call that has not come back."""

    sink: str
    call: str
    since_s: float


class Watchdog:
    """Of one run. `limit_s` is what a call may take; one that takes longer is given up and remembered until it ends."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._out: dict[_Task[Any], _Started] = {}
        self._given_up: dict[_Task[Any], _Started] = {}
        self.calls = 0

    def call(self, sink: str, name: str, do: Callable[[], T], *, error: type[OncewardError]) -> T:
        """What `do` returns or raises; `error` when it does not come back in time, or an earlier call has not yet."""
        self._refuse_beside_hanging(sink, name, error)
        limit_s = max(_LEAST_S, self._limit_s if _mine.left_s is None else min(self._limit_s, _mine.left_s))
        task: _Task[T] = _Task(do)
        started = _Started(sink, name, self._clock.monotonic())
        with self._lock:
            self.calls += 1
            self._out[task] = started
        helper, _mine.helper = _mine.helper or _Helper(), None
        try:
            helper.give(task)
            while not task.done.wait(_LOOK_S):
                waited_s = self._clock.monotonic() - started.since_s
                if waited_s >= limit_s and self._give_up(task, started):
                    raise _hangs(error, started, waited_s)
        except BaseException:
            # Also when whoever waits is interrupted (Ctrl-C): the call is still out.
            self._give_up(task, started)
            raise
        finally:
            with self._lock:
                self._out.pop(task, None)
        _mine.helper = helper
        return task.outcome()

    def outstanding(self) -> str | None:
        """Which call is out, given up or not, and for how long; the oldest one, None when there is none."""
        with self._lock:
            found = [*self._given_up.values(), *self._out.values()]
        if not found:
            return None
        oldest = min(found, key=lambda one: one.since_s)
        seconds = self._clock.monotonic() - oldest.since_s
        return f"{oldest.call} of sink {oldest.sink!r} has not come back for {seconds:.0f} s"

    def _refuse_beside_hanging(self, sink: str, name: str, error: type[OncewardError]) -> None:
        with self._lock:
            hanging = next((one for one in self._given_up.values() if one.sink == sink), None)
        if hanging is not None:
            seconds = self._clock.monotonic() - hanging.since_s
            raise error(
                f"{name} was not called: {hanging.call} has not come back for {seconds:.0f} s", sink=sink, hint=_HINT
            )

    def _give_up(self, task: _Task[T], started: _Started) -> bool:
        """False when it ended in this moment."""

        def came_back() -> None:
            with self._lock:
                self._given_up.pop(task, None)
            text = "sink %r: %s came back after it was given up"
            log.warning(text, started.sink, started.call, extra={"sink": started.sink})

        with self._lock:
            self._given_up[task] = started
        if task.abandon(came_back):
            return True
        with self._lock:
            self._given_up.pop(task, None)
        return False


_HINT = (
    "look for a lock or a hanging connection in the target. The call may still complete there, which does no harm: "
    "start again once it has ended, or in a new process; what it did is found and not repeated"
)


def _hangs(error: type[OncewardError], call: _Started, waited_s: float) -> OncewardError:
    return error(f"{call.call} has not come back for {waited_s:.0f} s", sink=call.sink, hint=_HINT)
