"""What every server has: a program, a port, a folder, and the ways in which it can end."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

_STOPS_WITHIN_S = 30.0


class ServerMissing(Exception):
    """The server's program is not on this machine; the message says what to install."""


class Server(ABC):
    """One server process, with all that it starts itself. `settings` go to it as they are."""

    package: ClassVar[str]
    """What to install on Debian."""
    programs: ClassVar[tuple[str, ...]]
    """Any of these will do."""
    folders: ClassVar[tuple[str, ...]] = ("/usr/sbin", "/usr/local/sbin")
    """Where they are, if not on the PATH."""
    accounts: ClassVar[tuple[str, ...]] = ()
    """Who runs it when we are root and it does not like that: the first account that exists."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    starts_within_s: ClassVar[float] = 60.0

    def __init__(self, **settings: str | int) -> None:
        self.settings = settings
        self.program = self.find(*self.programs)
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"onceward-{self.package}-"))
        self._process: subprocess.Popen[bytes] | None = None
        account = self._choose_account()
        self._user = account.pw_uid if account else None
        self._group = account.pw_gid if account else None
        if account is not None:
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self._prepared = False
        atexit.register(self.close)

    @classmethod
    def find(cls, *programs: str) -> str:
        """The path of the first of these programs that exists."""
        path = os.pathsep.join([os.environ.get("PATH", ""), *cls.folders])
        for program in programs:
            found = shutil.which(program, path=path)
            if found is not None:
                return found
        raise ServerMissing(
            f"{' or '.join(programs)} is not installed (on Debian or Ubuntu: sudo apt-get install {cls.package})"
        )

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts it in the foreground."""

    def prepare(self) -> None:
        """Make its data folder; once."""
        return None

    @abstractmethod
    def answers(self) -> bool:
        """Whether it takes requests. An exception means that it does not yet."""

    @property
    def log(self) -> str:
        """What it has printed."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> Self:
        """Start it, or start it again after `stop` or `kill`; returns once it answers."""
        if not self._prepared:
            self.prepare()
            self._prepared = True
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                user=self._user,
                group=self._group,
            )
        deadline = time.monotonic() + self.starts_within_s
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.program} did not start:\n{self.log[-4000:]}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """End it as an operator would."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End it, and all its children, as a power loss would; what it has on disk stays."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on after `pause`."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its data."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *command: str) -> str:
        """Run one of its tools to the end, as the account that it runs as; what it prints."""
        done = subprocess.run(
            command, capture_output=True, cwd=self.folder, check=False, user=self._user, group=self._group
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout.decode()}\n{done.stderr.decode()}")
        return done.stdout.decode()

    def _is_ready(self) -> bool:
        try:
            return self.answers()
        except Exception:
            return False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        # PostgreSQL has a child for every connection, each in a group of its own.
        for pid in [*_children(self._process.pid), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if number == signal.SIGKILL:
            self._signal(number)
        elif self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(_STOPS_WITHIN_S)
        self._process = None

    def _choose_account(self) -> pwd.struct_passwd | None:
        if os.geteuid() != 0 or not self.accounts:
            return None
        for name in self.accounts:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise ServerMissing(f"{self.program} must not run as root, and none of {self.accounts} exists")


def _children(pid: int) -> list[int]:
    """The processes that this one has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number
