"""What was forced to the disk ahead of time, so that it need not be waited for again.

Spark writes a log entry under another name and renames it. So what has the number (inode), the size and the time of a
file that was synced is that file: one that took its place was made while it was still there, and has another number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path


class Ahead:
    """Of one checkpoint. One thread syncs; another one asks, and waits for it."""

    def __init__(self) -> None:
        self._syncing = threading.Lock()
        self._synced: dict[Path, object] = {}
        self._error: OSError | None = None

    def sync(self, find: Callable[[], Sequence[Path]], sync: Callable[[Sequence[Path]], None]) -> None:
        """Find what there is to sync, and do it. What fails is kept for whoever asks."""
        with self._syncing:
            self._synced = {}
            try:
                paths = find()
                # Looked at before: what is changed meanwhile is not taken for synced.
                seen = {path: _identity(path) for path in paths}
                sync(paths)
                self._synced = seen
            except OSError as error:
                self._error = error

    def has_synced(self, paths: Sequence[Path]) -> bool:
        """Whether all of these are on the disk as they stand now, by their names."""
        with self._syncing:
            self._raise_error()
            return self._synced == {path: _identity(path) for path in paths}

    def raise_error(self) -> None:
        """What has failed, if anything has."""
        with self._syncing:
            self._raise_error()

    def _raise_error(self) -> None:
        """The system reports a failed write once, to whoever asks first: it must not be forgotten."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def _identity(path: Path) -> object:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
