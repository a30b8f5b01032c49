"""What can go wrong, as wrappers around the contracts. Production code has no hooks for it.

Every operation of a wrapped storage, log, sink or committer passes through one `Faults`, which may let it happen, die
before or after it, lose its reply, fail it, or have it happen much later. Once it has died, everything that the same
driver still tries dies too: a dead process does not tidy up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from onceward.contracts import Clock
from onceward.errors import StorageFailed

T = TypeVar("T")
LOCK_TIMEOUT_S = 30.0
"""So long a target waits for a lock that somebody else holds."""


class Crash(BaseException):
    """The process is gone. Not an `Exception`: nothing may catch it and carry on."""


class TargetError(Exception):
    """The target, or the way to it, failed; whether the operation was applied is not known."""


class Faults:
    """Lets everything happen, and is what every other kind of fault builds on. One object is one driver's life."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.dead = False

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """Let `call` happen, or not. `what` begins with the contract's name; `torn` leaves half of it behind."""
        return call()

    def repeats(self, what: str) -> bool:
        """Whether this operation, once done, shall be done once more later on; then give it to `later`."""
        return False

    def later(self, what: str, call: Callable[[], object]) -> None:
        """Keep an operation that arrives late."""

    def die(self, what: str) -> Crash:
        """From here on this driver is dead."""
        self.dead = True
        self.trace.append(f"CRASH {what}")
        return Crash(what)


class FaultScope:
    """Whose life it is now: for tests that stand below the contracts, so that calls of a client can be crash points."""

    def __init__(self) -> None:
        self._lives: list[Faults] = []

    def __bool__(self) -> bool:
        """Whether anybody lives."""
        return bool(self._lives)

    @contextmanager
    def life(self, faults: Faults) -> Iterator[Faults]:
        """Let every call of this driver's life pass through `faults`."""
        self._lives.append(faults)
        try:
            yield faults
        finally:
            self._lives.pop()

    def perform(self, what: str, call: Callable[[], T]) -> T:
        """Through the faults of whoever lives, or straight on."""
        return self._lives[-1].perform(what, call) if self._lives else call()


class CrashAt(Faults):
    """Dies at one point. Writes are counted from 0: point 2k is before the k-th of them, point 2k+1 after it.

    Reads change nothing, so that a crash before one is the same as a crash after the write that came before it.
    """

    def __init__(self, point: int | None = None) -> None:
        super().__init__()
        self._point = point
        self.writes = 0

    @property
    def points(self) -> int:
        """How many points the life so far had."""
        return 2 * self.writes

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        if self.dead:
            raise Crash(what)
        if not writes:
            return call()
        before = 2 * self.writes
        self.writes += 1
        self.trace.append(what)
        if self._point == before:
            if torn is not None:
                torn()
            raise self.die(f"before {what}")
        try:
            return call()
        finally:
            if self._point == before + 1 and not self.dead:
                raise self.die(f"after {what}")


class PausedAt(Faults):
    """Stops before the first operation that begins like this (SIGSTOP), lets the world go on, and wakes (SIGCONT)."""

    def __init__(self, at: str, meanwhile: Callable[[], object], *, times: int = 1) -> None:
        super().__init__()
        self._at, self._meanwhile, self._left = at, meanwhile, times

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        self.trace.append(what)
        if self._left and what.startswith(self._at):
            self._left -= 1
            self._meanwhile()
        return call()


class DiesAt(Faults):
    """Dies before the first operation that begins like this, or after it.

    What it was about to do can still `arrive`: the last deed of a driver that everyone thinks dead.
    """

    def __init__(self, at: str, *, after: bool = False) -> None:
        super().__init__()
        self._at, self._after = at, after
        self.arrive: Callable[[], object] = lambda: None

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        if self.dead:
            raise Crash(what)
        self.trace.append(what)
        if not what.startswith(self._at):
            return call()
        if self._after:
            call()
        self.arrive = call
        raise self.die(what)


@dataclass(frozen=True, slots=True)
class Rates:
    """How often each fault happens, per operation."""

    crash: float = 0.0
    lost_reply: float = 0.0
    transient: float = 0.0
    disk: float = 0.0
    delayed: float = 0.0
    repeated: float = 0.0
    locked: float = 0.0
    disk_stays_broken: float = 0.3


