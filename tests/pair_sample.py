"""Which of the pairs of crashes a run of the tests goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceward.testing import Sweep


@dataclass(frozen=True)
class PairSample:
    """Of the pairs of crashes, those whose first is one in so many."""

    one_in: int
    begin: int

    def firsts(self, points: Sequence[int]) -> Sequence[int]:
        """Of the points of a first crash, at least one."""
        return points[self.begin % min(self.one_in, len(points)) :: self.one_in]

    def of(self, sweep: Sweep) -> tuple[int, int]:
        """How many points there were, and how many pairs were gone through."""
        return sweep.pairs(sweep.some(self.one_in, self.begin))

    def __str__(self) -> str:
        return "all" if self.one_in == 1 else f"one in {self.one_in} from {self.begin}"
