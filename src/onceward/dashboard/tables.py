"""What the page shows of many epochs: a page of the table, the timeline, a summary. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from onceward.dashboard.digest import SHOWN_PHASES, Digest
from onceward.history import PHASES, Distribution

BARS: Final = 240
"""So many bars fit into the timeline; of more epochs each bar shows the slowest of several."""
_RATE_S: Final = 60.0
_SPARKS: Final = 40
OUTCOMES: Final = ("settled", "failed", "open")


@dataclass(frozen=True, slots=True)
class Search:
    """What the table is asked for: an outcome, epochs, times (seconds since 1970), those taken over or repeated."""

    outcome: str | None = None
    first: int | None = None
    last: int | None = None
    since: float | None = None
    until: float | None = None
    unusual: bool = False

    def fits(self, row: Digest) -> bool:
        """Whether this attempt is wanted."""
        if self.outcome is not None and row.outcome != self.outcome:
            return False
        if (self.since is not None and row.newest < self.since) or (
            self.until is not None and (row.begun or row.newest) > self.until
        ):
            return False
        return not self.unusual or is_unusual(row)


def is_unusual(row: Digest) -> bool:
    """Whether something happened to it that does not happen to every epoch."""
    return bool(row.takeover or row.retries or row.is_recovered or row.outcome == "failed")


def page(rows: Sequence[Digest], search: Search, *, offset: int, limit: int) -> dict[str, Any]:
    """The newest first. `total` is how many there are in all that fit."""
    chosen = within(rows, search.first, search.last)
    if search != Search(first=search.first, last=search.last):
        chosen = [row for row in chosen if search.fits(row)]
    wanted = chosen[::-1][offset : offset + limit]
    return {"total": len(chosen), "offset": offset, "limit": limit, "epochs": [as_json(row) for row in wanted]}


def as_json(row: Digest) -> dict[str, Any]:
    """One line of the table."""
    return {**asdict(row), "delay": row.delay, "unusual": is_unusual(row)}


def within(rows: Sequence[Digest], first: int | None, last: int | None) -> Sequence[Digest]:
    """The attempts at these epochs; rows are in the order of epochs."""
    low = 0 if first is None else bisect_left(rows, first, key=lambda row: row.epoch)
    high = len(rows) if last is None else bisect_left(rows, last + 1, key=lambda row: row.epoch)
    return rows[low:high]


def timeline(rows: Sequence[Digest], first: int | None, last: int | None, *, bars: int = BARS) -> dict[str, Any]:
    """In columns. Each bar is one epoch, or the slowest of several, so that no slow one disappears in a mean; `failed`
    is what attempts at its epochs took that failed."""
    epochs = _by_epoch(within(rows, first, last))
    step = max(1, -(-len(epochs) // bars))
    groups = [epochs[place : place + step] for place in range(0, len(epochs), step)]
    shown = [max(group, key=_whole) for group in groups]
    newest = [attempts[-1] for attempts in shown]
    return {
        "first": rows[0].epoch if rows else None,
        "last": rows[-1].epoch if rows else None,
        "step": step,
        "from": [group[0][0].epoch for group in groups],
        "to": [group[-1][0].epoch for group in groups],
        "epoch": [row.epoch for row in newest],
        "begun": [row.begun for row in newest],
        "outcome": [row.outcome for row in newest],
        "rows": [row.rows for row in newest],
        "took": [row.took for row in newest],
        "failed": [sum(map(_failed_s, attempts)) for attempts in shown],
        "failures": [sum(row.outcome == "failed" for one in group for row in one) for group in groups],
        "takeovers": [sum(bool(row.takeover) for one in group for row in one) for group in groups],
        "phases": {
            phase: [0.0 if row.outcome == "failed" else row.phases.get(phase, 0.0) for row in newest]
            for phase in SHOWN_PHASES
        },
    }


def _by_epoch(rows: Iterable[Digest]) -> list[list[Digest]]:
    found: dict[int, list[Digest]] = {}
    for row in rows:
        found.setdefault(row.epoch, []).append(row)
    return list(found.values())


def _failed_s(row: Digest) -> float:
    return (row.took or 0.0) if row.outcome == "failed" else 0.0


def _whole(attempts: Sequence[Digest]) -> float:
    return sum(row.took or 0.0 for row in attempts)


def summary(rows: Sequence[Digest]) -> dict[str, Any]:
    """Totals and percentiles, as `onceward checkpoints list` has them, over all that are kept."""
    settled = [row for row in rows if row.outcome == "settled"]
    found: dict[str, list[float]] = {"duration": [row.took for row in settled if row.took is not None]}
    found["delay"] = [row.delay for row in settled if row.delay is not None]
    found |= {phase: [row.phases[phase] for row in settled if phase in row.phases] for phase in PHASES}
    found |= {"rows": [row.rows for row in settled], "bytes": [row.bytes for row in settled]}
    found["state_bytes"] = [row.state_bytes for row in settled if row.state_bytes is not None]
    shown = {name: Distribution.of(values) for name, values in found.items()}
    return {
        "epochs": len({row.epoch for row in rows}),
        "attempts": len(rows),
        "settled": len(settled),
        "failed": sum(row.outcome == "failed" for row in rows),
        "taken_over": sum(row.takeover > 0 for row in settled),
        "rows": sum(row.rows for row in settled),
        "bytes": sum(row.bytes for row in settled),
        "retries": sum(row.retries for row in rows),
        "distributions": {name: asdict(one) for name, one in shown.items() if one is not None},
        "meaning": PHASES,
    }


def recent(rows: Sequence[Digest]) -> dict[str, Any]:
    """The last minute in which anything was settled: rows a second, the delay of the newest, a line of durations."""
    newest = [row for row in rows[-500:] if row.outcome == "settled"]
    sparks = [row.took for row in newest[-_SPARKS:]]
    if not newest:
        return {"rows_per_s": None, "delay": None, "sparks": [], "median_phases": {}}
    end = newest[-1].newest
    inside = [row for row in newest if row.newest > end - _RATE_S]
    begun = [row.begun for row in inside if row.begun is not None]
    span = end - min(begun) if begun else 0.0
    return {
        "rows_per_s": sum(row.rows for row in inside) / span if span > 0 else None,
        "delay": newest[-1].delay,
        "sparks": sparks,
        "median_phases": _medians(newest[-100:]),
    }


def _medians(rows: Sequence[Digest]) -> Mapping[str, float]:
    found = {phase: sorted(row.phases[phase] for row in rows if phase in row.phases) for phase in SHOWN_PHASES}
    return {phase: values[(len(values) - 1) // 2] for phase, values in found.items() if values}


def runs(rows: Sequence[Digest]) -> list[dict[str, Any]]:
    """Each driver that left a trace in the history, the newest first."""
    found: dict[str, list[Digest]] = {}
    for row in rows:
        found.setdefault(row.run, []).append(row)
    lines = [
        {
            "run": run,
            "since": min((row.begun or row.newest for row in mine), default=None),
            "until": max(row.newest for row in mine),
            "first": min(row.epoch for row in mine),
            "last": max(row.epoch for row in mine),
            "settled": sum(row.outcome == "settled" for row in mine),
            "failed": sum(row.outcome == "failed" for row in mine),
            "taken_over": sum(row.takeover > 0 for row in mine),
            "recovered": sum(row.is_recovered for row in mine),
            "rows": sum(row.rows for row in mine if row.outcome == "settled"),
        }
        for run, mine in found.items()
    ]
    return sorted(lines, key=lambda line: line["until"], reverse=True)
