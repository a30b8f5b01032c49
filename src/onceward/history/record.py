"""One attempt at one epoch, as far as its driver could tell: a value that events are folded into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, Self, assert_never

from onceward.contracts.events import (
    Begun,
    Decided,
    Delivered,
    EngineReported,
    Event,
    Failed,
    PreCommitted,
    Retried,
    Settled,
    Staged,
    StagedSlot,
    StateSize,
)
from onceward.identity import RunId, SinkName

Outcome = Literal["open", "failed", "settled"]
MOST_SLOTS: Final = 1000
"""Of an epoch with more, only the totals and the first of its slots are kept."""
_WHY: Final = 500


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """What one sink got. `retries` is how often its delivery failed, `failure` why it did the last time."""

    rows: int = 0
    slots: int = 0
    began_at: datetime | None = None
    delivered_at: datetime | None = None
    retries: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """`times` says when the epoch reached a step: barrier, begun, staged, pre_committed, decided, delivered, settled,
    failed. An epoch that another driver had staged, and this one published, has only the later ones."""

    epoch: int
    run: RunId
    outcome: Outcome = "open"
    takeover: int = 0
    guarantee: str = ""
    times: Mapping[str, datetime] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    slot_count: int = 0
    slots: tuple[StagedSlot, ...] = ()
    sinks: Mapping[SinkName, SinkRecord] = field(default_factory=dict)
    engine_ms: Mapping[str, int] = field(default_factory=dict)
    input_rows: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    state: tuple[StateSize, ...] = ()
    error: str = ""
    why: str = ""

    @property
    def newest(self) -> datetime | None:
        """When something was last heard of it."""
        return max(self.times.values(), default=None)

    def to_json(self) -> dict[str, Any]:
        """Without what is not known."""
        sinks = {name: _known(asdict(sink)) for name, sink in self.sinks.items()}
        document = {
            "epoch": self.epoch,
            "run": self.run,
            "outcome": self.outcome,
            "takeover": self.takeover,
            "guarantee": self.guarantee,
            "times": {step: at.isoformat() for step, at in self.times.items()},
            "rows": self.rows,
            "bytes": self.bytes,
            "slot_count": self.slot_count,
            "slots": [_known(asdict(slot)) for slot in self.slots],
            "sinks": sinks,
            "engine_ms": dict(self.engine_ms),
            "input_rows": self.input_rows,
            "sources": dict(self.sources),
            "state": [asdict(size) for size in self.state],
            "error": self.error,
            "why": self.why,
        }
        return {name: value for name, value in document.items() if value or name in ("epoch", "run", "outcome")}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The reverse; KeyError, TypeError or ValueError where it is none."""
        plain = {name: document[name] for name in _PLAIN if name in document}
        return cls(
            epoch=int(document["epoch"]),
            times={step: datetime.fromisoformat(at) for step, at in document.get("times", {}).items()},
            slots=tuple([_slot(slot) for slot in document.get("slots", ())]),
            sinks={
                SinkName(name): SinkRecord(**{**sink, **_at(sink, "began_at", "delivered_at")})
                for name, sink in document.get("sinks", {}).items()
            },
            state=tuple(StateSize(**size) for size in document.get("state", ())),
            **plain,
        )


def outlined(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of a record with two of its slots only: those that were acknowledged first and last.

    All that is told over many epochs can be told from it, and slots are most of a record.
    """
    slots = document.get("slots", ())
    acked = [(datetime.fromisoformat(slot["acked_at"]), n) for n, slot in enumerate(slots) if "acked_at" in slot]
    return {**document, "slots": [slots[n] for _, n in (min(acked), max(acked))] if acked else []}


_PLAIN: Final = (
    "run",
    "outcome",
    "takeover",
    "guarantee",
    "rows",
    "bytes",
    "slot_count",
    "engine_ms",
    "input_rows",
    "sources",
    "error",
    "why",
)


def _known(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in document.items()
        if value is not None and value != ""
    }


def _slot(document: Mapping[str, Any]) -> StagedSlot:
    acked = document.get("acked_at")
    at = None if acked is None else datetime.fromisoformat(acked)
    return StagedSlot(document["slot"], document["rows"], document["bytes"], document.get("host", ""), at)


def _at(document: Mapping[str, Any], *names: str) -> dict[str, datetime]:
    return {name: datetime.fromisoformat(document[name]) for name in names if name in document}


def folded(record: EpochRecord, event: Event) -> EpochRecord:
    """The record with one event more."""
    match event:
        case Begun():
            times = {"barrier": event.barrier_at, "begun": event.at}
            return EpochRecord(event.epoch, record.run, takeover=event.takeover, guarantee=event.guarantee, times=times)
        case Staged():
            return replace(
                _at_step(record, "staged", event.at),
                rows=sum(slot.rows for slot in event.slots),
                bytes=sum(slot.bytes for slot in event.slots),
                slot_count=len(event.slots),
                slots=event.slots[:MOST_SLOTS],
            )
        case PreCommitted():
            return _at_step(record, "pre_committed", event.at)
        case Decided():
            return _at_step(record, "decided", event.at)
        case Retried():
            known = record.sinks.get(event.sink, SinkRecord())
            return _with_sink(record, event.sink, replace(known, retries=known.retries + 1, failure=event.why[:_WHY]))
        case Delivered():
            known = record.sinks.get(event.sink, SinkRecord())
            sink = replace(known, rows=event.rows, slots=event.slots, began_at=event.began_at, delivered_at=event.at)
            return _at_step(_with_sink(record, event.sink, sink), "delivered", event.at)
        case Settled():
            rows = record.rows or max(event.rows.values(), default=0)
            return replace(_at_step(record, "settled", event.at), outcome="settled", rows=rows)
        case Failed():
            failed = _at_step(record, "failed", event.at)
            return replace(failed, outcome="failed", error=event.error, why=event.why[:_WHY])
        case EngineReported():
            return replace(
                record,
                engine_ms=event.durations_ms,
                input_rows=event.input_rows,
                sources=event.sources,
                state=event.state,
            )
        case _:
            assert_never(event)


def _at_step(record: EpochRecord, step: str, at: datetime) -> EpochRecord:
    return replace(record, times={**record.times, step: at})


def _with_sink(record: EpochRecord, name: SinkName, sink: SinkRecord) -> EpochRecord:
    return replace(record, sinks={**record.sinks, name: sink})
