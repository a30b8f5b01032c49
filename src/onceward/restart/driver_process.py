"""A driver as a child process: Python, its JVM and their workers, in a session of their own, so that all of it can be
ended together.

A process group would not do: Spark's Python workers make one for themselves. A session they cannot leave by accident.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onceward.restart.notifier import without_systemd
from onceward.restart.wire import ENVIRONMENT, Decoder, Message

_LOOK_S: Final = 0.05
_KILL_S: Final = 30.0


class DriverProcess:
    """One of them, from its start to its end. The two pipes are those of `wire`."""

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self._hears, said = os.pipe()
        lifeline, self._lifeline = os.pipe()
        inherited = {**os.environ, **(environment or {})}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**without_systemd(inherited), ENVIRONMENT: f"{said}:{lifeline}"},
                pass_fds=(said, lifeline),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._hears)
            os.close(self._lifeline)
            raise
        finally:
            os.close(said)
            os.close(lifeline)
        self._decoder = Decoder()
        self._is_silent = False

    @property
    def pid(self) -> int:
        """Of the driver; it is also the number of its session."""
        return self._process.pid

    def has_exited(self) -> bool:
        """Whether the driver itself has. It is not reaped yet: until then nobody else gets its number."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def messages(self, timeout_s: float) -> list[Message]:
        """What it says within this time."""
        if self._is_silent:
            threading.Event().wait(min(timeout_s, _LOOK_S))
            return []
        readable, _, _ = select.select([self._hears], [], [], timeout_s)
        if not readable:
            return []
        data = os.read(self._hears, 1 << 16)
        self._is_silent = not data
        return self._decoder.feed(data)

    def last_messages(self) -> list[Message]:
        """What it had still said when it exited."""
        found = []
        while not self._is_silent and select.select([self._hears], [], [], 0)[0]:
            found += self.messages(0)
        return found

    def terminate(self) -> None:
        """Ask the driver, and nobody else of its session, to end: the last epoch needs Spark."""
        # Not by `Popen`, which would reap it if it has just exited.
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End all of it at once, also what is stopped and cannot end by itself."""
        kill_session(self.pid)

    def end(self, *, grace_s: float) -> int:
        """After the driver has exited: wait for the rest of its session, kill what does not end, and give the exit
        code, or the number of the signal, negative.

        A JVM whose driver is gone ends by itself, and tidies up. One that does not must not go on beside the next.
        """
        deadline = time.monotonic() + grace_s
        while living_members(self.pid, without=self.pid) and time.monotonic() < deadline:
            threading.Event().wait(_LOOK_S)
        kill_session(self.pid)
        code = self._process.wait()
        os.close(self._hears)
        os.close(self._lifeline)
        _reap_orphans()
        return code


def kill_session(session: int) -> None:
    """SIGKILL to every process of a session, until none is left that runs; of ours, to ourselves last."""
    deadline = time.monotonic() + _KILL_S
    me = os.getpid()
    while (alive := living_members(session, without=me)) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        threading.Event().wait(_LOOK_S)
    if session == me:
        os.kill(me, signal.SIGKILL)


def living_members(session: int, *, without: int = 0) -> list[int]:
    """The processes of a session that are more than an entry waiting to be reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != without:
            with contextlib.suppress(OSError):
                # After the name, which is in parentheses and may hold anything: state, parent, group, session.
                state, _, _, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of_session) == session and state not in "ZX":
                    found.append(int(entry.name))
    return found


def _reap_orphans() -> None:
    """As the first process of a container we inherit what the session left behind."""
    if os.getpid() != 1:
        return
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
