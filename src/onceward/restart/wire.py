"""What a supervised driver tells its supervisor, over a pipe: one JSON object a line.

A second pipe goes the other way and carries nothing: it ends when the supervisor does, however that happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

ENVIRONMENT: Final = "ONCEWARD_SUPERVISOR"
"""Tells the driver its two ends: `<written by the driver>:<ends with the supervisor>`."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The driver is alive, and so is its JVM: it has just answered."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The job is recovered and its query runs."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """Somebody has asked the driver itself to stop, as `onceward stop` does: however that ends, it is not restarted."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The last words of a driver that ends with an error; the same document that `--json` prints."""

    document: Mapping[str, Any]


Message = Beat | Ready | Stopping | Failed


def encoded(message: Message) -> bytes:
    """As a line."""
    match message:
        case Beat():
            document: Mapping[str, Any] = {"beat": True}
        case Ready():
            document = {"ready": True}
        case Stopping():
            document = {"stopping": True}
        case Failed():
            document = {"failed": message.document}
    return json.dumps(document).encode() + b"\n"


class Decoder:
    """Puts lines together again. What is no message of ours is passed over: a driver may die in the middle of one."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole by now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [message for line in lines if (message := _message(line)) is not None]


def _message(line: bytes) -> Message | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    match document:
        case {"beat": True}:
            return Beat()
        case {"ready": True}:
            return Ready()
        case {"stopping": True}:
            return Stopping()
        case {"failed": dict(said)}:
            return Failed(said)
        case _:
            return None


class ToSupervisor:
    """The driver's ends of both pipes."""

    def __init__(self, said: int, lifeline: int) -> None:
        self._said = said
        self._lifeline = lifeline
        self._lock = threading.Lock()
        for descriptor in (said, lifeline):
            # Java and the workers must not hold them open.
            os.set_inheritable(descriptor, False)

    @classmethod
    def from_environment(cls) -> Self | None:
        """None in a driver that nobody supervises. Taken out of the environment, which processes of ours inherit."""
        text = os.environ.pop(ENVIRONMENT, None)
        if text is None:
            return None
        said, lifeline = map(int, text.split(":"))
        return cls(said, lifeline)

    def ready(self) -> None:
        """See `Ready`."""
        self._send(Ready())

    def alive(self) -> None:
        """See `Beat`."""
        self._send(Beat())

    def stopping(self) -> None:
        """See `Stopping`."""
        self._send(Stopping())

    def ended(self) -> None:
        """Nothing: it is seen."""

    def failed(self, document: Mapping[str, Any]) -> None:
        """See `Failed`."""
        self._send(Failed(document))

    def when_gone(self, act: Callable[[], None]) -> None:
        """Call it, in a thread of its own, when the supervisor has ended before us."""

        def wait() -> None:
            with contextlib.suppress(OSError):
                while os.read(self._lifeline, 1):
                    pass
            act()

        threading.Thread(target=wait, name="onceward-lifeline", daemon=True).start()

    def _send(self, message: Message) -> None:
        # Nobody to tell: `when_gone` sees to that.
        with self._lock, contextlib.suppress(OSError):
            os.write(self._said, encoded(message))
