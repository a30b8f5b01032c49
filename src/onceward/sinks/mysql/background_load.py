"""Work that is done while its rows' successors come in: one piece at a time, in order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundLoad:
    """A thread that is made with the first piece. What a piece raises is raised by whatever is called next."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None

    def do(self, piece: Callable[[], None]) -> None:
        """Begin it as soon as the one before has ended."""
        self.wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1)
        self._running = self._thread.submit(piece)

    def wait(self) -> None:
        """Until nothing is on its way."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """End the thread. A piece on its way is not torn from it, and what it raises is dropped."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
