"""Where savepoints lie, and how one comes to be there all at once: made under a hidden name, then renamed.

The hidden folder is locked by whoever works in it, for as long as that process lives. One that nobody holds was left by
a crash: the next take, restore or dispose beside it removes it. Network file systems do not tell one host what another
one has locked; there only those are removed that were made under the same running kernel, which the name says.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onceward.errors import ConfigurationError, StorageFailed
from onceward.identity import JobName
from onceward.savepoints.document import FILE
from onceward.storage import has_stable_inodes, make_folders, sync_file_system, sync_folder

PREFIX: Final = "savepoint-"
_UNFINISHED: Final = ".unfinished-"
_MOST_NAME: Final = 80
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def savepoint_name(job: JobName, epoch: int, identifier: str) -> str:
    """The name of the directory: for people, and never taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", job)[:_MOST_NAME]
    return f"{PREFIX}{plain}-{epoch}-{identifier}"


def is_savepoint(path: Path) -> bool:
    """Whether it looks like one from outside."""
    return not path.name.startswith(".") and (path / FILE).is_file() and not path.is_symlink()


@contextlib.contextmanager
def os_errors_as_storage_failed(doing: str, path: Path) -> Iterator[None]:
    """A full disk, a missing right: said as such, with nothing left behind."""
    try:
        yield
    except OSError as error:
        about = f" ({error.filename})" if error.filename and str(error.filename) != str(path) else ""
        raise StorageFailed(
            f"cannot {doing} {path}: {error.strerror or error}{about}",
            hint="check free space, permissions and mounts; nothing half is left there, give the command again",
        ) from error


class Unfinished:
    """A hidden folder that becomes `target` by one rename, or goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_done = False

    def become(self, target: Path) -> None:
        """All of it is written: force it to the disk, then give it its name. An empty folder there is replaced."""
        sync_file_system(self.path)
        try:
            os.rename(self.path, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise ConfigurationError(
                f"{target} has come into being meanwhile: {error.strerror}", hint="give another directory"
            ) from error
        self._is_done = True
        sync_folder(target.parent)

    @property
    def is_done(self) -> bool:
        """Whether it has its name."""
        return self._is_done


@contextlib.contextmanager
def unfinished(folder: Path, name: str) -> Iterator[Unfinished]:
    """Such a folder in `folder`, held by this process. Left without `become`, it is removed."""
    make_folders(folder)
    remove_left(folder)
    path = _hidden(folder, name)
    path.mkdir()
    lock = _held(path)
    if lock is None:
        raise StorageFailed(f"{path} was taken for one that a crash left", hint="give the command again")
    one = Unfinished(path)
    try:
        yield one
    finally:
        if not one.is_done:
            shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_left(folder: Path) -> list[str]:
    """Remove what crashes have left in a folder; their names. What another process works in stays."""
    removed = []
    with os_errors_as_storage_failed("look into", folder):
        whose = _UNFINISHED if has_stable_inodes(folder.resolve()) else f"{_UNFINISHED}{_kernel()}-"
        names = [name for name in os.listdir(folder) if name.startswith(whose)]
    for name in sorted(names):
        if (lock := _held(folder / name)) is not None:
            try:
                remove_savepoint_folder(folder / name)
                removed.append(name)
            finally:
                os.close(lock)
    return removed


def hide(path: Path) -> Path:
    """Take a savepoint out of sight, durably: the first step of removing it."""
    hidden = _hidden(path.parent, path.name)
    os.rename(path, hidden)
    sync_folder(path.parent)
    return hidden


def remove_savepoint_folder(path: Path) -> None:
    """What makes it a savepoint goes first: a crash leaves nothing that looks whole. No link is followed."""
    with contextlib.suppress(FileNotFoundError):
        (path / FILE).unlink()
        sync_folder(path)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
    sync_folder(path.parent)


def _hidden(folder: Path, name: str) -> Path:
    return folder / f"{_UNFINISHED}{_kernel()}-{name}-{secrets.token_hex(4)}"


def _kernel() -> str:
    """In which locks are seen: containers share one, hosts do not."""
    try:
        told = _BOOT.read_text()
    except OSError:
        told = socket.gethostname()
    return f"{zlib.crc32(told.encode()):08x}"


def _held(path: Path) -> int | None:
    """The lock on a folder, None where another process holds it, or it is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
