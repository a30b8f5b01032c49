"""Driver side of the file sink: how one staged file gets its visible name, once and for good."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from onceward.contracts import Handle, Lost, Outcome, RetryLater
from onceward.errors import DamagedFile
from onceward.sinks.files.layout import FinalName, transaction_of

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


def files_of(handle: Handle) -> list[tuple[str, str]]:
    """The staged and final names in a handle. It was read from storage, so it may not point out of the folder."""
    files = handle.get("files")
    entries = [file for file in files if isinstance(file, Mapping)] if isinstance(files, Sequence) else []
    names = [(str(file.get("staged")), str(file.get("final"))) for file in entries]
    for staged, final in names:
        steps = final.split("/")
        if transaction_of(staged) is None or FinalName.parse(steps[-1]) is None or {"", ".", ".."} & set(steps):
            raise DamagedFile(f"a handle names the files {staged!r} and {final!r}, which no file sink has made")
    return names


def missing(hidden: Path, root: Path, handle: Handle) -> str | None:
    """What of a slot's staged files is not there, or not whole; None when all is. What has its visible name already is
    not missed: a commit may have been broken off."""
    files_of(handle)
    for file in handle["files"]:  # type: ignore[union-attr]
        path, final = hidden / str(file["staged"]), root / str(file["final"])  # type: ignore[index, call-overload]
        size = file["bytes"]  # type: ignore[index, call-overload]
        if final.exists() and final.stat().st_size == size:
            continue
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            return f"{path} is not there"
        if found != size:
            return f"{path} has {found} of its {size} bytes"
    return None


def sizes_of(handle: Handle) -> dict[str, object]:
    """By final names. A release may not have known them."""
    files = handle.get("files")
    entries = [file for file in files if isinstance(file, Mapping)] if isinstance(files, Sequence) else []
    return {str(file.get("final")): file.get("bytes") for file in entries}


def publish(staged: Path, final: Path, size: object = None) -> Outcome | None:
    """Give one file its visible name, unless it has it; an outcome only when that is not possible."""
    try:
        give_name(staged, final)
    except FileExistsError:
        if _differ(staged, final, size):
            return RetryLater(f"{final} is already there and is not the file that was staged", after_s=30.0)
    except FileNotFoundError:
        if not final.exists():
            return Lost(f"{staged} was removed while it was being published")
    return None


def _differ(staged: Path, final: Path, size: object) -> bool:
    """Two files are one where a folder was put back by a tool that keeps no hard links; the staged one may be torn."""
    try:
        if staged.samefile(final):
            return False
        if size is not None and staged.stat().st_size != size:
            return final.stat().st_size != size
        return not filecmp.cmp(staged, final, shallow=False)
    except FileNotFoundError:
        return False


def give_name(staged: Path, final: Path) -> None:
    """A second name for the file, which fails, where a rename would overwrite, if that name is taken."""
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(staged, final)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if final.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(final)) from None
        os.rename(staged, final)


def remove(path: Path) -> None:
    """Remove a staged file, or a folder that Spark was writing; that it is gone already is fine."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
