"""A crash before and after every write to storage, log or broker, and pairs of them.

The driver dies; the broker lives on, with what the dead one left open. Points are numbered anew after each start, as in
`protocol/test_crash_sweep.py`. Every life has a sink and thus a producer of its own.
"""

import itertools
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kafka_crash_points import crash_points, install_crash_points
from topics import KafkaWorkspace

from onceward.testing import CrashAt, Ending, FakeTwoPhaseSink, Harness, MemoryTarget, SinkUnderTest, Source, Sweep
from onceward.testing.servers import KafkaServer
from pair_sample import PairSample

_worlds = itertools.count()


@dataclass(frozen=True)
class SinkCase:
    name: str
    source: Source
    options: dict[str, Any] = field(default_factory=dict)
    beside: Callable[[], SinkUnderTest] | None = None


def fake() -> SinkUnderTest:
    target = MemoryTarget()
    return SinkUnderTest(FakeTwoPhaseSink(target), lambda: target.rows)


WHOLE_EPOCHS = SinkCase("whole epochs", Source(ends=(2, 3), keys=2))
SLOT_BY_SLOT = SinkCase("slot by slot", Source(ends=(2,), keys=2), {"max_rows_per_transaction": 1})
WITH_A_TWO_PHASE_SINK = SinkCase("and a two-phase sink", Source(ends=(2,), keys=2), beside=fake)
ONE_EPOCH = SinkCase("one epoch", Source(ends=(2,), keys=2), {"max_rows_per_transaction": 1})


class Worlds:
    """A world per history, and lives in it that can die inside the sink."""

    def __init__(self, case: SinkCase, server: KafkaServer) -> None:
        self._case, self._workspace = case, KafkaWorkspace(server)
        self.traces: list[list[str]] = []

    def world(self) -> Harness:
        self._workspace.begin_anew()
        sink = self._workspace.sink(key="key", **self._case.options)
        subjects = [SinkUnderTest(sink, self._workspace.rows)]
        if self._case.beside is not None:
            subjects.append(self._case.beside())
        harness = Harness(*subjects, source=self._case.source, rows_in_a_batch=1, name=f"job {next(_worlds)}")
        self.traces.append(harness.trace)
        return harness

    def life(self, harness: Harness, faults: CrashAt) -> Ending:
        first, *others = harness.subjects
        harness.subjects = (replace(first, sink=pickle.loads(pickle.dumps(first.sink))), *others)
        with crash_points(faults):
            return harness.life(faults)

    def sweep(self) -> Sweep:
        return Sweep(self.world, self.life)


@pytest.fixture(autouse=True)
def _between(monkeypatch: pytest.MonkeyPatch) -> None:
    install_crash_points(monkeypatch)


@pytest.mark.parametrize("case", [WHOLE_EPOCHS, SLOT_BY_SLOT, WITH_A_TWO_PHASE_SINK], ids=lambda case: case.name)
def test_a_crash_at_any_point(case: SinkCase, kafka: KafkaServer, record_sweep: list[str]) -> None:
    worlds = Worlds(case, kafka)
    points = worlds.sweep().points()
    for call in ("init", "receipt", "commit"):
        assert any(f"kafka {call}" in line for trace in worlds.traces for line in trace), "no point inside the sink"
    record_sweep.append(f"Kafka {case.name}: {points} crash points")


def test_a_crash_at_any_point_of_the_recovery_from_a_crash_inside_the_sink(
    kafka: KafkaServer, pair_sample: PairSample, record_sweep: list[str]
) -> None:
    """The first one leaves a transaction open, or committed without anybody knowing."""
    worlds = Worlds(ONE_EPOCH, kafka)
    harness = worlds.world()
    writes = worlds.sweep().live(harness, None).trace
    firsts = [
        2 * number + 1 for number, what in enumerate(writes) if what.startswith(("kafka receipt", "kafka commit"))
    ]
    assert len(firsts) >= 4, "two slots, each with a receipt and a commit"
    some = firsts[pair_sample.begin % len(firsts) :][:1] if pair_sample.one_in > 1 else firsts
    _, pairs = worlds.sweep().pairs(some)
    record_sweep.append(f"Kafka {ONE_EPOCH.name}: {pairs} ordered pairs inside the sink, {pair_sample}")


@pytest.mark.soak
def test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point(
    kafka: KafkaServer, record_sweep: list[str]
) -> None:
    worlds = Worlds(ONE_EPOCH, kafka)
    points, pairs = worlds.sweep().pairs()
    record_sweep.append(f"Kafka {ONE_EPOCH.name}: {points} points, {pairs} ordered pairs")
