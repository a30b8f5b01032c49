"""Rows that a user took out of an epoch because the target rejects them: which ones, and where they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onceward.contracts import Storage
from onceward.errors import DamagedFile
from onceward.identity import SinkName, sink_digest
from onceward.journal.sealed import seal, unseal

FOLDER: Final = "diverted"


@dataclass(frozen=True, slots=True)
class Diversion:
    """For one epoch and sink: the numbers of the rows left out of each slot, by the name of what the slot staged."""

    epoch: int
    sink: SinkName
    rows: Mapping[str, tuple[int, ...]]
    kept_in: str


class Diversions:
    """Write-once files under `diverted/`. They stay after their epoch is settled, to tell what was left out."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create(self, diversion: Diversion) -> bool:
        """Record it durably; False when the epoch and sink have one already."""
        document = {
            "epoch": diversion.epoch,
            "sink": diversion.sink,
            "rows": {name: list(numbers) for name, numbers in diversion.rows.items()},
            "kept_in": diversion.kept_in,
        }
        return self._storage.create(_path(diversion.epoch, diversion.sink), seal("diverted", document))

    def all(self, *, above: int = -1, only_whole: bool = False) -> dict[tuple[int, SinkName], Diversion]:
        """Every one of an epoch above this one, by epoch and sink. What is settled is not looked at: it may be damaged.

        `only_whole` leaves out what is damaged instead of refusing it: for whoever is about to divert again.
        """
        found = []
        for name in self._storage.names(FOLDER):
            epoch = name.partition(".")[0]
            if epoch.isdigit() and int(epoch) <= above:
                continue
            try:
                found.append(self._read(f"{FOLDER}/{name}"))
            except DamagedFile as error:
                if not only_whole:
                    raise DamagedFile(
                        error.message,
                        epoch=int(epoch) if epoch.isdigit() else None,
                        hint="restore it from a backup, or give `onceward poison divert` again: it finds the rows anew",
                    ) from error
        return {(one.epoch, one.sink): one for one in found}

    def drop_damaged(self, epoch: int, sink: SinkName) -> None:
        """Make room for a new one where the old one can no longer be read."""
        path = _path(epoch, sink)
        try:
            self._read(path)
        except DamagedFile:
            self._storage.delete(path)

    def _read(self, path: str) -> Diversion:
        document = unseal("diverted", self._storage.read(path) or b"", path=path)
        try:
            rows = {str(name): tuple(map(int, numbers)) for name, numbers in document["rows"].items()}
            return Diversion(int(document["epoch"]), SinkName(document["sink"]), rows, str(document["kept_in"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFile(f"{path} is not a diversion: {error!r}", hint="restore it from a backup") from error


def _path(epoch: int, sink: SinkName) -> str:
    return f"{FOLDER}/{epoch}.{sink_digest(sink)}"
