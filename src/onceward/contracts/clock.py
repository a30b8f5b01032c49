"""Time, as the protocol sees it: injected, so that a test can own it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Two readings and one wait. Deadlines use `monotonic`, so a wall clock that jumps changes nothing."""

    def now(self) -> datetime:
        """Wall-clock time with zone; only shown and stored, or compared across processes."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards within one process."""
        ...

    def pause(self, seconds: float) -> None:
        """Let that much time pass."""
        ...
