"""What others see of a job from outside: a file that exists while it is ready, and messages to systemd."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from onceward.errors import ConfigurationError

_OF_SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def without_systemd(environment: dict[str, str]) -> dict[str, str]:
    """For a child that is not to speak for us."""
    return {name: value for name, value in environment.items() if name not in _OF_SYSTEMD}


def notify_systemd(*lines: str) -> None:
    """`sd_notify`: one datagram to the socket that systemd has named; nothing where it has named none.

    A service manager that does not listen is no reason to fail.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect(f"\0{address[1:]}" if address[0] == "@" else address)
        sender.send("\n".join(lines).encode())


class Notifier:
    """Of one job. The ready file is touched at each heartbeat, so that its age tells as well."""

    def __init__(self, name: str, ready_file: Path | None = None) -> None:
        self._name = name
        self._file = ready_file.absolute() if ready_file is not None else None
        self._is_ready = False
        self._remove()

    def starting(self, why: str) -> None:
        """No driver runs, or it is not ready yet."""
        self._is_ready = False
        self._remove()
        notify_systemd(f"STATUS={self._name}: {why}", "WATCHDOG=1")

    def ready(self) -> None:
        """The job is recovered and its query runs."""
        self._is_ready = True
        self._touch()
        notify_systemd("READY=1", f"STATUS={self._name}: running", "WATCHDOG=1")

    def alive(self) -> None:
        """Whoever watches over the job is content with it."""
        if self._is_ready:
            self._touch()
        notify_systemd("WATCHDOG=1")

    def stopping(self) -> None:
        """It has been asked to end."""
        self._is_ready = False
        self._remove()
        notify_systemd("STOPPING=1", f"STATUS={self._name}: stopping after the running epoch", "WATCHDOG=1")

    def ended(self) -> None:
        """It has."""
        self._is_ready = False
        self._remove()

    def failed(self, document: object) -> None:
        """Nothing: the exit code says it."""

    def _touch(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.touch()

    def _remove(self) -> None:
        if self._file is None:
            return
        try:
            self._file.unlink(missing_ok=True)
            if not os.access(self._file.parent, os.W_OK | os.X_OK):
                raise PermissionError(13, "no such folder, or it cannot be written")
        except OSError as error:
            raise ConfigurationError(
                f"--ready-file {self._file}: {error.strerror}", hint="name a file in a folder that this user may write"
            ) from error
