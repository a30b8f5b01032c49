"""A manifest: the handles of every sink's slots for one epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from onceward.contracts import Handle
from onceward.errors import DamagedFile
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId, SinkName


@dataclass(frozen=True, slots=True)
class SlotEntry:
    """What one slot staged in one sink. An empty slot has no entry."""

    slot: int
    rows: int
    handle: Handle

    @property
    def transaction(self) -> str:
        """The name of the attempt that staged it."""
        return str(self.handle["transaction"])


@dataclass(frozen=True, slots=True)
class SinkEntry:
    """One sink's slots, the mechanism by which they wait, where in the target their receipts will stand, and what in
    the target the sink relied on when they were staged."""

    mechanism: str
    slots: tuple[SlotEntry, ...]
    receipts_at: str = ""
    target: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows wait in this sink."""
        return sum(slot.rows for slot in self.slots)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The durable list of an epoch's handles, written before `foreachBatch` returns. Every epoch has one.

    `immediate` marks an epoch whose rows go to the target before the decision: no receipt is written for them.
    `barrier` is the text of the epoch's barrier, so that it can be put back if a power loss takes it.
    """

    job: JobIdentity
    epoch: int
    takeover: int
    run: RunId
    fingerprint: Fingerprint
    timestamp: datetime
    created_at: datetime
    sinks: Mapping[SinkName, SinkEntry]
    immediate: bool = False
    barrier: str = ""
    guarantee: str | None = None

    def transactions(self) -> set[str]:
        """The names of all transactions that this manifest accounts for."""
        return {slot.transaction for entry in self.sinks.values() for slot in entry.slots}

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "job": self.job.name,
            "generation": self.job.generation,
            "epoch": self.epoch,
            "takeover": self.takeover,
            "run": self.run,
            "fingerprint": self.fingerprint,
            "timestamp": self.timestamp.isoformat(),
            "created_at": self.created_at.isoformat(),
            "straight": self.immediate,
            "guarantee": self.guarantee,
            "barrier": self.barrier,
            "sinks": {
                name: {
                    "means": entry.mechanism,
                    "receipts_at": entry.receipts_at,
                    "target": dict(entry.target),
                    "slots": [[s.slot, s.rows, s.handle] for s in entry.slots],
                }
                for name, entry in self.sinks.items()
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, path: str) -> Self:
        """As it was stored, also by version 1; `DamagedFile` when a field is missing or of the wrong shape."""
        try:
            return cls(
                job=JobIdentity(JobName(document["job"]), Generation(document["generation"])),
                epoch=int(document["epoch"]),
                takeover=int(document["takeover"]),
                run=RunId(document["run"]),
                fingerprint=Fingerprint(document["fingerprint"]),
                timestamp=datetime.fromisoformat(document["timestamp"]),
                created_at=datetime.fromisoformat(document["created_at"]),
                immediate=bool(document["straight"]),
                barrier=str(document.get("barrier", "")),
                guarantee=document.get("guarantee"),
                sinks={
                    SinkName(name): SinkEntry(
                        entry["means"],
                        tuple(SlotEntry(int(slot), int(rows), handle) for slot, rows, handle in entry["slots"]),
                        str(entry.get("receipts_at", "")),
                        {str(fact): str(found) for fact, found in entry.get("target", {}).items()},
                    )
                    for name, entry in document["sinks"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFile(
                f"{path} is not a manifest: {error!r}", hint="restore it from a backup of the checkpoint"
            ) from error
