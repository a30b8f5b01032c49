"""Where the time of an epoch went: a pure function of its record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from onceward.history.record import EpochRecord

PHASES: Final = {
    "planning": "Spark finds out what there is to read, and plans the epoch",
    "barrier": "Spark writes offsets/N",
    "staging": "from the first task's start to the last acknowledgement",
    "alignment": "a part of staging: from the first acknowledgement to the last",
    "manifest": "what is staged is looked at, and the manifest written",
    "decision": "from the manifest until the publisher has seen commits/N",
    "publish": "from the decision until the last sink has the epoch",
    "settle": "the marker is written, and what was staged removed",
}
"""In their order, with what each of them is."""

_PLANNING: Final = ("latestOffset", "queryPlanning", "getBatch")
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


def phases(record: EpochRecord) -> dict[str, float]:
    """Seconds spent in each phase, as far as it is known. A clock that went back makes a phase 0, not negative."""
    found: dict[str, float] = {}
    if record.engine_ms:
        found["planning"] = sum(record.engine_ms.get(step, 0) for step in _PLANNING) / 1000
        found["barrier"] = record.engine_ms.get("walCommit", 0) / 1000
    _between(found, record, "staging", "begun", "staged")
    acked = [slot.acked_at for slot in record.slots if slot.acked_at is not None]
    if acked:
        found["alignment"] = (max(acked) - min(acked)).total_seconds()
    _between(found, record, "manifest", "staged", "pre_committed")
    _between(found, record, "decision", "pre_committed", "decided")
    # An empty epoch, or one that goes out before the decision, has nothing to deliver after it.
    last = "delivered" if record.times.get("delivered", _FIRST) >= record.times.get("decided", _FIRST) else "decided"
    if last == "delivered":
        _between(found, record, "publish", "decided", "delivered")
    _between(found, record, "settle", last, "settled")
    return found


def duration_s(record: EpochRecord) -> float | None:
    """From the barrier, or from when this driver first had to do with it, to the end of it."""
    ends = [record.times[step] for step in ("settled", "failed") if step in record.times]
    if not ends or not record.times:
        return None
    first = record.times.get("barrier") or min(record.times.values())
    return max(0.0, (max(ends) - first).total_seconds())


def _between(found: dict[str, float], record: EpochRecord, phase: str, first: str, last: str) -> None:
    if first in record.times and last in record.times:
        found[phase] = max(0.0, (record.times[last] - record.times[first]).total_seconds())
