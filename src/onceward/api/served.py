"""What the API needs of a run, and what it makes of it. Imports nothing of the web: the answers are plain values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from onceward.admin import InDoubt, in_doubt
from onceward.contracts import AnySink, Hooks
from onceward.epoch import RunContext, RunStatus, Watchdog, no_longer_than, with_watchdog
from onceward.history import EpochRecord, Recorder

_LOOK_S: Final = 15.0
"""How long a target may take to say what it holds, when someone asks through the API."""

Look = Callable[[], Sequence[InDoubt]]


class LiveRun(Protocol):
    """A run, as a `Run` of Spark is one. May be asked from any thread."""

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop."""
        ...

    def status(self) -> RunStatus:
        """Where it stands. Asks no target."""
        ...

    def request_stop(self) -> None:
        """Ask it to stop between two epochs; returns at once."""
        ...


class TakesSavepoints(Protocol):
    """What takes savepoints of the run, beside it."""

    def begin(self, folder: Path) -> dict[str, Any]:
        """Begin to take one; returns at once. `Busy` while another one is being taken."""
        ...

    def all(self) -> list[dict[str, Any]]:
        """All that were asked for, the newest first."""
        ...

    def get(self, identifier: str) -> dict[str, Any] | None:
        """The one that was asked for under this id."""
        ...


class Busy(Exception):
    """Someone else's look is under way."""


@dataclass(frozen=True, slots=True)
class Served:
    """One run, and what is known about it. `metrics` gives them as text; `look` asks the targets what they hold.
    `removes_checkpoint`: nothing of it is left after a clean end."""

    run: LiveRun
    context: RunContext
    recorder: Recorder
    checkpoint: str
    started_at: datetime
    max_unpublished: int
    metrics: Callable[[], bytes]
    look: Look
    savepoints: TakesSavepoints
    removes_checkpoint: bool = False
    _looking: threading.Lock = field(default_factory=threading.Lock)

    def newest(self, count: int, *, below: int | None = None) -> list[EpochRecord]:
        """All attempts at the newest so many epochs, those in flight too, the newest first."""
        live = [one for one in self.recorder.in_flight() if below is None or one.epoch < below]
        found = _merged(live, self.recorder.history.newest(count, below=below))
        wanted = sorted({one.epoch for one in found}, reverse=True)[:count]
        return [one for one in reversed(found) if wanted and one.epoch >= wanted[-1]]

    def attempts(self, epoch: int) -> list[EpochRecord]:
        """All attempts at one epoch, in their order."""
        live = [one for one in self.recorder.in_flight() if one.epoch == epoch]
        return _merged(live, self.recorder.history.read(first=epoch, last=epoch))

    def look_at_targets(self) -> Sequence[InDoubt]:
        """Ask them now. One look at a time, however many ask: a target that hangs must not use up all threads."""
        if not self._looking.acquire(blocking=False):
            raise Busy
        try:
            return self.look()
        finally:
            self._looking.release()


def look_beside(context: RunContext, copied: Callable[[AnySink], AnySink]) -> Look:
    """A look by sinks of its own, so that it never shares a connection with the publisher, nor waits for it.

    Sinks travel to executors, so each can be `copied`; a copy has opened nothing yet. They are made when first needed.
    """
    watchdog = Watchdog(context.clock, _LOOK_S)
    copies: list[AnySink] = []

    def look() -> Sequence[InDoubt]:
        if not copies:
            copies.extend(with_watchdog(copied(sink), watchdog) for sink in context.sinks)
        beside = replace(context, sinks=tuple(copies), hooks=Hooks(), listeners=())
        with no_longer_than(_LOOK_S):
            return in_doubt(beside)

    return look


def _merged(live: Sequence[EpochRecord], written: Sequence[EpochRecord]) -> list[EpochRecord]:
    """By epoch and time. A record may be in flight and written at once: the one that has ended knows more."""
    ended = {_key(one) for one in written if one.outcome != "open"}
    running = {_key(one) for one in live}
    known = [one for one in written if one.outcome != "open" or _key(one) not in running]
    found = [*known, *(one for one in live if _key(one) not in ended)]
    return sorted(found, key=lambda one: (one.epoch, one.newest.timestamp() if one.newest else 0.0))


def _key(record: EpochRecord) -> tuple[int, str, datetime | None]:
    return record.epoch, record.run, record.times.get("begun")
