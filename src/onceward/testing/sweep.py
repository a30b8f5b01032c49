"""A crash before and after every write, and every pair of such crashes: the second hits the recovery from the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onceward.testing.fakes import Loss
from onceward.testing.faults import CrashAt, shown
from onceward.testing.harness import Crashed, Ending, Harness

World = Callable[[], Harness]
"""Makes everything anew: an empty checkpoint, empty targets."""
Life = Callable[[Harness, CrashAt], Ending]
"""Lets one driver live in that world, with these faults inside its sinks too if the test can reach there."""


def plain_life(harness: Harness, faults: CrashAt) -> Ending:
    """Faults at the contracts only."""
    return harness.life(faults)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Both sweeps over one world. Points are writes and are numbered anew after each start.

    With `loss` each crash is a power loss: what the driver had not synced is torn or gone as well.
    """

    world: World
    life: Life = plain_life
    loss: Loss | None = None

    def points(self) -> int:
        """Crash at every point, finish, judge; how many there were."""
        harness = self.world()
        count = self.live(harness, None).points
        self.judge(harness)
        for point in range(count):
            harness = self.world()
            self.live(harness, point)
            self.judge(harness, point)
        return count

    def pairs(self, firsts: Sequence[int] | None = None) -> tuple[int, int]:
        """Crash at every point, and in the next life at every point of that; how many points and pairs there were.

        A crash after one write and a crash before the next leave the same world, so pairs are made of the latter.
        `firsts` confines the first crash of each pair to these points.
        """
        count = self.live(self.world(), None).points
        pairs = 0
        for first in distinct(count) if firsts is None else firsts:
            harness = self.world()
            self.live(harness, first)
            again = self.live(harness, None).points
            for second in distinct(again):
                harness = self.world()
                self.live(harness, first)
                self.live(harness, second)
                self.judge(harness, first, second)
                pairs += 1
        return count, pairs

    def some(self, one_in: int, begin: int) -> list[int]:
        """One in so many of the points that a crash may hit first, from the one at `begin` on; at least one."""
        points = distinct(self.live(self.world(), None).points)
        return points[begin % min(one_in, len(points)) :: one_in]

    def live(self, harness: Harness, point: int | None) -> CrashAt:
        """One life, which dies at this point if it has it."""
        faults = CrashAt(point)
        ending = self.life(harness, faults)
        if point is not None and point < faults.points and not isinstance(ending, Crashed):
            raise AssertionError(f"point {point}: {ending}\n{shown(harness.trace)}")
        if isinstance(ending, Crashed) and self.loss is not None:
            harness.lose_power(self.loss)
        return faults

    def judge(self, harness: Harness, *points: int) -> None:
        """A driver that is left alone finishes, and the audit is clean."""
        harness.drain()
        problems = harness.problems()
        if problems:
            raise AssertionError(f"crashes at {points}: {problems}\n{shown(harness.trace)}")


def distinct(points: int) -> list[int]:
    """The points that leave different worlds: before each write, and after the last."""
    return [*range(0, points, 2), points - 1] if points else []
