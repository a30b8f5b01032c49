"""A crash before and after every write to storage, log or server, and every pair of them, for every shape of the sink.

The driver dies; the server lives on. Points are numbered anew after each start, as in `protocol/test_crash_sweep.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from between import inside, stand_between
from shapes import COUNTER, SHAPES, Reader, Shape

from onceward.testing import CrashAt, Crashed, FakeTwoPhaseSink, Harness, MemoryTarget, Outlet, Source
from onceward.testing.faults import shown
from onceward.testing.servers import RedisServer

# A driver that died closes nothing.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SMALL = Source(ends=(2, 3), keys=2)
SEVERAL_PARTS = Source(ends=(4,), keys=2)
"""Two slots of two rows."""


@dataclass(frozen=True)
class Cast:
    name: str
    shape: Shape
    options: dict[str, Any] = field(default_factory=dict)
    source: Source = SMALL
    beside: Callable[[], Outlet] | None = None
    in_pairs: bool = True


def fake() -> Outlet:
    target = MemoryTarget()
    return Outlet(FakeTwoPhaseSink(target), lambda: target.rows)


CASTS = (
    # The shapes differ only in what the script does with a row: pairs of crashes are gone through with counters.
    *(Cast(shape.name, shape, in_pairs=shape is COUNTER) for shape in SHAPES),
    Cast("counter-row-by-row", COUNTER, {"rows_at_once": 1}, SEVERAL_PARTS),
    Cast("counter-three-rows-at-once", COUNTER, {"rows_at_once": 3}, SEVERAL_PARTS),
    Cast("counter-and-a-two-phase-sink", COUNTER, beside=fake, in_pairs=False),
)


class Histories:
    """Makes a world per history and lives lives in it."""

    def __init__(self, cast: Cast, server: RedisServer, reader: Reader) -> None:
        self._cast, self._server, self._reader = cast, server, reader

    def world(self) -> Harness:
        self._reader.client.flushdb()
        outlets = [self._cast.shape.outlet(self._server.url, self._reader, check=False, **self._cast.options)]
        if self._cast.beside is not None:
            outlets.append(self._cast.beside())
        return Harness(*outlets, source=self._cast.source, rows_in_a_batch=1)

    def life(self, harness: Harness, point: int | None) -> CrashAt:
        faults = CrashAt(point)
        with inside(faults):
            ending = harness.life(faults)
        if point is not None and point < faults.points:
            assert isinstance(ending, Crashed), f"point {point}: {ending}\n{shown(harness.trace)}"
        return faults

    def judge(self, harness: Harness, *points: int) -> None:
        harness.drain()
        problems = harness.problems()
        assert not problems, f"crashes at {points}: {problems}\n{shown(harness.trace)}"


def distinct(points: int) -> list[int]:
    """The points that leave different worlds: before each write, and after the last."""
    return [*range(0, points, 2), points - 1] if points else []


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_between(monkeypatch)


@pytest.mark.parametrize("cast", CASTS, ids=lambda cast: cast.name)
@pytest.mark.usefixtures("between")
def test_a_crash_at_any_point(cast: Cast, server: RedisServer, reader: Reader, record_sweep: list[str]) -> None:
    histories = Histories(cast, server, reader)
    harness = histories.world()
    points = histories.life(harness, None).points
    histories.judge(harness)
    assert any("redis EVALSHA" in line for line in harness.trace), "no point stands inside the sink"
    for point in range(points):
        harness = histories.world()
        histories.life(harness, point)
        histories.judge(harness, point)
    record_sweep.append(f"{cast.name}: {points} crash points")


@pytest.mark.parametrize("cast", [cast for cast in CASTS if cast.in_pairs], ids=lambda cast: cast.name)
@pytest.mark.usefixtures("between")
def test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point(
    cast: Cast, server: RedisServer, reader: Reader, record_sweep: list[str]
) -> None:
    histories = Histories(cast, server, reader)
    points = histories.life(histories.world(), None).points
    pairs = 0
    for first in distinct(points):
        harness = histories.world()
        histories.life(harness, first)
        again = histories.life(harness, None).points
        for second in distinct(again):
            harness = histories.world()
            histories.life(harness, first)
            histories.life(harness, second)
            histories.judge(harness, first, second)
            pairs += 1
    record_sweep.append(f"{cast.name}: {points} points, {pairs} ordered pairs")


@pytest.mark.usefixtures("between")
def test_a_decision_that_is_lost_while_a_part_is_in_does_not_repeat_it(server: RedisServer, reader: Reader) -> None:
    """Rows of a part prove that the epoch was decided: it is finished, and not computed again (scenario 6)."""
    cast = Cast("counter", COUNTER, {"rows_at_once": 1}, SEVERAL_PARTS)
    tried = 0
    for point in range(1, 200, 2):
        histories = Histories(cast, server, reader)
        harness = histories.world()
        faults = histories.life(harness, point)
        if point > faults.points:
            break
        seen = len(COUNTER.read(reader))
        if 0 < seen < 4 and harness.logs.is_committed(0):
            harness.logs.forget_commit(0)
            tried += 1
        histories.judge(harness, point)
    assert tried >= 2
