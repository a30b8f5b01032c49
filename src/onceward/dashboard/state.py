"""What a job keeps from one epoch to the next: its operators by name, from files alone, and their entries by key."""

from __future__ import annotations

import time
from typing import Any, Final

from onceward.dashboard.flow import operators_of, topology_of
from onceward.dashboard.reader import Pending, Question, StateReader
from onceward.dashboard.view import JobView
from onceward.errors import ConfigurationError
from onceward.observe.state_views import state_views

MOST_ROWS: Final = 500


def state(view: JobView, reader: StateReader) -> dict[str, Any]:
    """The operators with their parts and key columns, and the epochs at whose end they can be looked at."""
    root, topology = view.place.checkpoint, topology_of(view)
    parts: dict[int, list[str]] = {}
    if (root / "state").is_dir():
        for one in state_views(root, topology):
            parts.setdefault(one.operator.number, []).append(one.part)
    decided = view.logs.decided()
    found = [
        {**one, "parts": parts.get(one["number"], [])} for one in operators_of(topology, view.index.newest) if parts
    ]
    return {
        "operators": found,
        "epoch": decided if decided >= 0 else None,
        "first": view.logs.oldest(),
        "is_warm": reader.is_warm,
        "command": f"onceward state show {root}",
    }


def entries(
    view: JobView, reader: StateReader, *, operator: int, part: str, epoch: int | None, keys: tuple[str, ...], rows: int
) -> dict[str, Any]:
    """Those that were asked for, or how far it is: ask again until it is done. Errors are refusals like any other."""
    wanted = epoch if epoch is not None else view.logs.decided()
    if wanted < 0:
        raise ConfigurationError("no epoch is decided, so there is no state yet", hint="wait for the first one")
    found = reader.ask(Question(str(view.place.checkpoint), operator, part, wanted, keys, rows))
    if isinstance(found, Pending):
        return {"stage": found.stage, "since_s": time.time() - found.since}
    if "error" in found:
        raise ConfigurationError(str(found["message"]), hint=str(found["hint"] or "look again"))
    return {"stage": "done", **found}
