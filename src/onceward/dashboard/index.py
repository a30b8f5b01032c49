"""The history of one checkpoint in memory. Its files are write-once, so each is read once, the newest first."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from onceward.contracts import Storage
from onceward.dashboard.digest import Digest, digest_from
from onceward.errors import DamagedFile
from onceward.history import EpochRecord
from onceward.history.log import FOLDER
from onceward.journal import unseal

MOST: Final = 100_000
"""So many attempts are kept in memory, the newest: a job's own default keeps 10,000 epochs."""


class HistoryIndex:
    """May be asked from any thread; who comes while another one reads is given what is known so far."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: dict[str, tuple[Digest, ...]] = {}
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
        names = [name for name, found in list(self._files.items()) if any(row.epoch == epoch for row in found)]
        records = (EpochRecord.from_json(one) for name in names for one in self._read(name) if one["epoch"] == epoch)
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
        is_changed = bool(missing) or len(names) != len(self._files)
        kept = sum(map(len, self._files.values()))
        is_complete = True
        for number, name in enumerate(missing):
            if number and time.monotonic() > deadline:
                is_complete = False
                break
            self._files[name] = self._digests(name) if kept < MOST else ()
            kept += len(self._files[name])
        if is_complete:
            # Only now: files that were put together into a larger one are shown until that is read.
            self._files = {name: found for name, found in self._files.items() if name in names}
        if is_changed:
            self._rows = _ordered(row for found in self._files.values() for row in found)
        self._is_complete = is_complete

    def _digests(self, name: str) -> tuple[Digest, ...]:
        found: list[Digest] = []
        for document in self._read(name):
            with suppress(KeyError, TypeError, ValueError):
                found.append(digest_from(document))
                self._note_newest(document)
        return tuple(found)

    def _note_newest(self, document: Mapping[str, Any]) -> None:
        is_newer = self._newest is None or document["epoch"] > self._newest[0]
        if is_newer and document["outcome"] == "settled" and document.get("engine_ms"):
            self._newest = (document["epoch"], EpochRecord.from_json({**document, "slots": ()}))

    def _read(self, name: str) -> list[Mapping[str, Any]]:
        """The records of a file, none where it is gone, put together with others meanwhile, or damaged."""
        path = f"{FOLDER}/{name}"
        data = self._storage.read(path)
        try:
            return list(unseal("history", data, path=path)["records"]) if data is not None else []
        except (DamagedFile, KeyError, TypeError, ValueError):
            return []


def _last_epoch(name: str) -> int:
    last = name.partition(".")[0].partition("-")[2]
    return int(last) if last.isdigit() else -1


def _ordered(rows: Iterable[Digest]) -> tuple[Digest, ...]:
    found = {row.key: row for row in rows}
    return tuple(sorted(found.values(), key=lambda row: (row.epoch, row.newest)))
