"""What makes a file, a name or a folder survive a power loss, on a local or mounted file system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def sync_file(path: Path) -> None:
    """Force a file's content to the disk, whoever wrote it. Not yet its name: see `sync_folder`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk: those that were added and those that were removed."""
    sync_file(folder)


def make_folders(folder: Path) -> None:
    """Make a folder and its parents, and force the name of each new one to the disk.

    A file can be durable in a folder whose own name is not: after a power loss nobody finds it.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_file_system(path: Path) -> None:
    """Force everything that was written to the file system of `path` to the disk, by one call."""
    if not hasattr(_libc, "syncfs"):
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(path))
    finally:
        os.close(descriptor)
