"""One attempt at one epoch without its slots: small enough to keep ten thousand of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from onceward.history import EpochRecord, duration_s, phases
from onceward.history.record import outlined

SHOWN_PHASES: Final = ("planning", "barrier", "staging", "manifest", "decision", "publish", "settle")
"""In the order in which they are stacked. Alignment is a part of staging."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Times are seconds since 1970. `begun` is that of the barrier, which every attempt at the epoch has in common;
    `staging` is when this attempt began. `visible` is when the last sink had the epoch. None: not known."""

    epoch: int
    run: str
    outcome: str
    takeover: int
    guarantee: str
    begun: float | None
    staging: float | None
    newest: float
    decided: float | None
    visible: float | None
    took: float | None
    phases: Mapping[str, float]
    rows: int
    bytes: int
    input_rows: int
    slots: int
    retries: int
    state_bytes: int | None
    is_recovered: bool
    error: str
    why: str

    @property
    def delay(self) -> float | None:
        """From the decision until its rows were visible."""
        if self.decided is None or self.visible is None:
            return None
        return max(0.0, self.visible - self.decided)

    @property
    def key(self) -> tuple[int, str, float | None, str]:
        """By which a record that stands in two files is known."""
        return self.epoch, self.run, self.staging, self.outcome


def digest_of(record: EpochRecord) -> Digest:
    """Of a whole record."""
    times = record.times
    newest, delivered = record.newest, times.get("delivered")
    first = times.get("barrier") or min(times.values(), default=None)
    return Digest(
        epoch=record.epoch,
        run=record.run,
        outcome=record.outcome,
        takeover=record.takeover,
        guarantee=record.guarantee,
        begun=_seconds(first),
        staging=_seconds(times.get("begun")),
        newest=newest.timestamp() if newest is not None else 0.0,
        decided=_seconds(times.get("decided")),
        visible=_seconds(delivered or times.get("settled")),
        took=duration_s(record),
        phases=phases(record),
        rows=record.rows,
        bytes=record.bytes,
        input_rows=record.input_rows,
        slots=record.slot_count,
        retries=sum(sink.retries for sink in record.sinks.values()),
        state_bytes=sum(size.bytes for size in record.state) if record.state else None,
        # Another driver had staged it; this one found it at its start and published it.
        is_recovered="begun" not in times and record.outcome == "settled",
        error=record.error,
        why=record.why,
    )


def digest_from(document: Mapping[str, Any]) -> Digest:
    """From a record as it is stored. Of its slots only two are looked at: an epoch may have a thousand of them."""
    return digest_of(EpochRecord.from_json(outlined(document)))


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None
