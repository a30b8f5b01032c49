"""A crash before and after every write to storage, log and server, and inside the sinks around every statement.

Scenarios 1 to 6, 8, 9, 11 and 17 for PostgreSQL. A driver that dies leaves its session to the server, which rolls back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from onceward.connections.postgres import Session
from onceward.testing import CrashAt, Ending, Faults, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA
from onceward.testing.sweep import Sweep
from pair_sample import PairSample

from .conftest import Place

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SMALL = Source(ends=(2, 3), keys=2)
READS = ("SELECT", "WITH RECURSIVE", "LOCK TABLE", "BEGIN", "ROLLBACK TO", "SAVEPOINT", "CREATE TEMP")
VARIANTS: dict[str, dict[str, Any]] = {
    "two-phase": {},
    "write-ahead": {"two_phase": False},
    "upsert": {"mode": "upsert", "keys": ["id"]},
}


class CrashPoints:
    """Statements that change something pass through the faults of whoever lives now."""

    def __init__(self) -> None:
        self.faults: Faults | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        run, copy = Session.run, Session.copy
        patch.setattr(Session, "run", lambda *args: self._pass(args[1], partial(run, *args)))
        patch.setattr(Session, "copy", lambda *args: self._pass("COPY", partial(copy, *args)))

    def _pass(self, statement: str, call: Callable[[], Any]) -> Any:
        if self.faults is None or statement.startswith(READS):
            return call()
        return self.faults.perform(f"sql {statement[:24]}", call)


@pytest.fixture
def crash_points(monkeypatch: pytest.MonkeyPatch) -> CrashPoints:
    installed = CrashPoints()
    installed.install(monkeypatch)
    return installed


class Worlds:
    def __init__(self, place: Place, crash_points: CrashPoints, options: dict[str, Any]) -> None:
        self.place, self.crash_points, self.options = place, crash_points, options

    def world(self) -> Harness:
        sink = self.place.sink(**self.options).choose()
        sink.check(SCHEMA, output_mode="append")
        self.place.empty()
        return Harness(SinkUnderTest(sink, self.place.rows, ordered=False), source=SMALL, rows_in_a_batch=1)

    def life(self, harness: Harness, faults: CrashAt) -> Ending:
        self.crash_points.faults = faults
        try:
            return harness.life(faults)
        finally:
            self.crash_points.faults = None


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_crash_at_any_point(variant: str, place: Place, crash_points: CrashPoints, record_sweep: list[str]) -> None:
    worlds = Worlds(place, crash_points, VARIANTS[variant])
    points = Sweep(worlds.world, worlds.life).points()
    assert place.prepared() == []
    record_sweep.append(f"PostgreSQL {variant}: {points} crash points")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point(
    pair_sample: PairSample, variant: str, place: Place, crash_points: CrashPoints, record_sweep: list[str]
) -> None:
    worlds = Worlds(place, crash_points, VARIANTS[variant])
    points, pairs = pair_sample.of(Sweep(worlds.world, worlds.life))
    assert place.prepared() == []
    record_sweep.append(f"PostgreSQL {variant}: {points} points, {pairs} ordered pairs, {pair_sample}")
