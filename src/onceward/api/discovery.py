"""How a client finds the API of a running job: a file beside its checkpoint that only its owner can read."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from onceward.storage import make_folders

FILE: Final = "api.json"
_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class Discovery:
    """Where the driver of a checkpoint answers, and what to tell it. `checkpoint` is where the file was written: one
    that was copied with its directory says so. Printed, it does not show the token."""

    url: str
    token: str
    pid: int
    host: str
    checkpoint: str
    run: str

    def __repr__(self) -> str:
        """Without the token: a traceback or a log must not have it."""
        return f"<Discovery {self.url}, pid {self.pid} on {self.host}>"

    @property
    def is_here(self) -> bool:
        """Whether its driver runs on this host."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Whether there is a process of that number on this host; of another host nobody knows."""
        return is_alive(self.host, self.pid)


def is_alive(host: str, pid: int) -> bool:
    """Whether there is a process of that number, if the host is this one; of another host nobody knows."""
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def place(checkpoint: Path) -> Path:
    """Where the file of a checkpoint is."""
    return checkpoint / "onceward" / FILE


def write_discovery(checkpoint: Path, found: Discovery) -> None:
    """All at once, readable by its owner alone from the beginning. One that a dead driver left is replaced."""
    path = place(checkpoint)
    make_folders(path.parent)
    # The name is one that storages pass over.
    unfinished = path.parent / f".unfinished-{secrets.token_hex(8)}"
    try:
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            # The mode that was asked for is narrowed by the umask, never widened; but a umask may take too much.
            os.fchmod(handle, _MODE)
            json.dump(asdict(found), file)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def remove_discovery(checkpoint: Path, mine: Discovery) -> None:
    """At the end of a run; not if another driver has put its own there since."""
    if read_discovery(checkpoint) == mine:
        place(checkpoint).unlink(missing_ok=True)


def read_discovery(checkpoint: Path) -> Discovery | None:
    """What stands there; None where there is nothing, or nothing that can be read."""
    try:
        document = json.loads(place(checkpoint).read_text(encoding="utf-8"))
        found = Discovery(**{name: document[name] for name in Discovery.__slots__})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    kinds = {name: int if name == "pid" else str for name in Discovery.__slots__}
    is_whole = all(type(getattr(found, name)) is kind for name, kind in kinds.items()) and found.pid > 0
    return found if is_whole else None
