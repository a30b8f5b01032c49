"""Totals and percentiles over many epochs: a pure function of their records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onceward.history.phases import PHASES, duration_s, phases
from onceward.history.record import EpochRecord


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of a quantity over the epochs for which it is known. Percentiles by nearest rank."""

    count: int
    min: float
    mean: float
    max: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Distribution | None:
        """None where there is no value."""
        ordered = sorted(values)
        if not ordered:
            return None
        return cls(
            count=len(ordered),
            min=ordered[0],
            mean=math.fsum(ordered) / len(ordered),
            max=ordered[-1],
            p50=_percentile(ordered, 50),
            p90=_percentile(ordered, 90),
            p99=_percentile(ordered, 99),
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """`distributions` has the whole duration, each phase, rows, bytes and the size of the state."""

    epochs: int
    settled: int
    failed: int
    rows: int
    bytes: int
    retries: int
    distributions: dict[str, Distribution]


def summary(records: Sequence[EpochRecord]) -> Summary:
    """Failed attempts count among `failed` only."""
    settled = [record for record in records if record.outcome == "settled"]
    found: dict[str, list[float]] = {name: [] for name in ("duration", *PHASES, "rows", "bytes", "state_bytes")}
    for record in settled:
        if (took := duration_s(record)) is not None:
            found["duration"].append(took)
        for phase, seconds in phases(record).items():
            found[phase].append(seconds)
        found["rows"].append(record.rows)
        found["bytes"].append(record.bytes)
        if record.state:
            found["state_bytes"].append(sum(size.bytes for size in record.state))
    shown = {name: Distribution.of(values) for name, values in found.items()}
    return Summary(
        epochs=len({record.epoch for record in records}),
        settled=len(settled),
        failed=sum(record.outcome == "failed" for record in records),
        rows=sum(record.rows for record in settled),
        bytes=sum(record.bytes for record in settled),
        retries=sum(sink.retries for record in records for sink in record.sinks.values()),
        distributions={name: one for name, one in shown.items() if one is not None},
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
