"""How far a copy is: in a terminal a bar with bytes and rate, in a pipe a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from onceward.cli.show import err, show_bytes

_LOOK_S: Final = 0.1
_EVERY_S: Final = 5.0


class Counted(Protocol):
    """What is being copied."""

    @property
    def total(self) -> int:
        """Bytes in all; 0 while nobody knows."""
        ...

    @property
    def done(self) -> int:
        """Bytes so far."""
        ...

    @property
    def bytes_per_s(self) -> float:
        """The rate."""
        ...


class BytesBar:
    """Looks at the count from a thread of its own, so that whoever copies need not know of it."""

    def __init__(self, doing: str, look: Callable[[], Counted], *, quiet: bool = False) -> None:
        self._doing, self._look = doing, look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="onceward-bytes-bar", daemon=True)
        self._is_shown = not quiet
        self._bar = _bar() if err.is_terminal and not quiet else None

    def __enter__(self) -> BytesBar:
        """Begin."""
        if self._is_shown:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The bar goes."""
        self._ended.set()
        if self._is_shown:
            self._thread.join()

    def _work(self) -> None:
        if self._bar is None:
            self._in_a_pipe()
            return
        with self._bar as bar:
            task: TaskID = bar.add_task(self._doing, total=None)
            while not self._ended.wait(_LOOK_S):
                now = self._look()
                bar.update(task, total=now.total or None, completed=now.done)

    def _in_a_pipe(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(_LOOK_S):
            if time.monotonic() - last >= _EVERY_S:
                last = time.monotonic()
                err.print(line(self._doing, self._look()), markup=False)


def line(doing: str, now: Counted) -> str:
    """As text."""
    return f"{doing}: {show_bytes(now.done)} of {show_bytes(now.total)}, {show_bytes(now.bytes_per_s)}/s"


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=err, transient=True)
