"""A crash before and after every write to storage, log or server, and every pair of them, for every shape of the sink.

The driver dies; the server lives on. Points are numbered anew after each start, as in `protocol/test_crash_sweep.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis_crash_points import crash_points, install_crash_points
from shapes import COUNTER, SHAPES, Reader, Shape

from onceward.testing import CrashAt, Ending, FakeTwoPhaseSink, Harness, MemoryTarget, SinkUnderTest, Source, Sweep
from onceward.testing.faults import shown
from onceward.testing.servers import RedisServer
from pair_sample import PairSample

# A driver that died closes nothing.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SMALL = Source(ends=(2, 3), keys=2)
SEVERAL_PARTS = Source(ends=(4,), keys=2)
"""Two slots of two rows."""


@dataclass(frozen=True)
class SinkCase:
    name: str
    shape: Shape
    options: dict[str, Any] = field(default_factory=dict)
    source: Source = SMALL
    beside: Callable[[], SinkUnderTest] | None = None
    in_pairs: bool = True


def fake() -> SinkUnderTest:
    target = MemoryTarget()
    return SinkUnderTest(FakeTwoPhaseSink(target), lambda: target.rows)


SINK_CASES = (
    # The shapes differ only in what the script does with a row: pairs of crashes are gone through with counters.
    *(SinkCase(shape.name, shape, in_pairs=shape is COUNTER) for shape in SHAPES),
    SinkCase("counter-row-by-row", COUNTER, {"max_rows_per_script": 1}, SEVERAL_PARTS),
    SinkCase("counter-three-rows-at-once", COUNTER, {"max_rows_per_script": 3}, SEVERAL_PARTS),
    SinkCase("counter-and-a-two-phase-sink", COUNTER, beside=fake, in_pairs=False),
)


class Worlds:
    """A world per history, and lives in it that can die inside the sink."""

    def __init__(self, case: SinkCase, server: RedisServer, reader: Reader) -> None:
        self._case, self._server, self._reader = case, server, reader
        self.traces: list[list[str]] = []

    def world(self) -> Harness:
        self._reader.client.flushdb()
        subjects = [self._case.shape.subject(self._server.url, self._reader, check=False, **self._case.options)]
        if self._case.beside is not None:
            subjects.append(self._case.beside())
        harness = Harness(*subjects, source=self._case.source, rows_in_a_batch=1)
        self.traces.append(harness.trace)
        return harness

    def life(self, harness: Harness, faults: CrashAt) -> Ending:
        with crash_points(faults):
            return harness.life(faults)

    def sweep(self) -> Sweep:
        return Sweep(self.world, self.life)


@pytest.fixture
def with_crash_points(monkeypatch: pytest.MonkeyPatch) -> None:
    install_crash_points(monkeypatch)


@pytest.mark.parametrize("case", SINK_CASES, ids=lambda case: case.name)
@pytest.mark.usefixtures("with_crash_points")
def test_a_crash_at_any_point(case: SinkCase, server: RedisServer, reader: Reader, record_sweep: list[str]) -> None:
    worlds = Worlds(case, server, reader)
    points = worlds.sweep().points()
    assert any("redis EVALSHA" in line for line in worlds.traces[0]), "no point stands inside the sink"
    record_sweep.append(f"Redis {case.name}: {points} crash points")


@pytest.mark.parametrize("case", [case for case in SINK_CASES if case.in_pairs], ids=lambda case: case.name)
@pytest.mark.usefixtures("with_crash_points")
def test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point(
    case: SinkCase, server: RedisServer, reader: Reader, pair_sample: PairSample, record_sweep: list[str]
) -> None:
    points, pairs = pair_sample.of(Worlds(case, server, reader).sweep())
    record_sweep.append(f"Redis {case.name}: {points} points, {pairs} ordered pairs, {pair_sample}")


@pytest.mark.usefixtures("with_crash_points")
def test_a_decision_that_is_lost_while_a_part_is_in_does_not_repeat_it(server: RedisServer, reader: Reader) -> None:
    """Rows of a part prove that the epoch was decided: it is finished, and not computed again (scenario 6)."""
    case = SinkCase("counter", COUNTER, {"max_rows_per_script": 1}, SEVERAL_PARTS)
    tried = 0
    for point in range(1, 200, 2):
        worlds = Worlds(case, server, reader)
        harness, faults = worlds.world(), CrashAt(point)
        worlds.life(harness, faults)
        if point > faults.points:
            break
        seen = len(COUNTER.read(reader))
        if 0 < seen < 4 and harness.logs.is_committed(0):
            harness.logs.forget_commit(0)
            tried += 1
        harness.drain()
        assert not harness.problems(), f"crash at {point}: {harness.problems()}\n{shown(harness.trace)}"
    assert tried >= 2
