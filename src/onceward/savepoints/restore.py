"""A new checkpoint from a savepoint, in another directory, on another machine: a new generation and a new query.

It is made under a hidden name beside its place and renamed when every byte was compared with its checksum and all is on
the disk: a crash leaves nothing, or all of it. The savepoint is only read. That the targets may be ahead of it is for
the first start to see; whoever names the job is told before anything is written (`consequences`).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceward.errors import ConfigurationError, DamagedFile
from onceward.identity import Generation, JobName, checked_name, new_generation
from onceward.journal import IdentityFile, IdentityRecord
from onceward.operators import TopologyLog
from onceward.savepoints.check import FIX, mismatch, read_savepoint, unlisted
from onceward.savepoints.choose import Unready, files_at
from onceward.savepoints.copying import FULL_SPEED, copy_file, of_each, opened
from onceward.savepoints.document import CONTENT, SavedFile, Savepoint
from onceward.savepoints.place import Unfinished, os_errors_as_storage_failed, unfinished
from onceward.savepoints.progress import Progress
from onceward.savepoints.schema_paths import is_description, made_absolute
from onceward.storage import LocalStorage, directory_id_after
from onceward.verify.files import Files
from onceward.verify.logs import read_logs
from onceward.verify.look import look

_LARGEST_DESCRIPTION: Final = 64 << 20

Rework = Callable[[Path], object]
"""Changes the restored copy before it gets its name: operators that moved, another number of partitions."""


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """What came of it."""

    checkpoint: Path
    savepoint: Savepoint
    record: IdentityRecord


def restore_savepoint(
    path: Path,
    checkpoint: Path,
    *,
    name: str | None = None,
    progress: Progress | None = None,
    rework: Rework = lambda root: None,
) -> RestoredCheckpoint:
    """Make the directory `checkpoint` from the savepoint in `path`; `name` gives the job another name, for a fork."""
    progress, savepoint = progress or Progress(), read_savepoint(path)
    job = savepoint.job if name is None else JobName(checked_name("job", name))
    refuse_target(path, checkpoint)
    for strange in unlisted(path, savepoint):
        raise DamagedFile(f"{path}: {strange.about}: {strange.detail}", hint=strange.fix)
    progress.begin(savepoint.size)
    try:
        with (
            os_errors_as_storage_failed("restore into", checkpoint),
            unfinished(checkpoint.parent, checkpoint.name) as made,
        ):
            _copy(path / CONTENT, savepoint, made.path, progress)
            rework(made.path)
            _set_paths(made.path, checkpoint)
            record = _identified(savepoint, job, made, checkpoint)
            _check_resumable(made.path, path, record)
            made.become(checkpoint)
    finally:
        progress.end()
    return RestoredCheckpoint(checkpoint, savepoint, record)


def refuse_target(path: Path, checkpoint: Path) -> None:
    """A restore never writes into a directory that has anything in it."""
    if checkpoint == path or path in checkpoint.parents or checkpoint in path.parents:
        raise ConfigurationError(
            f"{checkpoint} and the savepoint lie one in the other", hint="restore into a directory of its own"
        )
    if checkpoint.is_symlink() or (checkpoint.exists() and not checkpoint.is_dir()):
        raise ConfigurationError(f"{checkpoint} is not a directory", hint="give a name that is free")
    if checkpoint.is_dir() and os.listdir(checkpoint):
        raise ConfigurationError(
            f"{checkpoint} is not empty: a savepoint is never restored over something else",
            hint="give another directory, or move that one away first",
        )


def _copy(content: Path, savepoint: Savepoint, root: Path, progress: Progress) -> None:
    for folder in sorted({(root / name).parent for name in savepoint.files}):
        folder.mkdir(parents=True, exist_ok=True)

    def copy(name: str) -> None:
        if (why := _copied(content, name, root / name, savepoint.files[name], progress)) is not None:
            raise DamagedFile(f"the savepoint is damaged: {CONTENT}/{name}: {why}; nothing was restored", hint=FIX)

    of_each(copy, list(savepoint.files), FULL_SPEED.workers)


def _copied(content: Path, name: str, target: Path, expected: SavedFile, progress: Progress) -> str | None:
    try:
        with opened(content, name) as file:
            # Never more than was promised: the disk need not be filled to find out that it is too long.
            if (size := os.fstat(file).st_size) != expected.size:
                return mismatch(SavedFile(size, 0), expected)
            return mismatch(copy_file(file, target, progress.add), expected)
    except FileNotFoundError:
        return "it is missing"


def _set_paths(root: Path, checkpoint: Path) -> None:
    """Spark wants the full paths of the state's schemas. No checksum stands beside the file that is written anew."""
    for path in sorted(root.glob("state/*/_metadata/v2/*")):
        name = path.relative_to(root).as_posix()
        if is_description(name):
            try:
                path.write_bytes(made_absolute(name, path.read_bytes(), checkpoint))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise DamagedFile(f"{CONTENT}/{name} is torn or garbled: {error}", hint=FIX) from error
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _identified(savepoint: Savepoint, job: JobName, made: Unfinished, checkpoint: Path) -> IdentityRecord:
    """A generation and a query of its own: nothing of the former one is ever taken for this one's."""
    query = str(uuid.uuid4())
    (made.path / "metadata").write_text(json.dumps({"id": query}, separators=(",", ":")))
    folder = made.path / "onceward"
    folder.mkdir(exist_ok=True)
    decided = max(int(one.name) for one in (made.path / "commits").iterdir() if one.name.isdigit())
    record = IdentityRecord(
        number=0,
        job=job,
        generation=Generation(new_generation()),
        known=tuple(sorted({*savepoint.known, savepoint.generation})),
        adopted=decided,
        directory_id=directory_id_after(folder, checkpoint / "onceward"),
        query=query,
        guarantee=savepoint.guarantee,
        since=decided + 1 if savepoint.guarantee is not None else 0,
        restored=savepoint.restored,
    )
    names = TopologyLog(LocalStorage(folder))
    if names.read() is None:
        names.write(savepoint.topology, since=decided + 1)
    return IdentityFile(LocalStorage(folder)).create(record)


def _check_resumable(root: Path, path: Path, record: IdentityRecord) -> None:
    """Sealed is not enough: what was put together by someone else need not be a checkpoint."""
    report = look(root, quick=True)
    for one in sorted(report.errors, key=lambda one: one.about):
        raise DamagedFile(f"{path} cannot be resumed: {one.about}: {one.detail}; nothing was restored", hint=FIX)
    files = Files(root)
    try:
        for name in files_at(files, read_logs(files, quick=True), record.adopted):
            if not (root / name).is_file():
                raise Unready(name, "it is missing")
    except Unready as error:
        raise DamagedFile(f"{path} cannot be resumed: {error}; nothing was restored", hint=FIX) from error
