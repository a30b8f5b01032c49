"""A standalone cluster of two workers on this machine: executors die under the job, and no row is lost or doubled."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import SETTINGS, standalone
from .processes import ended_at_last, said, start
from .reader import Reader
from .workspace import PATIENCE_S, SparkWorkspace, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    with standalone(tmp_path_factory.mktemp("cluster"), (), ()) as address:
        yield address


def test_executors_killed_in_mid_stage_and_after_pre_commit_leave_no_trace(
    cluster: str, workspace: SparkWorkspace
) -> None:
    workspace.add_files(6)
    driver = start(workspace, master=cluster, settings=SETTINGS, hold={"invoke": 1, "pre-commit": 3})
    with ended_at_last(driver), Reader(workspace) as reader:
        for point in ("invoke", "pre-commit"):
            marker = workspace.work / f"held-{point}"
            wait_until(lambda m=marker: is_written(m) or driver.poll() is not None, f"a task is held at {point}")
            assert driver.poll() is None, said(workspace)
            os.kill(executor_of(int(marker.read_text())), signal.SIGKILL)
        assert driver.wait(PATIENCE_S) == 0, said(workspace)
    assert (workspace.work / "driver-0.log").read_text().count("ERROR TaskSchedulerImpl: Lost executor") == 2
    workspace.expect_exactly_once()
    # The lost attempt left a finished hidden file. It was never visible, and the reaper has removed it.
    workspace.expect_nothing_staged()
    assert not reader.sights, reader.sights


def is_written(marker: Path) -> bool:
    return marker.exists() and marker.read_text().endswith("\n")


def executor_of(worker: int) -> int:
    """The executor's JVM: the parent of the daemon that made this Python worker."""
    pid = worker
    for _ in range(3):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise LookupError(f"process {worker} was not started by an executor")
