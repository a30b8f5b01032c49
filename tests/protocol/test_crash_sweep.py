"""A crash before and after every step, for every sink; then every pair of them.

Scenarios 1 to 6, 8, 9, 11, 17 and 64 of docs/scenarios.md, each at every point at which it can happen. Points are
writes (to storage, log, target, and inside the sinks to files and databases) and are numbered anew after each start. A
crash after one write and a crash before the next leave the same world, so pairs are made of the latter.
"""

import gc
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from casts import CASTS, Cast, same_stdout
from inside import inside, stand_between

from onceward.contracts import Storage
from onceward.storage import LocalStorage
from onceward.testing import CrashAt, Crashed, DirectoryLogs, Harness, MemoryLogs, MemoryStorage
from onceward.testing.engine import EngineLogs
from onceward.testing.faults import shown

# A driver that died closes nothing.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
each_cast = pytest.mark.parametrize("cast", CASTS, ids=lambda cast: cast.name.replace(" ", "-"))


class Histories:
    """Makes a world per history and lives lives in it."""

    def __init__(self, cast: Cast, root: Path, *, checkpoint_on_disk: bool) -> None:
        self._cast, self._root = cast, root
        self._checkpoint_on_disk = checkpoint_on_disk
        self._numbers = count()
        self.folder = root

    def world(self) -> Harness:
        """A fresh one; the folder of the one before goes."""
        if self.folder != self._root:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = self._root / str(next(self._numbers))
        storage: Storage = MemoryStorage()
        logs: EngineLogs = MemoryLogs()
        if self._checkpoint_on_disk or self._cast.on_disk:
            self.folder.mkdir()
        if self._checkpoint_on_disk:
            storage, logs = (
                LocalStorage(self.folder / "checkpoint" / "onceward"),
                DirectoryLogs(self.folder / "checkpoint"),
            )
        return Harness(
            *self._cast.make(self.folder), source=self._cast.source, storage=storage, logs=logs, rows_in_a_batch=1
        )

    def life(self, harness: Harness, point: int | None) -> CrashAt:
        """A driver that dies at the point, if it gets there."""
        faults = CrashAt(point)
        with ExitStack() as stack:
            if self._cast.on_disk:
                stack.enter_context(inside(self.folder, faults))
            ending = harness.life(faults)
        if point is not None and point < faults.points:
            assert isinstance(ending, Crashed), f"point {point}: {ending}\n{shown(harness.trace)}"
        return faults

    def judge(self, harness: Harness, *points: int) -> None:
        """A driver that is left alone finishes, and the audit is clean."""
        harness.drain()
        problems = harness.problems()
        assert not problems, f"crashes at {points}: {problems}\n{shown(harness.trace)}"


def distinct(points: int) -> list[int]:
    """The points that leave different worlds: before each write, and after the last."""
    return [*range(0, points, 2), points - 1] if points else []


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stand_between(monkeypatch)
    with same_stdout():
        yield
    gc.collect()


@each_cast
@pytest.mark.usefixtures("between")
def test_a_crash_at_any_point(cast: Cast, workshop: Path, record_sweep: list[str]) -> None:
    histories = Histories(cast, workshop, checkpoint_on_disk=True)
    harness = histories.world()
    points = histories.life(harness, None).points
    histories.judge(harness)
    for point in range(points):
        harness = histories.world()
        histories.life(harness, point)
        histories.judge(harness, point)
    record_sweep.append(f"{cast.name}: {points} crash points, checkpoint on disk")


@each_cast
@pytest.mark.usefixtures("between")
def test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point(
    cast: Cast, workshop: Path, record_sweep: list[str]
) -> None:
    histories = Histories(cast, workshop, checkpoint_on_disk=False)
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
