"""Our record of a query's topology in its checkpoint: `topology/<k>.json`, sealed and write-once; the last counts.

It is written before Spark starts, when it differs from the one before. A crash in between leaves a record of a query
that never ran, and nothing relies on it: it had to fit the checkpoint, or there was no state yet. See
docs/formats/topology.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from onceward.contracts import Storage
from onceward.errors import DamagedFile, NewerFormat
from onceward.journal.sealed import seal, unseal
from onceward.operators.topology import Topology

FOLDER: Final = "topology"
_NAME = re.compile(r"([0-9]+)\.json")
_WITHOUT: Final = (
    "restore it from a backup; or remove onceward/{path}: the record before it counts then; without any the names are "
    "lost, and operators are compared by what Spark has written beside their state"
)


@dataclass(frozen=True, slots=True)
class TopologyRecord:
    """One record: the topology of every start from epoch `since` on, until the next record."""

    number: int
    since: int
    topology: Topology


class TopologyLog:
    """The records of one checkpoint, below its onceward folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> TopologyRecord | None:
        """The one that counts; None where there is none, as in a new checkpoint and in one of an older release."""
        numbers = self._numbers()
        return self._record(numbers[-1]) if numbers else None

    def write(self, topology: Topology, *, since: int) -> TopologyRecord:
        """Write it if it differs from the one that counts; what counts afterwards.

        Two drivers that start at once both write: of one number one is told that it is taken, reads what the other one
        has written, and, where that differs from its own, writes the next. The last counts, and which of the two may go
        on is decided elsewhere (`epoch/takeover.py`).
        """
        while True:
            newest = self.read()
            if newest is not None and newest.topology == topology:
                return newest
            record = TopologyRecord(0 if newest is None else newest.number + 1, since, topology)
            document = {"number": record.number, "since": since, **topology.as_json()}
            if self._storage.create(_path(record.number), seal("topology", document)):
                return record

    def _numbers(self) -> list[int]:
        return sorted(int(match[1]) for name in self._storage.names(FOLDER) if (match := _NAME.fullmatch(name)))

    def _record(self, number: int) -> TopologyRecord:
        path = _path(number)
        try:
            document = unseal("topology", self._storage.read(path) or b"", path=path)
            return TopologyRecord(int(document["number"]), int(document["since"]), Topology.from_json(document))
        except NewerFormat:
            raise
        except DamagedFile as error:
            raise DamagedFile(error.message, hint=_WITHOUT.format(path=path)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"{path} is not a topology: {error!r}", hint=_WITHOUT.format(path=path)) from error


def _path(number: int) -> str:
    return f"{FOLDER}/{number}.json"
