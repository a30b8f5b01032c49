"""A crash before and after every step, on a real server; then every pair of them.

Points are writes to storage, log and target, and inside the sink every statement that changes something. A crash after
one write and a crash before the next leave the same world, so pairs are made of the latter.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mysql_crash_points import crash_points, install_crash_points
from mysql_workspace import MySQLWorkspace

from onceward.contracts import AnySink
from onceward.storage import LocalStorage
from onceward.testing import CrashAt, DirectoryLogs, Ending, Harness, MemoryLogs, MemoryStorage, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA
from onceward.testing.sweep import Sweep
from pair_sample import PairSample

# A driver that died closes nothing.
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SMALL = Source(ends=(2, 3), keys=2)
"""Two slots in epoch 0, one in epoch 1, a row in each."""


def append(workspace: MySQLWorkspace) -> tuple[SinkUnderTest, ...]:
    return (subject(workspace, workspace.sink(table="appended")),)


def append_by_the_alternate(workspace: MySQLWorkspace) -> tuple[SinkUnderTest, ...]:
    return (subject(workspace, workspace.sink(table="appended").alternate),)


def upsert(workspace: MySQLWorkspace) -> tuple[SinkUnderTest, ...]:
    """Read from a record of all that was ever written: in the table a repetition would hide behind its key."""
    sink = workspace.sink(table="upserted", mode="upsert", keys=["id"], before_triggers="allow")
    made = subject(workspace, sink)
    if not workspace.query("SHOW TABLES LIKE 'written'"):
        workspace.query("CREATE TABLE written LIKE upserted")
        workspace.query("ALTER TABLE written DROP PRIMARY KEY")
        columns = ", ".join(f"NEW.`{column}`" for column in SCHEMA.names)
        for moment in ("AFTER INSERT", "BEFORE UPDATE"):
            workspace.query(
                f"CREATE TRIGGER `{moment}` {moment} ON upserted FOR EACH ROW INSERT INTO written VALUES ({columns})"
            )
        made = subject(workspace, sink)
    return (SinkUnderTest(made.sink, lambda: workspace.rows("written")),)


def subject(workspace: MySQLWorkspace, sink: AnySink) -> SinkUnderTest:
    sink.check(SCHEMA, output_mode="append")
    return SinkUnderTest(sink, lambda: workspace.rows("appended"))


@dataclass(frozen=True)
class SinkCase:
    name: str
    make: Callable[[MySQLWorkspace], tuple[SinkUnderTest, ...]]


SINK_CASES = (
    SinkCase("append", append),
    SinkCase("append by the alternate", append_by_the_alternate),
    SinkCase("upsert", upsert),
    SinkCase("append and upsert", lambda workspace: append(workspace) + upsert(workspace)),
)
each_case = pytest.mark.parametrize("case", SINK_CASES, ids=lambda case: case.name.replace(" ", "-"))


class Worlds:
    """An empty target for every history, and a driver whose statements can be its last."""

    def __init__(self, case: SinkCase, workspace: MySQLWorkspace, folder: Path | None = None) -> None:
        self._workspace, self._folder = workspace, folder
        self._outlets = case.make(workspace)
        self._tables = [name for (name,) in workspace.query("SHOW TABLES")]
        self._worlds = 0

    def world(self) -> Harness:
        assert self._workspace.prepared() == []
        for table in self._tables:
            self._workspace.query(f"DELETE FROM `{table}`")
        self._worlds += 1
        checkpoint = (self._folder / str(self._worlds)) if self._folder else None
        return Harness(
            *self._outlets,
            source=SMALL,
            storage=LocalStorage(checkpoint / "onceward") if checkpoint else MemoryStorage(),
            logs=DirectoryLogs(checkpoint) if checkpoint else MemoryLogs(),
            rows_in_a_batch=1,
        )

    def life(self, harness: Harness, faults: CrashAt) -> Ending:
        with crash_points(faults):
            return harness.life(faults)


@pytest.fixture
def with_crash_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_crash_points(monkeypatch)
    yield
    gc.collect()


@each_case
@pytest.mark.usefixtures("with_crash_points")
def test_a_crash_at_any_point(case: SinkCase, quick: MySQLWorkspace, tmp_path: Path, record_sweep: list[str]) -> None:
    worlds = Worlds(case, quick, tmp_path)
    points = Sweep(worlds.world, worlds.life).points()
    record_sweep.append(f"MySQL {case.name}: {points} crash points, checkpoint on disk")


@pytest.mark.parametrize("case", [SINK_CASES[0], SINK_CASES[2]], ids=lambda case: case.name)
@pytest.mark.usefixtures("with_crash_points")
def test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point(
    pair_sample: PairSample, case: SinkCase, quick: MySQLWorkspace, record_sweep: list[str]
) -> None:
    worlds = Worlds(case, quick)
    points, pairs = pair_sample.of(Sweep(worlds.world, worlds.life))
    record_sweep.append(f"MySQL {case.name}: {points} points, {pairs} ordered pairs, {pair_sample}")
