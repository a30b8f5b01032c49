"""The settled watermark: write-once markers, of which the highest counts; the recent ones are the history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from onceward.contracts import Storage
from onceward.errors import DamagedFile
from onceward.identity import Fingerprint, SinkName
from onceward.journal.model import Manifest
from onceward.journal.sealed import seal, unseal

FOLDER: Final = "settled"
KEPT: Final = 100
"""As many as a target keeps receipts: what was published can be looked for as long as it can be told."""


@dataclass(frozen=True, slots=True)
class SinkTotal:
    """What one sink got in an epoch."""

    mechanism: str
    guarantee: str
    slots: int
    rows: int

    def to_json(self) -> dict[str, Any]:
        """As it stands in the marker, where the mechanism is called `means`."""
        return {"means": self.mechanism, "guarantee": self.guarantee, "slots": self.slots, "rows": self.rows}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The reverse."""
        return cls(document["means"], document["guarantee"], document["slots"], document["rows"])


@dataclass(frozen=True, slots=True)
class Marker:
    """Proof that an epoch is published in every sink.

    It carries the epoch's manifest, None where the engine made the epoch alone, and the text of its commit entry: what
    was published can be looked for in a target that went back, and a log entry that a power loss took can be put back.
    """

    epoch: int
    fingerprint: Fingerprint
    settled_at: datetime
    sinks: Mapping[SinkName, SinkTotal]
    decision: str = ""
    manifest: Manifest | None = None


class SettledLog:
    """Markers under `settled/`. A marker is durable before anything that it makes superfluous is removed."""

    def __init__(self, storage: Storage, *, folder: str = FOLDER) -> None:
        self._storage = storage
        self._folder = folder

    def epochs(self) -> list[int]:
        """The epochs that still have a marker, in order."""
        return sorted(int(name) for name in self._storage.names(self._folder) if name.isdigit())

    def watermark(self) -> int:
        """The highest settled epoch, -1 when there is none."""
        return max(self.epochs(), default=-1)

    def marker(self, epoch: int) -> Marker | None:
        """The marker of one epoch, None when it was pruned or never written."""
        path = f"{self._folder}/{epoch}"
        data = self._storage.read(path)
        if data is None:
            return None
        document = unseal("settled", data, path=path)
        try:
            return Marker(
                epoch=int(document["epoch"]),
                fingerprint=Fingerprint(document["fingerprint"]),
                settled_at=datetime.fromisoformat(document["settled_at"]),
                sinks={SinkName(name): SinkTotal.from_json(total) for name, total in document["sinks"].items()},
                decision=str(document.get("decision", "")),
                manifest=Manifest.from_json(manifest, path=path) if (manifest := document.get("manifest")) else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"{path} is not a settled marker: {error!r}", hint="restore it from a backup") from error

    def legible(self, epoch: int) -> Marker | None:
        """The same, None too where it is damaged: for questions that it may leave open."""
        try:
            return self.marker(epoch)
        except DamagedFile:
            return None

    def forget(self, epoch: int) -> None:
        """Drop a marker: for a rollback that the user has accepted."""
        self._storage.delete(f"{self._folder}/{epoch}")

    def mark(self, marker: Marker) -> None:
        """Record that the epoch is settled, once; then let go of markers that are too old to be of interest."""
        self.write(marker)
        for old in self.epochs()[:-KEPT]:
            self.forget(old)

    def write(self, marker: Marker) -> None:
        """Create the marker; one that stands stays as it is."""
        document = {
            "epoch": marker.epoch,
            "fingerprint": marker.fingerprint,
            "settled_at": marker.settled_at.isoformat(),
            "sinks": {name: total.to_json() for name, total in marker.sinks.items()},
            "decision": marker.decision,
            "manifest": marker.manifest.to_json() if marker.manifest is not None else None,
        }
        self._storage.create(f"{self._folder}/{marker.epoch}", seal("settled", document))
