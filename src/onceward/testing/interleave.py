"""Several drivers at once, one step at a time, in an order that a seed decides.

Each driver is a thread, but only the one that holds the turn moves. It may lose the turn at every operation that passes
through its faults. A long slice for one is a pause (SIGSTOP) for the others. In a crowd the turn often changes right
where drivers can meet: at the engine's log, the manifests and the settled markers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from random import Random

_SLICES = (0, 0, 1, 1, 2, 3, 5, 8, 13, 30, 100, 1000)
_CROSSING = re.compile("log (?:plan|commit|decided)|storage create (?:manifests|settled)/")

Step = Callable[[str], None]


class Interleaver:
    """Runs tasks to their ends; each gets a `step` function to call wherever it can be interrupted."""

    def __init__(self, rng: Random, slices: Sequence[int] = _SLICES, *, crowded: bool = False) -> None:
        self._rng = rng
        self._crowded = crowded
        self._slices = slices
        self._turns: list[threading.Lock] = []
        self._alive: list[int] = []
        self._left = 0
        self._over = threading.Lock()
        self._failures: list[BaseException] = []

    def run(self, tasks: Sequence[Callable[[Step], None]]) -> None:
        """Run all of them; an exception of any is raised here, after all have ended."""
        self._turns = [threading.Lock() for _ in tasks]
        self._alive = list(range(len(tasks)))
        self._over.acquire()
        threads = []
        for number, task in enumerate(tasks):
            self._turns[number].acquire()
            threads.append(threading.Thread(target=self._live, args=(number, task), daemon=True))
            threads[-1].start()
        self._hand_over()
        self._over.acquire()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _live(self, number: int, task: Callable[[Step], None]) -> None:
        self._turns[number].acquire()
        try:
            task(lambda what: self._step(number, what))
        except BaseException as failure:
            self._failures.append(failure)
        self._alive.remove(number)
        self._hand_over()

    def _step(self, number: int, what: str) -> None:
        if self._crowded and _CROSSING.match(what) and self._rng.random() < 0.6:
            self._left = 0
        if self._left > 0 or len(self._alive) == 1:
            self._left -= 1
            return
        chosen = self._choose()
        if chosen != number:
            self._turns[chosen].release()
            self._turns[number].acquire()

    def _choose(self) -> int:
        self._left = self._rng.choice(self._slices)
        return self._rng.choice(self._alive)

    def _hand_over(self) -> None:
        if self._alive:
            self._turns[self._choose()].release()
        else:
            self._over.release()
