"""The history of one checkpoint in memory. Its files are write-once, so each is read once, the newest first."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from onceward.contracts import Storage
from onceward.dashboard.digest import Digest, digest_from
from onceward.dashboard.pieces import Piece, read_piece, read_pieces
from onceward.history import EpochRecord
from onceward.history.log import FOLDER

MOST: Final = 100_000
"""So many attempts are kept in memory, the newest: a job's own default keeps 10,000 epochs."""


@dataclass(frozen=True, slots=True)
class _File:
    """What is kept of one file."""

    digests: tuple[Digest, ...] = ()
    pieces: tuple[Piece, ...] = ()


class HistoryIndex:
    """May be asked from any thread; who comes while another one reads is given what is known so far."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: dict[str, _File] = {}
        self._rows: tuple[Digest, ...] = ()
        self._newest: tuple[int, EpochRecord] | None = None
        self._is_complete = False
        self._reading = threading.Lock()

    @property
    def is_complete(self) -> bool:
        """Whether every file has been read; else older epochs are still to come."""
        return self._is_complete

    @property
    def newest(self) -> EpochRecord | None:
        """The newest settled epoch of which the engine has reported, without its slots."""
        return self._newest[1] if self._newest is not None else None

    def attempts(self, epoch: int) -> list[EpochRecord]:
        """Every attempt at one epoch that is written down, whole: from the files that hold it."""
        places = [(name, one) for name, file in list(self._files.items()) for one in file.pieces if one.epoch == epoch]
        stored = (read_piece(self._storage, name, piece) for name, piece in places)
        records = (EpochRecord.from_json(one) for one in stored if one is not None)
        found = {(one.run, one.times.get("begun"), one.outcome): one for one in records}
        return sorted(found.values(), key=lambda one: one.newest.timestamp() if one.newest is not None else 0.0)

    def rows(self, *, within_s: float = 0.5) -> tuple[Digest, ...]:
        """All attempts by epoch and time, after reading what is new for no longer than this, and one file at least."""
        if self._reading.acquire(blocking=False):
            try:
                self._refresh(time.monotonic() + within_s)
            finally:
                self._reading.release()
        return self._rows

    def _refresh(self, deadline: float) -> None:
        names = {name for name in self._storage.names(FOLDER) if name.endswith(".json")}
        missing = sorted(names - self._files.keys(), key=_last_epoch, reverse=True)
        fresh: list[Digest] = []
        kept = sum(len(file.digests) for file in self._files.values())
        is_complete = True
        for number, name in enumerate(missing):
            if number and time.monotonic() > deadline:
                is_complete = False
                break
            self._files[name] = self._read(name) if kept < MOST else _File()
            fresh += self._files[name].digests
            kept += len(self._files[name].digests)
        if is_complete and len(names) < len(self._files):
            # Only now: files that were put together into a larger one are shown until that is read.
            self._files = {name: found for name, found in self._files.items() if name in names}
            self._rows = _ordered(row for file in self._files.values() for row in file.digests)
        elif fresh:
            self._rows = _with(self._rows, fresh)
        self._is_complete = is_complete

    def _read(self, name: str) -> _File:
        digests: list[Digest] = []
        pieces: list[Piece] = []
        for piece, document in read_pieces(self._storage, name):
            with suppress(KeyError, TypeError, ValueError):
                digests.append(digest_from(document))
                pieces.append(piece)
                self._note_newest(document)
        return _File(tuple(digests), tuple(pieces))

    def _note_newest(self, document: Mapping[str, Any]) -> None:
        is_newer = self._newest is None or document["epoch"] > self._newest[0]
        if is_newer and document["outcome"] == "settled" and document.get("engine_ms"):
            self._newest = (document["epoch"], EpochRecord.from_json({**document, "slots": ()}))


def _last_epoch(name: str) -> int:
    last = name.partition(".")[0].partition("-")[2]
    return int(last) if last.isdigit() else -1


def _with(rows: tuple[Digest, ...], fresh: Sequence[Digest]) -> tuple[Digest, ...]:
    """Only what comes after the first new one is put in order: a running job is asked for it every second."""
    place = bisect_left(rows, min(row.epoch for row in fresh), key=lambda row: row.epoch)
    return (*rows[:place], *_ordered((*rows[place:], *fresh)))


def _ordered(rows: Iterable[Digest]) -> tuple[Digest, ...]:
    found = {row.key: row for row in rows}
    return tuple(sorted(found.values(), key=lambda row: (row.epoch, row.newest)))
