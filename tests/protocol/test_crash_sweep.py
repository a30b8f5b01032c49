"""A crash before and after every step, for every sink; then every pair of them.

Scenarios 1 to 6, 8, 9, 11, 17 and 64 of docs/scenarios.md, each at every point at which it can happen. Points are
writes: to storage, log, target, and inside the sinks to files and databases.
"""

import gc
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from crash_points import crash_points, install_crash_points
from sink_cases import SINK_CASES, SinkCase, same_stdout

from onceward.contracts import Storage
from onceward.storage import LocalStorage
from onceward.testing import CrashAt, DirectoryLogs, Ending, Harness, MemoryLogs, MemoryStorage
from onceward.testing.engine import EngineLogs
from onceward.testing.sweep import Sweep
from pair_sample import PairSample

# A driver that died closes nothing.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
each_case = pytest.mark.parametrize("case", SINK_CASES, ids=lambda case: case.name.replace(" ", "-"))


class Worlds:
    """Makes a world per history, and lets drivers live in the last one, watched inside its sinks."""

    def __init__(self, case: SinkCase, root: Path, *, checkpoint_on_disk: bool) -> None:
        self._case, self._root = case, root
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
        if self._checkpoint_on_disk or self._case.on_disk:
            self.folder.mkdir()
        if self._checkpoint_on_disk:
            storage, logs = (
                LocalStorage(self.folder / "checkpoint" / "onceward"),
                DirectoryLogs(self.folder / "checkpoint"),
            )
        return Harness(
            *self._case.make(self.folder), source=self._case.source, storage=storage, logs=logs, rows_in_a_batch=1
        )

    def life(self, harness: Harness, faults: CrashAt) -> Ending:
        if not self._case.on_disk:
            return harness.life(faults)
        with crash_points(self.folder, faults):
            return harness.life(faults)

    def sweep(self) -> Sweep:
        return Sweep(self.world, self.life)


@pytest.fixture
def with_crash_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_crash_points(monkeypatch)
    with same_stdout():
        yield
    gc.collect()


@each_case
@pytest.mark.usefixtures("with_crash_points")
def test_a_crash_at_any_point(case: SinkCase, workshop: Path, record_sweep: list[str]) -> None:
    points = Worlds(case, workshop, checkpoint_on_disk=True).sweep().points()
    record_sweep.append(f"{case.name}: {points} crash points, checkpoint on disk")


@each_case
@pytest.mark.usefixtures("with_crash_points")
def test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point(
    case: SinkCase, workshop: Path, pair_sample: PairSample, record_sweep: list[str]
) -> None:
    points, pairs = pair_sample.of(Worlds(case, workshop, checkpoint_on_disk=False).sweep())
    record_sweep.append(f"{case.name}: {points} points, {pairs} ordered pairs, {pair_sample}")
