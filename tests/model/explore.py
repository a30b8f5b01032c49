"""A plain breadth-first search over the states of a model. The first violation found has a shortest schedule."""

import gc
from collections import deque
from dataclasses import dataclass

from .protocol import Protocol
from .world import World


class TooManyStates(Exception):
    """The search passed its limit: the bounds are too wide for this run, and nothing is proved."""


@dataclass(frozen=True)
class Result:
    states: int
    violation: str
    schedule: tuple[str, ...]

    def __str__(self) -> str:
        if not self.violation:
            return f"{self.states:,} states, no violation"
        lines = [f"{i:3} {label}" for i, label in enumerate(self.schedule, 1)]
        return "\n".join([f"{self.violation} (after {self.states:,} states)", *lines])


def explore(model: Protocol, *, limit: int = 10_000_000) -> Result:
    """Visit every reachable state once, or stop at the first one that breaks an invariant."""
    # States hold no cycles, and walking millions of them over and over costs a quarter of the time.
    gc.disable()
    try:
        return _search(model, limit)
    finally:
        gc.enable()


def _search(model: Protocol, limit: int) -> Result:
    first = model.initial()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    frontier = deque([first])
    while frontier:
        world = frontier.popleft()
        stuck = any(driver.run for driver in world.drivers)
        for label, after in model.steps(world):
            stuck = False
            if after in came_from:
                continue
            came_from[after] = (world, label)
            if after.broken:
                return Result(len(came_from), after.broken, _schedule(came_from, after))
            frontier.append(after)
        if stuck:
            return Result(len(came_from), "a run waits for ever", _schedule(came_from, world))
        if len(came_from) > limit:
            raise TooManyStates(f"more than {limit:,} states")
    return Result(len(came_from), "", ())


def _schedule(came_from: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    labels = []
    while (edge := came_from[world]) is not None:
        world, label = edge
        labels.append(label)
    return tuple(reversed(labels))
