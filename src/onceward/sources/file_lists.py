"""Which files an epoch reads, as the lists of Spark's file source have it.

A file source numbers its lists, and an epoch ends at the number of one: it holds the files of every list after the one
that the epoch before ended at. A list is `sources/<source>/<number>`: a line `v1`, then a JSON object for each file.
Every tenth or so is `<number>.compact` and repeats all lists before it, which are then removed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from onceward.spark.checkpoint import SparkLogs

SHOWN = 5


@dataclass(frozen=True, slots=True)
class EpochFiles:
    """The files that one source gives to an epoch. `unreadable` are the lists that are missing or torn."""

    source: int
    files: tuple[str, ...]
    unreadable: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """For people: how many they are, and the first few."""
        if self.files:
            yield f"it holds {len(self.files)} {'file' if len(self.files) == 1 else 'files'} of source {self.source}:"
            yield from (f"  {file}" for file in self.files[:SHOWN])
            if len(self.files) > SHOWN:
                yield f"  and {len(self.files) - SHOWN} more"
        elif not self.unreadable:
            yield f"it holds no file of source {self.source}"
        for path in self.unreadable:
            yield f"which files the list {path} names cannot be told: it is missing or torn"


def files_of_epoch(checkpoint: Path, epoch: int) -> list[EpochFiles]:
    """Of each file source what the epoch holds; nothing of other sources, or where Spark has purged its beginning."""
    logs = SparkLogs(checkpoint)
    begins = logs.sources(epoch - 1)
    if epoch and not begins:
        return []
    return [
        _between(checkpoint, source, after=_list_number(begun), last=last)
        for source, (begun, end) in enumerate(itertools.zip_longest(begins, logs.sources(epoch), fillvalue=""))
        if (last := _list_number(end)) >= 0
    ]


def _between(checkpoint: Path, source: int, *, after: int, last: int) -> EpochFiles:
    folder = checkpoint / "sources" / str(source)
    files: list[str] = []
    unreadable: list[str] = []
    for number in range(after + 1, last + 1):
        try:
            files += _named_by(folder, number)
        except (OSError, ValueError, LookupError, TypeError):
            unreadable.append(f"sources/{source}/{number}")
    return EpochFiles(source, tuple(files), tuple(unreadable))


def _named_by(folder: Path, number: int) -> Iterator[str]:
    own = folder / str(number)
    for entry in _entries(own if own.exists() else _compacted(folder, number)):
        if entry["batchId"] == number:
            yield _as_people_write_it(entry["path"])


def _compacted(folder: Path, number: int) -> Path:
    """The first that has taken this list in."""
    numbers = [int(path.stem) for path in folder.glob("*.compact") if path.stem.isdigit()]
    later = [one for one in numbers if one >= number]
    if not later:
        raise FileNotFoundError(folder / str(number))
    return folder / f"{min(later)}.compact"


def _entries(path: Path) -> list[dict[str, Any]]:
    version, *lines = path.read_text().splitlines()
    if version != "v1":
        raise ValueError(version)
    return [json.loads(line) for line in lines]


def _as_people_write_it(uri: str) -> str:
    """Spark writes a URI. On a local disk people think of a path."""
    parts = urlsplit(uri)
    return unquote(parts.path if parts.scheme == "file" else uri)


def _list_number(position: str) -> int:
    """`{"logOffset":3}` is list 3; -1 where the source is not one of files, or has given nothing yet."""
    try:
        number = json.loads(position)["logOffset"]
    except (ValueError, LookupError, TypeError):
        return -1
    return number if isinstance(number, int) else -1
