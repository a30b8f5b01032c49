"""The lives of a job: how each ended, what each driver left in the history, what people did, and what comes next."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from onceward.api import NoDriver
from onceward.clock import SystemClock
from onceward.contracts import Storage
from onceward.dashboard.tables import runs
from onceward.dashboard.view import JobView
from onceward.errors import DamagedFile, OncewardError
from onceward.journal import Diversions, Resolutions, unseal
from onceward.journal.resolutions import describe as describe_resolution
from onceward.recovery import describe, inspect_checkpoint
from onceward.restart.history import Life, LifeLog
from onceward.storage import directory_id_of
from onceward.verify.removed import PREFIX


def lives(view: JobView) -> dict[str, Any]:
    """All of it, the newest first."""
    found = LifeLog(view.storage, SystemClock()).read()
    return {
        "lives": [_life(one) for one in reversed(found)],
        "runs": runs(view.rows()),
        "actions": actions(view.storage),
        "next_start": next_start(view),
    }


def _life(life: Life) -> dict[str, Any]:
    begun, ended = life.begun, life.ended
    return {
        "number": life.number,
        "began": begun.at.timestamp() if begun is not None else None,
        "host": begun.host if begun is not None else None,
        "pid": begun.pid if begun is not None else None,
        "ended": ended.at.timestamp() if ended is not None else None,
        "how": ended.how.value if ended is not None else None,
        "then": ended.then.value if ended is not None else None,
        "lived_s": ended.lived_s if ended is not None else None,
        "settled": ended.reached.settled if ended is not None else None,
        "published": life.published,
        "error": ended.error if ended is not None else None,
        "message": ended.message if ended is not None else None,
        "signal": ended.signal if ended is not None else None,
    }


def actions(storage: Storage) -> list[dict[str, Any]]:
    """What people did, with who and why: resolutions, and restores to an earlier epoch."""
    said = Resolutions(storage).history()
    withdrawn = {one.withdraws for one in said}
    found = [
        {
            "number": one.number,
            "what": describe_resolution(one),
            "epoch": one.epoch,
            "by": one.by,
            "at": one.at.timestamp(),
            "because": one.because,
            "withdrawn": one.number in withdrawn,
            "shown": list(one.shown),
        }
        for one in said
    ]
    return sorted([*found, *_restores(storage)], key=lambda one: float(one["at"]), reverse=True)


def _restores(storage: Storage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in storage.names(""):
        if not (name.startswith(PREFIX) and name.endswith(".json")):
            continue
        try:
            document = unseal("restore", storage.read(name) or b"", path=name)
            epoch, moved = int(document["epoch"]), len(document["moves"])
            what = f"the checkpoint was taken back to epoch {epoch}; {moved} files were moved aside"
            by, because = str(document["by"]), str(document["because"])
            at = _timestamp(str(document["at"]))
        except (DamagedFile, KeyError, TypeError, ValueError):
            continue
        line = {"number": None, "what": what, "epoch": epoch, "by": by, "at": at, "because": because}
        found.append({**line, "withdrawn": False, "shown": []})
    return found


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def next_start(view: JobView) -> dict[str, Any] | None:
    """What a start would do first, by the files alone; None while a driver runs. Targets are not asked."""
    if not isinstance(view.live(), NoDriver) or view.record() is None:
        return None
    try:
        plan = inspect_checkpoint(
            sinks=(),
            storage=view.storage,
            decisions=view.logs,
            directory_id=directory_id_of(view.place.checkpoint / "onceward"),
            clock=SystemClock(),
        )
    except OncewardError as error:
        return {"steps": [], "refusal": {"error": type(error).__name__, "message": error.message, "hint": error.hint}}
    refusal = plan.refusal
    return {
        "steps": [{"epoch": getattr(step, "epoch", None), "what": describe(step)} for step in plan.steps],
        "refusal": None
        if refusal is None
        else {"error": type(refusal).__name__, "message": refusal.message, "hint": refusal.hint},
    }


def diverted(view: JobView) -> list[dict[str, Any]]:
    """Rows that were taken out because a target rejects them, and the file that has them."""
    found = Diversions(view.storage).all(only_whole=True)
    return [
        {
            "epoch": one.epoch,
            "sink": one.sink,
            "rows": sum(map(len, one.rows.values())),
            "slots": len(one.rows),
            "kept_in": one.kept_in,
        }
        for one in sorted(found.values(), key=lambda one: (-one.epoch, one.sink))
    ]
