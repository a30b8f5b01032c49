"""Storage and clock in memory. Nothing here forgets when a driver crashes; `lose_power` takes what was not synced."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, BinaryIO

from onceward.errors import StorageFailed

Row = dict[str, Any]


@dataclass(slots=True)
class ManualClock:
    """A clock that only its owner moves. `pause` lets the time pass at once."""

    wall: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    seconds: float = 0.0

    def now(self) -> datetime:
        """Wall-clock time, as last set."""
        return self.wall

    def monotonic(self) -> float:
        """Seconds that have been let pass."""
        return self.seconds

    def pause(self, seconds: float) -> None:
        """Pass that much time without waiting."""
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, forwards or backwards, as a correction of the time does."""
        self.wall += timedelta(seconds=seconds)


class Unsynced(Enum):
    """What a power loss makes of a file that was written and not synced. A removed one that is kept is gone."""

    KEPT = "kept"
    EMPTY = "empty"
    GONE = "gone"


Loss = Callable[[], Unsynced]
"""Draws the fate of one un-synced file after the other."""


class _MemoryFile(io.BytesIO):
    """A stream whose content is seen in the storage as it grows, the way a torn file is after a crash."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        super().__init__()
        self._files, self._path = storage.files, path
        self._unsynced = storage.unsynced

    def write(self, data: Any) -> int:
        written = super().write(data)
        if self._path in self._files:
            self._files[self._path] = self.getvalue()
        return written

    def close(self) -> None:
        self._unsynced.discard(self._path)
        super().close()

    def __del__(self) -> None:
        """A stream that a dead driver leaves behind is not closed by anyone."""


@dataclass(slots=True)
class MemoryStorage:
    """`Storage` in a dictionary. Files in mid-stream are not durable, and neither are removals."""

    files: dict[str, bytes] = field(default_factory=dict)
    unsynced: set[str] = field(default_factory=set)
    removed: dict[str, bytes] = field(default_factory=dict)

    def create(self, path: str, data: bytes) -> bool:
        """See `Storage.create`."""
        if path in self.files:
            return False
        self.files[path] = bytes(data)
        self.sync(path.rpartition("/")[0])
        return True

    def sync(self, folder: str) -> None:
        """See `Storage.sync`."""
        self.removed = {path: data for path, data in list(self.removed.items()) if path.rpartition("/")[0] != folder}

    def lose_power(self, loss: Loss) -> None:
        """Un-synced files are torn or gone, un-synced removals undone, as is drawn for each."""
        for path in sorted(self.unsynced & self.files.keys()):
            fate = loss()
            if fate is Unsynced.EMPTY:
                self.files[path] = b""
            elif fate is Unsynced.GONE:
                del self.files[path]
        for path, data in sorted(self.removed.items()):
            if path not in self.files and loss() is not Unsynced.KEPT:
                self.files[path] = data
        self.unsynced.clear()
        self.removed.clear()

    def read(self, path: str) -> bytes | None:
        """See `Storage.read`."""
        return self.files.get(path)

    def names(self, folder: str) -> list[str]:
        """See `Storage.names`."""
        prefix = f"{folder}/" if folder else ""
        start = len(prefix)
        # A copy at once: the recorder of a run writes from a thread of its own.
        return list({path[start:].partition("/")[0]: None for path in list(self.files) if path.startswith(prefix)})

    def open_new(self, path: str) -> BinaryIO:
        """See `Storage.open_new`."""
        if path in self.files:
            raise StorageFailed(f"cannot write {path}: it exists")
        self.files[path] = b""
        self.unsynced.add(path)
        return _MemoryFile(self, path)

    def open(self, path: str) -> BinaryIO:
        """See `Storage.open`."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return io.BytesIO(self.files[path])

    def where(self, path: str) -> str:
        """See `Storage.where`."""
        return path

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        for name in [name for name in list(self.files) if name == path or name.startswith(f"{path}/")]:
            self.removed[name] = self.files.pop(name)
