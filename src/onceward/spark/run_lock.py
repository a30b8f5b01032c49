"""One run for one checkpoint in one process: a notebook cell that is run twice must not disturb the first run.

Another process is fenced by the register; here the second start is refused before it recovers anything. So is any start
by a file that is only loaded for the job that it defines.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from onceward.epoch import Watchdog
from onceward.errors import ConfigurationError, Fenced

_CLOSING_S = 5.0


class Holder(Protocol):
    """What runs on a checkpoint."""

    def close(self, timeout_s: float | None = None) -> None:
        """End it; may raise."""
        ...

    def why_busy(self) -> str | None:
        """What it still does after `close`, if anything: a call that hangs, a thread that has not ended."""
        ...


class RunLock:
    """One claim. `is_running` is asked when another start comes: a query that died has let go without a word."""

    def __init__(self, root: Path, name: str, watchdog: Watchdog) -> None:
        self._root = root
        self._name = name
        self._watchdog = watchdog
        self._holder: Holder | None = None
        self._is_running: Callable[[], bool] = lambda: True

    def given_to(self, holder: Holder, is_running: Callable[[], bool]) -> None:
        """The checkpoint is open: this is what runs on it."""
        self._holder, self._is_running = holder, is_running

    def release(self) -> None:
        """It has ended. Let go, unless something of it is still at work: then whoever comes next looks again."""
        self._is_running = lambda: False
        if self._why_busy() is not None:
            return
        with _lock:
            if _held.get(self._root) is self:
                del _held[self._root]

    def end(self) -> None:
        """For who comes after it: close what is left of it, or `Fenced`."""
        if self._is_running():
            raise Fenced(
                f"the job {self._name!r} already runs on this checkpoint in this process",
                hint="stop it first: run.stop(), or query.stop() and close() for foreach_batch",
            )
        if self._holder is not None:
            with contextlib.suppress(Exception):
                # Why it could not publish was told to its own user, and the start that follows tries again.
                self._holder.close(_CLOSING_S)
        if (busy := self._why_busy()) is not None:
            raise Fenced(
                f"a former run of the job {self._name!r} in this process has not ended: {busy}",
                hint="wait until it has, or start the job in a new process",
            )

    def _why_busy(self) -> str | None:
        return self._watchdog.outstanding() if self._holder is None else self._holder.why_busy()


_held: dict[Path, RunLock] = {}
_lock = threading.Lock()


_loaded: ContextVar[Path | None] = ContextVar("loaded", default=None)


@contextlib.contextmanager
def starting_nothing(file: Path) -> Iterator[None]:
    """While a file is executed for the job that it defines: `doctor` and the like must not deliver a row."""
    before = _loaded.set(file)
    try:
        yield
    finally:
        _loaded.reset(before)


def lock_checkpoint(root: Path, name: str, watchdog: Watchdog) -> RunLock:
    """Claim a checkpoint, by its resolved path, for a run that begins now."""
    if (file := _loaded.get()) is not None:
        raise ConfigurationError(
            f"{file.name} starts the job {name!r} while it is only loaded; nothing was started",
            hint='put what starts it under `if __name__ == "__main__":`; then `onceward run`, the other commands and '
            "spark-submit all take the same file",
        )
    mine = RunLock(root, name, watchdog)
    with _lock:
        former = _held.get(root)
        if former is None:
            _held[root] = mine
            return mine
    former.end()
    with _lock:
        # Of two that found it left behind, one.
        if _held.get(root) not in (None, former):
            raise Fenced(
                f"the job {name!r} is being started on this checkpoint by another thread",
                hint="start one run for one checkpoint",
            )
        _held[root] = mine
    return mine
