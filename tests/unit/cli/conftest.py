"""A checkpoint on disk as a killed driver leaves it, made by the harness, and a file that defines its job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onceward.sinks import FileSink
from onceward.storage import LocalStorage
from onceward.testing import Behaviour, CrashAt, DirectoryLogs, Harness, SinkUnderTest, Source

EPOCHS = 3


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """A job over the folder; its pipeline is never called by the commands under test here."""
    path = tmp_path / "job.py"
    path.write_text(
        "from onceward import Job\n"
        "from onceward.sinks import FileSink\n"
        f"job = Job(name='job', checkpoint={str(tmp_path / 'checkpoint')!r}, pipeline=lambda spark: None,\n"
        f"          sinks=[FileSink({str(tmp_path / 'out')!r}, format='jsonl')])\n"
    )
    return path


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """The same job, driven without Spark on the same folders."""
    checkpoint = tmp_path / "checkpoint"
    storage = LocalStorage(checkpoint / "onceward")
    storage.root.mkdir(parents=True)
    return Harness(
        SinkUnderTest(FileSink(tmp_path / "out", format="jsonl"), list),
        source=Source(ends=tuple(range(4, 4 * EPOCHS + 1, 4))),
        storage=storage,
        logs=DirectoryLogs(checkpoint),
        directory_id=f"inode {storage.root.stat().st_ino}",
    )


@pytest.fixture
def visible(tmp_path: Path) -> Callable[[], int]:
    """How many rows a plain reader of the folder counts."""
    return lambda: sum(len(path.read_text().splitlines()) for path in (tmp_path / "out").glob("*.jsonl"))


@pytest.fixture
def unpublished(harness: Harness) -> Harness:
    """Epochs 0 and 1 are decided, the driver died before it published them."""
    harness.life(behaviour=Behaviour(publishes=lambda epoch: False), faults=_DieAtTheEnd(), until=1)
    return harness


class _DieAtTheEnd(CrashAt):
    """Dies when the first epoch is to be committed in the target."""

    def perform(self, what, call, *args, **kwargs):
        if what.endswith(" commit_all"):
            raise self.die(what)
        return super().perform(what, call, *args, **kwargs)
