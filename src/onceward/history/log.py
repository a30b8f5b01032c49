"""The records on disk: write-once files of a few records each, put together into larger ones now and then.

No file is ever appended to, so that any storage will do. Where a driver dies between writing the larger file and
removing those it was made of, records are there twice: a reader knows them by epoch, run and time.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from onceward.contracts import Storage
from onceward.errors import DamagedFile
from onceward.history.record import EpochRecord, outlined
from onceward.journal import Retention, seal, unseal

FOLDER: Final = "history"
TOGETHER: Final = 500
"""As many records make a file that is left alone."""
SMALL_FILES: Final = 64
"""So many smaller ones are put up with."""


@dataclass(frozen=True, slots=True, order=True)
class _Name:
    """Which epochs a file holds, how many records, and a random part that tells two drivers' files apart."""

    first: int
    last: int
    records: int
    token: str

    def __str__(self) -> str:
        return f"{self.first}-{self.last}.{self.records}.{self.token}.json"

    @classmethod
    def parse(cls, name: str) -> _Name | None:
        epochs, _, rest = name.partition(".")
        first, _, last = epochs.partition("-")
        records, _, rest = rest.partition(".")
        token, _, end = rest.partition(".")
        if not (first.isdigit() and last.isdigit() and records.isdigit() and end == "json"):
            return None
        return cls(int(first), int(last), int(records), token)


_Shorten = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def _in_full(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return document


class HistoryLog:
    """Records under `history/`. Damaged files are passed over: a history with a gap is better than none."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def write(self, records: Sequence[EpochRecord], *, token: str | None = None) -> None:
        """Keep these together."""
        if not records:
            return
        epochs = [record.epoch for record in records]
        name = _Name(min(epochs), max(epochs), len(records), token or secrets.token_hex(4))
        document = {"records": [record.to_json() for record in records]}
        self._storage.create(f"{FOLDER}/{name}", seal("history", document))

    def read(self, *, first: int = 0, last: int | None = None) -> list[EpochRecord]:
        """The attempts at these epochs, in the order of epochs and then of time."""
        names = [name for name in self._names() if name.last >= first and (last is None or name.first <= last)]
        records = (record for name in names for record in self._records(name))
        return _ordered(record for record in records if _is_between(record, first, last))

    def outline(self) -> list[EpochRecord]:
        """All attempts, with the slots that were acknowledged first and last: in half the time that `read` takes."""
        return _ordered(record for name in self._names() for record in self._records(name, outlined))

    def newest(self, count: int, *, below: int | None = None) -> list[EpochRecord]:
        """The attempts at the newest so many epochs that are known, of those below `below` where it is given."""
        last = None if below is None else below - 1
        found: list[EpochRecord] = []
        epochs: set[int] = set()
        # From the newest file on, as far as needed. One that goes far back may hold newer epochs, too.
        names = [name for name in self._names() if last is None or name.first <= last]
        for name in sorted(names, key=lambda name: name.last, reverse=True):
            if len(epochs) >= count and name.last < sorted(epochs)[-count]:
                break
            found = [*(record for record in self._records(name) if _is_between(record, 0, last)), *found]
            epochs = {record.epoch for record in found}
        lowest = min(sorted(epochs)[-count:], default=0)
        return _ordered(record for record in found if record.epoch >= lowest)

    def compact(self) -> None:
        """Put small files together, the oldest first, once there are many."""
        small = [name for name in self._names() if name.records < TOGETHER]
        if len(small) <= SMALL_FILES:
            return
        while small:
            group: list[_Name] = []
            while small and (not group or sum(name.records for name in group) + small[0].records <= TOGETHER):
                group.append(small.pop(0))
            if len(group) > 1:
                self.write([record for name in group for record in self._records(name)])
                self._delete(group)

    def prune(self, keep: Retention, now: datetime) -> int:
        """Remove files all of whose records have been kept long enough; how many records went."""
        names = self._names()
        old: list[_Name] = []
        if keep.epochs is not None:
            newest = max((name.last for name in names), default=-1)
            old = [name for name in names if name.last <= newest - keep.epochs]
        elif keep.seconds is not None:
            before = now - timedelta(seconds=keep.seconds)
            for name in names:
                if any(_when(record) >= before.timestamp() for record in self._records(name)):
                    break
                old.append(name)
        self._delete(old)
        return sum(name.records for name in old)

    def _names(self) -> list[_Name]:
        return sorted(name for text in self._storage.names(FOLDER) if (name := _Name.parse(text)) is not None)

    def _records(self, name: _Name, shorten: _Shorten = _in_full) -> Iterator[EpochRecord]:
        path = f"{FOLDER}/{name}"
        data = self._storage.read(path)
        if data is None:
            # Another driver has just put it together with others, or pruned it.
            return
        try:
            for document in unseal("history", data, path=path)["records"]:
                yield EpochRecord.from_json(shorten(document))
        except (DamagedFile, KeyError, TypeError, ValueError):
            return

    def _delete(self, names: Iterable[_Name]) -> None:
        for name in names:
            self._storage.delete(f"{FOLDER}/{name}")


def _when(record: EpochRecord) -> float:
    return record.newest.timestamp() if record.newest is not None else 0.0


def _is_between(record: EpochRecord, first: int, last: int | None) -> bool:
    return record.epoch >= first and (last is None or record.epoch <= last)


def _ordered(records: Iterable[EpochRecord]) -> list[EpochRecord]:
    """By epoch and time, each once: see the module's docstring."""
    found = {(one.epoch, one.run, one.times.get("begun"), one.outcome): one for one in records}
    return sorted(found.values(), key=lambda record: (record.epoch, _when(record)))
