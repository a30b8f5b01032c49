"""A supervised driver as a process of its own, and the processes below it: each in sight, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onceward.clock import SystemClock
from onceward.restart import Life, LifeLog
from onceward.restart.driver_process import kill_session, living_members
from onceward.storage import LocalStorage

from .processes import DRIVER, said, start
from .workspace import PATIENCE_S, SparkWorkspace, wait_until


class Supervised:
    """One `onceward run` with a strategy."""

    def __init__(self, workspace: SparkWorkspace, process: subprocess.Popen[bytes]) -> None:
        self._workspace = workspace
        self.process = process
        self._seen: set[int] = set()

    @property
    def ready(self) -> Path:
        return self._workspace.work / "ready"

    def driver(self) -> int | None:
        """The process that the supervisor has started, None while there is none."""
        for pid in children(self.process.pid):
            self._seen.add(pid)
            return pid
        return None

    def jvm(self) -> int:
        """That of the driver."""
        (found,) = [pid for pid in children(self.driver() or 0) if b"java" in cmdline(pid).split(b"\0")[0]]
        return found

    def wait_for_another(self, before: int | None) -> int:
        """Until another driver than that is ready."""

        def is_there() -> bool:
            assert self.process.poll() is None, said(self._workspace)
            return self.driver() not in (None, before) and self.ready.exists()

        wait_until(is_there, "a driver is ready")
        found = self.driver()
        assert found is not None
        return found

    def close(self) -> None:
        """Whatever the test did: the supervisor first, so that it starts no other, then all of the drivers."""
        self.driver()
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for session in self._seen:
            kill_session(session)


@contextmanager
def supervised(workspace: SparkWorkspace, *options: str, **config: object) -> Iterator[Supervised]:
    """Start the tests' driver under a supervisor."""
    command = ["-m", "onceward", "run", str(DRIVER), "--spark-log", "--ready-file", str(workspace.work / "ready")]
    one = Supervised(workspace, start(workspace, *command, *options, **config))
    try:
        yield one
    finally:
        one.close()


def lives(workspace: SparkWorkspace) -> list[Life]:
    """What the checkpoint says of them."""
    return LifeLog(LocalStorage(workspace.checkpoint / "onceward"), SystemClock()).read()


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if int(ppid) == parent and state not in "ZX":
                    found.append(int(entry.name))
    return found


def cmdline(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill_all(session: int) -> None:
    """As a power cut does it."""
    for pid in living_members(session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
