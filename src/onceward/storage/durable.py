"""What makes a file, a name or a folder survive a power loss, on a local or mounted file system."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_BEGIN, _WAIT = 2, 4
"""Of Linux's `sync_file_range`: write what is not being written, wait for what is."""


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


def write_back(file: int, at: int, length: int) -> None:
    """Let the disk write these bytes of an open file, and wait for it.

    That spreads the work and forces nothing: what must survive is synced afterwards all the same. Nothing happens where
    the system has no such call, or its file system does not take it.
    """
    if not hasattr(_libc, "sync_file_range"):
        return
    if _libc.sync_file_range(file, ctypes.c_int64(at), ctypes.c_int64(length), _BEGIN | _WAIT):
        error = ctypes.get_errno()
        # What could not be written is reported once, to whoever asks first.
        if error not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE):
            raise OSError(error, os.strerror(error))
