"""Removing a savepoint: only what is one, and so that a crash leaves nothing that looks whole.

First it gets a hidden name, then what makes it a savepoint goes, then the rest. Given again after a crash it finds the
hidden folder and ends it; so does the next take in that folder.
"""

from __future__ import annotations

from pathlib import Path

from onceward.errors import ConfigurationError
from onceward.savepoints.check import read_savepoint, unlisted
from onceward.savepoints.document import Savepoint
from onceward.savepoints.place import (
    hide,
    is_savepoint,
    os_errors_as_storage_failed,
    remove_left,
    remove_savepoint_folder,
)


def dispose(path: Path) -> Savepoint | None:
    """Remove it; what it was. None where it is gone already and only what a crash left was removed."""
    if not path.exists() and path.parent.is_dir():
        if any(f"-{path.name}-" in name for name in remove_left(path.parent)):
            return None
        raise ConfigurationError(f"there is no savepoint {path}", hint="`onceward savepoint list FOLDER` shows them")
    if not is_savepoint(path):
        raise ConfigurationError(
            f"{path} is not a savepoint: nothing was removed", hint="give the directory of a savepoint"
        )
    savepoint = read_savepoint(path)
    strange = [one.about for one in unlisted(path, savepoint)]
    if strange:
        raise ConfigurationError(
            f"{path} holds {len(strange)} files that are no part of the savepoint, {strange[0]!r} among them: nothing "
            "was removed",
            hint="move them out of the directory",
        )
    with os_errors_as_storage_failed("remove", path):
        remove_savepoint_folder(hide(path))
        remove_left(path.parent)
    return savepoint
