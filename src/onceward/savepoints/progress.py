"""How far a copy is: bytes done, bytes in all, the rate. Written by the threads that copy, read by any other."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import Enum


class State(Enum):
    """Of a take."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class Progress:
    """Begun anew when what was being copied has been purged meanwhile."""

    total: int = 0
    done: int = 0
    began: float = 0.0
    ended: float | None = None
    _adding: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, total: int) -> None:
        """Nothing is copied yet."""
        self.total, self.done, self.began = total, 0, time.monotonic()

    def add(self, count: int) -> None:
        """So many more bytes."""
        with self._adding:
            self.done += count

    def end(self) -> None:
        """No more come."""
        self.ended = time.monotonic()

    @property
    def bytes_per_s(self) -> float:
        """Since it began; 0 before the first byte."""
        took = (self.ended or time.monotonic()) - self.began if self.began else 0.0
        return self.done / took if took > 0 else 0.0
