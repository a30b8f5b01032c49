"""Savepoints from the page: taken by the running driver, which tells how far it is."""

from __future__ import annotations

from typing import Any

from onceward.api import DriverGone, NoDriver
from onceward.dashboard.view import JobView
from onceward.errors import ConfigurationError


def savepoints(view: JobView, *, read_only: bool) -> dict[str, Any]:
    """Those that this run was asked for, the newest first, and why none can be taken now, if so."""
    live = view.live()
    checkpoint = str(view.place.checkpoint)
    found: dict[str, Any] = {"savepoints": [], "why_not": "", "folder": f"{checkpoint}-savepoints"}
    if isinstance(live, NoDriver):
        return {**found, "why_not": "no driver answers: a stopped job's savepoint is taken by the command"}
    try:
        found["savepoints"] = live.get("/v1/savepoints")["savepoints"]
    except DriverGone as error:
        return {**found, "why_not": str(error)}
    return {**found, "why_not": "this dashboard is read-only" if read_only else ""}


def take(view: JobView, folder: str) -> dict[str, Any]:
    """Begin to take one; how far it is, is asked for again and again."""
    live = view.live()
    if isinstance(live, NoDriver):
        raise ConfigurationError(
            "no driver answers", hint=f"onceward savepoint take {view.place.checkpoint} {folder or 'FOLDER'}"
        )
    try:
        return dict(live.take_savepoint(folder))
    except DriverGone as error:
        raise ConfigurationError(str(error), hint="give an absolute path that the driver may write to") from error
