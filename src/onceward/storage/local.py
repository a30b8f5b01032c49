"""Files on a local or mounted file system, made so that a crash or a second writer can never tear one."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from onceward.errors import ConfigurationError, StorageFailed
from onceward.storage.durable import make_folders, sync_folder

_UNFINISHED = ".unfinished-"
_WRITE_BACK_BYTES = 4 << 20

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_path(location: str | os.PathLike[str], *, follows_links: bool = True) -> Path:
    """The one spelling of a location: absolute, no `file:` prefix, no trailing slash, and no symbolic link unless it is
    to be followed later, on another host."""
    text = os.fspath(location)
    if not text.strip() or "\0" in text:
        raise ConfigurationError(f"{text!r} is not a path", hint="name a directory, for example checkpoints/my-job")
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    elif _SCHEME.match(text):
        raise ConfigurationError(
            f"{text!r} is not on a local file system",
            hint="this release works in local or mounted folders only: give a plain path, or one with file:",
        )
    path = Path(os.path.abspath(os.path.expanduser(text)))
    return path.resolve() if follows_links else path


@contextlib.contextmanager
def _os_errors_as_storage_failed(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageFailed(
            f"cannot {doing} {path}: {error.strerror or error}",
            hint="check free space, permissions and mounts; nothing was lost, start again afterwards",
        ) from error


def _is_our_own(unfinished: Path, target: Path) -> bool:
    """Whether the name that is said to exist is the one that this very call has made.

    NFS sends a request again whose answer was lost, and is then told that the name exists. Nobody else can have linked
    to a file with a random name, so its second name is ours; the count is asked too, as the names may be cached.
    """
    ours = unfinished.stat()
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(ours, target.stat()):
            return True
    return ours.st_nlink > 1


class _DurableFile:
    """A binary file whose `close` returns only once the content has reached the disk.

    The disk is set to work while rows still come in, by a thread that does nothing but wait for it: otherwise all of a
    large segment would have to be waited for at the end.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._folder = path.parent
        self._waiting = 0
        self._writing_back: threading.Thread | None = None
        self._error: OSError | None = None
        self.closed = False

    def write(self, data: bytes) -> int:
        self._waiting += len(data)
        if self._waiting >= _WRITE_BACK_BYTES and (self._writing_back is None or not self._writing_back.is_alive()):
            self._waiting = 0
            self._writing_back = threading.Thread(target=self._write_back, daemon=True)
            self._writing_back.start()
        return self._file.write(data)

    def _write_back(self) -> None:
        """The system reports a failed write once, to whoever asks first: it must not be forgotten until `close`."""
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            self._error = error

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self.closed:
            return
        if self._writing_back is not None:
            self._writing_back.join()
        if self._error is not None:
            self._file.close()
            with _os_errors_as_storage_failed("write", Path(self._file.name)):
                raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        sync_folder(self._folder)
        self.closed = True


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """`Storage` under one root directory. Write-once creation is temporary file, fsync, `link`: never a rename."""

    root: Path

    def create(self, path: str, data: bytes) -> bool:
        """See `Storage.create`."""
        target = self.root / path
        with _os_errors_as_storage_failed("write", target):
            make_folders(target.parent)
            unfinished = target.parent / f"{_UNFINISHED}{secrets.token_hex(8)}"
            try:
                with unfinished.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(unfinished, target)
                except FileExistsError:
                    # The loser acts on what stands: that must not vanish in a power loss any more.
                    sync_folder(target.parent)
                    return _is_our_own(unfinished, target)
                sync_folder(target.parent)
                return True
            finally:
                unfinished.unlink(missing_ok=True)

    def read(self, path: str) -> bytes | None:
        """See `Storage.read`."""
        with _os_errors_as_storage_failed("read", self.root / path):
            try:
                return (self.root / path).read_bytes()
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        """See `Storage.names`."""
        with _os_errors_as_storage_failed("list", self.root / folder):
            try:
                return [name for name in os.listdir(self.root / folder) if not name.startswith(_UNFINISHED)]
            except FileNotFoundError:
                return []

    def open_new(self, path: str) -> BinaryIO:
        """See `Storage.open_new`."""
        target = self.root / path
        with _os_errors_as_storage_failed("write", target):
            make_folders(target.parent)
            return _DurableFile(target)  # type: ignore[return-value]

    def open(self, path: str) -> BinaryIO:
        """See `Storage.open`."""
        with _os_errors_as_storage_failed("read", self.root / path):
            return (self.root / path).open("rb")

    def where(self, path: str) -> str:
        """See `Storage.where`."""
        return os.fspath(self.root / path)

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        target = self.root / path
        with _os_errors_as_storage_failed("remove", target), contextlib.suppress(FileNotFoundError):
            if not target.is_dir() or target.is_symlink():
                target.unlink()
                return
            try:
                shutil.rmtree(target)
            except OSError as error:
                # Someone wrote into it meanwhile (a task that its driver lost sight of). That stays, to be found later.
                if error.errno != errno.ENOTEMPTY:
                    raise

    def sync(self, folder: str) -> None:
        """See `Storage.sync`."""
        with _os_errors_as_storage_failed("sync", self.root / folder), contextlib.suppress(FileNotFoundError):
            sync_folder(self.root / folder)
