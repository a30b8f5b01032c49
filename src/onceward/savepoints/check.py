"""Reading a savepoint that may come from anywhere: what it says, and whether every byte of it is as it was taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceward.contracts import Finding, Severity
from onceward.errors import ConfigurationError, DamagedFile, OncewardError
from onceward.savepoints.copying import opened, sum_file
from onceward.savepoints.document import CONTENT, FILE, SavedFile, Savepoint
from onceward.savepoints.place import is_savepoint
from onceward.savepoints.progress import Progress

FIX: Final = "copy the savepoint again from where it was taken, or use another one"
_MOST_BYTES: Final = 1 << 30


def read_savepoint(path: Path) -> Savepoint:
    """What it says of itself; its files are not looked at."""
    try:
        with opened(path, FILE) as handle:
            size = os.fstat(handle).st_size
            if size > _MOST_BYTES:
                raise DamagedFile(f"{path / FILE} has {size:,} bytes: no savepoint has that", hint=FIX)
            with os.fdopen(os.dup(handle), "rb") as file:
                data = file.read()
    except OSError as error:
        raise ConfigurationError(
            f"there is no savepoint in {path}: {FILE} cannot be read ({error.strerror or error})",
            hint="give the directory of a savepoint; `onceward savepoint list FOLDER` shows those in a folder",
        ) from error
    return Savepoint.unsealed(data, path=str(path / FILE))


@dataclass(frozen=True, slots=True)
class Listed:
    """A directory that looks like a savepoint; `problem` is why it cannot be read."""

    path: Path
    savepoint: Savepoint | None
    problem: str | None = None


def list_savepoints(folder: Path) -> list[Listed]:
    """Those in a folder, the oldest first; what cannot be read comes last."""
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}", hint="give the folder that savepoints are taken into")
    found = []
    for path in sorted(one for one in folder.iterdir() if is_savepoint(one)):
        try:
            found.append(Listed(path, read_savepoint(path)))
        except OncewardError as error:
            found.append(Listed(path, None, error.message))
    return sorted(found, key=lambda one: (one.savepoint is None, one.savepoint and one.savepoint.taken_at, one.path))


def verify_savepoint(path: Path, progress: Progress | None = None) -> tuple[Savepoint, list[Finding]]:
    """Read all of it; what is wrong, nothing where it is whole."""
    savepoint, progress = read_savepoint(path), progress or Progress()
    progress.begin(savepoint.size)
    found = [*unlisted(path, savepoint)]
    for name, expected in savepoint.files.items():
        if (why := _problem(path / CONTENT, name, expected, progress)) is not None:
            found.append(Finding(f"{CONTENT}/{name}", Severity.ERROR, why, FIX))
    progress.end()
    return savepoint, found


def unlisted(path: Path, savepoint: Savepoint) -> Iterator[Finding]:
    """What lies in the directory and is no part of the savepoint."""
    expected = {FILE, *(f"{CONTENT}/{name}" for name in savepoint.files)}
    for parent, folders, names in os.walk(path):
        # A link to a folder is one of them, too.
        inside = [*names, *(one for one in folders if os.path.islink(os.path.join(parent, one)))]
        for name in sorted(inside):
            found = os.path.relpath(os.path.join(parent, name), path)
            if found not in expected:
                what = "it is no part of the savepoint"
                yield Finding(found, Severity.ERROR, what, "move it out of the directory")


def mismatch(found: SavedFile, expected: SavedFile) -> str | None:
    """Why a file is not the one that was taken; None where it is."""
    if found.size != expected.size:
        return f"it has {found.size:,} bytes, and the savepoint says {expected.size:,}"
    return None if found.crc == expected.crc else "its content does not match its checksum"


def _problem(content: Path, name: str, expected: SavedFile, progress: Progress) -> str | None:
    try:
        with opened(content, name) as file:
            return mismatch(sum_file(file, progress.add), expected)
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