@dataclass(slots=True)
class Late:
    """Operations that have been sent and have not arrived: they outlive the driver that sent them."""

    waiting: list[tuple[str, Callable[[], object]]] = field(default_factory=list)

    def arrive(self, rng: Random) -> str | None:
        """Let one of them happen now; its sender does not hear how it went."""
        if not self.waiting:
            return None
        what, call = self.waiting.pop(rng.randrange(len(self.waiting)))
        try:
            call()
        except Exception as error:
            return f"late {what}: {type(error).__name__}"
        return f"late {what}"


class RandomFaults(Faults):
    """Faults drawn from a seed."""

    def __init__(self, rng: Random, rates: Rates, late: Late, clock: Clock | None = None) -> None:
        super().__init__()
        self._rng = rng
        self._clock = clock
        self._rates = rates
        self._late = late
        self._disk_is_broken = False
        self._total = sum((rates.crash, rates.lost_reply, rates.transient, rates.disk, rates.delayed, rates.locked))

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        if self.dead:
            raise Crash(what)
        self.trace.append(what)
        drawn = self._rng.random()
        if drawn < self._total:
            self._strike(drawn, what, call, writes=writes, torn=torn)
        if self._disk_is_broken and writes and what.startswith("storage"):
            self.trace.append("  DISK FULL")
            raise StorageFailed(f"{what}: no space left")
        return call()

    def _strike(
        self, drawn: float, what: str, call: Callable[[], object], *, writes: bool, torn: Callable[[], object] | None
    ) -> None:
        """The fault that the draw names, if this kind of operation can have it."""
        rates, part = self._rates, what.partition(" ")[0]
        if drawn < rates.crash:
            if torn is not None:
                torn()
            elif self._rng.random() < 0.5:
                call()
            raise self.die(f"at {what}")
        drawn -= rates.crash
        if part == "storage":
            if drawn < rates.disk:
                self._disk_is_broken = writes and self._rng.random() < rates.disk_stays_broken
                if writes and torn is None and self._rng.random() < 0.5:
                    call()
                self.trace.append("  DISK FAILS")
                raise StorageFailed(f"{what}: input/output error")
        elif part in ("sink", "committer"):
            if drawn < rates.lost_reply:
                call()
                self.trace.append("  LOST REPLY")
                raise TargetError(f"{what}: connection lost")
            if drawn < rates.lost_reply + rates.transient:
                self.trace.append("  FAILS")
                raise TargetError(f"{what}: connection refused")
            if drawn < rates.lost_reply + rates.transient + rates.delayed and self._can_wait(what):
                self._late.waiting.append((what, call))
                self.trace.append("  DELAYED")
                raise TargetError(f"{what}: timed out")

            drawn -= rates.lost_reply + rates.transient + rates.delayed
            if 0 <= drawn < rates.locked and self._clock is not None:
                self._clock.pause(LOCK_TIMEOUT_S)
                self.trace.append("  LOCKED")
                raise TargetError(f"{what}: lock timeout")

    def _can_wait(self, what: str) -> bool:
        verb = what.split(" ")[2]
        return verb in ("commit", "commit_all", "abort")

    def repeats(self, what: str) -> bool:
        """See `Faults.repeats`."""
        return self._rng.random() < self._rates.repeated

    def later(self, what: str, call: Callable[[], object]) -> None:
        """See `Faults.later`."""
        self._late.waiting.append((what, call))


class Chain(Faults):
    """One fault inside another: the first may step aside (see `interleave`), the last one acts."""

    def __init__(self, step: Callable[[str], None], inner: Faults) -> None:
        super().__init__()
        self._step = step
        self._inner = inner
        self.trace = inner.trace

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        self._step(what)
        try:
            return self._inner.perform(what, call, writes=writes, torn=torn)
        finally:
            self.dead = self._inner.dead

    def repeats(self, what: str) -> bool:
        """See `Faults.repeats`."""
        return self._inner.repeats(what)

    def later(self, what: str, call: Callable[[], object]) -> None:
        """See `Faults.later`."""
        self._inner.later(what, call)


def shown(trace: Iterable[str]) -> str:
    """A trace for people, one operation a line."""
    return "\n".join(f"    {line}" for line in trace)
