"""The fewest files from which Spark goes on after an epoch: of its logs, its sources' lists and its state."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from typing import Final
from zipfile import BadZipFile

from onceward.contracts import Finding
from onceward.errors import ConfigurationError
from onceward.verify.files import Files
from onceward.verify.lists import SourceList, end_of, source_lists
from onceward.verify.logs import Logs
from onceward.verify.state import Wanted, operator_at, operators_in, stores_at
from onceward.verify.store_files import needed_files

_BATCH = re.compile(r"([0-9]+)(?:_.*)?")
_UNREADABLE: Final = (OSError, ValueError, LookupError, TypeError, RuntimeError, EOFError, BadZipFile, zlib.error)
"""What a snapshot or a changelog that is torn, or of something else, makes of reading it."""


class Unready(Exception):
    """Something that is needed is not there: purged meanwhile by a job that runs, or lost."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


def files_at(files: Files, logs: Logs, epoch: int) -> list[str]:
    """Their paths in the checkpoint, in order; `Unready` where one is missing. Spark needs the barrier before, too."""
    barrier, commit = logs.offsets.get(epoch), logs.commits.get(epoch)
    for name, entry in ((f"offsets/{epoch}", barrier), (f"commits/{epoch}", commit)):
        if entry is None or entry.problem is not None:
            raise Unready(name, "it is missing" if entry is None else str(entry.problem))
    found = [f"offsets/{n}" for n in (epoch - 1, epoch) if n >= 0] + [f"commits/{epoch}"]
    positions = barrier.positions if barrier is not None else []
    for one in source_lists(files):
        found += _source(files, one, end_of(positions, one.folder))
    found += _state(files, Wanted.at(epoch + 1, barrier, commit))
    return list(dict.fromkeys(found))


def _source(files: Files, one: SourceList, end: int | None) -> Iterator[str]:
    """All that a source keeps. Of a file source only what it reads at a start: its newest compact list and those after
    it, up to where the epoch ends; and the compact one before, by which it tells how far apart they are."""
    if end is None:
        yield from _plain_files(files, one.folder)
        return
    compact = sorted(n for n in one.compact if n <= end)
    first = compact[-1] if compact else 0
    wanted = [*compact[-2:-1], *range(first, end + 1)]
    for number in wanted:
        if number not in one.plain | one.compact:
            raise Unready(f"{one.folder}/{number}", "the list is missing")
        yield one.name(number)


def _state(files: Files, wanted: Wanted) -> Iterator[str]:
    epoch, provider = wanted.version - 1, wanted.provider
    for number in operators_in(files):
        if provider is None:
            raise ConfigurationError(
                "the state is kept by a provider that is not one of Spark's own: nobody knows which files make it up",
                hint="stop the job and copy the whole checkpoint directory",
            )
        operator, _ = operator_at(files, number, epoch)
        root = f"state/{number}"
        yield from (path for path in _plain_files(files, f"{root}/_metadata") if not _is_later(path, epoch))
        yield from (path for path in _plain_files(files, f"{root}/_stateSchema") if not _is_later(path, epoch))
        for found in stores_at(files, operator, wanted, provider):
            if isinstance(found, Finding):
                raise Unready(found.about, found.detail)
            yield from _plain_files(files, f"{found.store.folder}/_metadata")
            try:
                for path in needed_files(files, found.store, wanted.version, found.unique_id):
                    yield path
                    # Spark may keep a checksum of its own beside a file.
                    if f"{path.rpartition('/')[2]}.crc" in files.names(path.rpartition("/")[0]):
                        yield f"{path}.crc"
            except _UNREADABLE as error:
                raise Unready(found.store.folder, f"version {wanted.version} of the state: {error}") from error


def _is_later(path: str, epoch: int) -> bool:
    """Whether it was written at the start of a later epoch, whose number its name begins with."""
    match = _BATCH.fullmatch(path.rpartition("/")[2])
    return match is not None and int(match[1]) > epoch


def _plain_files(files: Files, folder: str) -> Iterator[str]:
    """Everything below a folder; hidden files are Hadoop's, or unfinished."""
    for name in sorted(files.names(folder)):
        path = f"{folder}/{name}"
        if os.path.islink(files.root / path):
            raise Unready(path, "it is a link")
        if files.is_folder(path):
            yield from _plain_files(files, path)
        else:
            yield path
