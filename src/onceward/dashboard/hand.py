"""The transactions that wait in a job's targets, and what a person may do about one: said first, then done.

The rules are those of `onceward transactions`; what may be done is decided anew when it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from onceward.admin import (
    InDoubt,
    Verdict,
    abort_by_hand,
    abort_strays,
    commit_by_hand,
    find_poison,
    in_doubt,
    record_abort,
    strays,
)
from onceward.api import DriverGone, NoDriver
from onceward.dashboard.detail import unsettled
from onceward.dashboard.past import diverted
from onceward.dashboard.places import JobAccess
from onceward.dashboard.view import JobView
from onceward.epoch import RunContext
from onceward.errors import ConfigurationError

Action = Literal["commit", "abort"]
_PATIENCE_S: Final = 30.0
"""How long a commit from the page may wait for a target. What is not published by then waits for the next start."""
_SHOWN: Final = 500
_acting = threading.Lock()


def transactions(view: JobView, *, read_only: bool) -> dict[str, Any]:
    """What the targets hold, asked now: by the running driver, or through the job's own file. Where neither can be
    asked, what the manifests say should be there."""
    live, access = view.live(), view.place.access
    found: dict[str, Any] = {"asked_at": time.time(), "source": "files", "transactions": [], "error": None}
    if not isinstance(live, NoDriver):
        try:
            listed = live.get("/v1/transactions?fresh=true")["transactions"]
            found |= {"source": "driver", "transactions": [{**one, "stray": False, "rows": None} for one in listed]}
        except DriverGone as error:
            found |= {"source": "driver", "error": str(error)}
    elif access is not None:
        found |= _asked(access)
    else:
        found["transactions"] = _expected(view)
    found["transactions"] = [
        {**one, "actions": [] if read_only or access is None else _allowed(one, isinstance(live, NoDriver))}
        for one in found["transactions"]
    ]
    found["more"] = max(0, len(found["transactions"]) - _SHOWN)
    found["transactions"] = found["transactions"][:_SHOWN]
    return {**found, "why_not": _why_not(access, read_only=read_only), "diverted": diverted(view)}


def _asked(access: JobAccess) -> dict[str, Any]:
    try:
        context = access.context()
        own = [_line(one, stray=False) for one in in_doubt(context)]
        return {"source": "job", "transactions": own + [_line(one, stray=True) for one in strays(context)]}
    except Exception as error:
        # A target's own error, of whatever kind: it is what the person came to see.
        return {"source": "job", "error": f"{type(error).__name__}: {error}"}


def _line(one: InDoubt, *, stray: bool) -> dict[str, Any]:
    since = one.since.isoformat() if one.since is not None else None
    return {**asdict(one), "since": since, "verdict": one.verdict.value, "stray": stray, "rows": None}


def _expected(view: JobView) -> list[dict[str, Any]]:
    """By the manifests alone. An epoch that is decided is published by the next start, another one computed again."""
    decided = view.glance()["decided"]
    found = []
    for epoch, manifest in unsettled(view):
        verdict, why = (
            ("commit", "its epoch is decided and its manifest names it: the next start publishes it")
            if epoch <= decided
            else ("wait", "pre-committed; its epoch is not decided. A restart would abort it and compute it again")
        )
        age = max(0.0, time.time() - manifest.created_at.timestamp())
        common = {"epoch": epoch, "verdict": verdict, "why": why, "generation": manifest.job.generation, "stray": False}
        common |= {"since": manifest.created_at.isoformat(), "age_s": age}
        for name, entry in manifest.sinks.items():
            found += [
                {**common, "sink": name, "transaction": slot.transaction, "slot": slot.slot, "rows": slot.rows}
                for slot in entry.slots
            ]
    return found


def _allowed(one: dict[str, Any], is_stopped: bool) -> list[Action]:
    """A driver that runs publishes by itself, so committing is for a stopped job."""
    if one["verdict"] == "commit":
        return ["commit"] if is_stopped and not one["stray"] else []
    if one["verdict"] == "abort" or (one["verdict"] == "ask" and not one["stray"]):
        return ["abort"]
    return []


def _why_not(access: JobAccess | None, *, read_only: bool) -> str:
    if read_only:
        return "this dashboard is read-only"
    if access is None:
        return "only a job's file knows its targets: start the dashboard with FILE:JOB to commit or abort by hand"
    return ""


def propose(view: JobView, action: Action, transaction: str) -> dict[str, Any]:
    """What will happen, in lines for people; `ConfigurationError` where it must not."""
    context, found, is_stray = _found(view, action, transaction)
    if action == "commit":
        lines = _commit_lines(context, found)
    else:
        lines = [
            f"the transaction of epoch {found.epoch}, slot {found.slot}, is rolled back in sink {found.sink!r}",
            "what is in it is lost for good",
            found.why,
        ]
        lines += ["it is of another generation, or of a sink that was removed"] if is_stray else []
    lines += [f"recorded in the checkpoint, with who and why: {'nothing' if action == 'commit' else 'the abort'}"]
    return {
        "action": action,
        "transaction": transaction,
        "lines": lines,
        "needs_reason": action == "abort",
        "is_stray": is_stray,
    }


def _commit_lines(context: RunContext, found: InDoubt) -> list[str]:
    first, last = context.watermark() + 1, context.decisions.decided()
    if found.epoch < first:
        return [f"the target went back: what was published as epoch {found.epoch} is committed again", found.why]
    epochs = f"epoch {first} is" if first == last else f"epochs {first} to {last} are"
    same = [one for one in in_doubt(context) if one.verdict is Verdict.COMMIT and one.epoch >= first]
    return [
        f"{epochs} decided and not published: they are published now, in order, as the next start would",
        f"{len(same)} prepared transactions are committed, this one among them; their rows become visible",
        "rows that wait in write-ahead segments of these epochs are sent as well",
        found.why,
    ]


def act(view: JobView, action: Action, transaction: str, *, who: str, because: str) -> dict[str, Any]:
    """Do it. One at a time, and by the verdict that holds now, whatever the page has shown."""
    if not _acting.acquire(blocking=False):
        raise ConfigurationError("another transaction is being committed or aborted", hint="wait until that is done")
    try:
        context, found, is_stray = _found(view, action, transaction)
        access = view.place.access
        assert access is not None, "looked for"
        if action == "commit":
            limits = replace(access.limits, deadline_s=min(access.limits.deadline_s, _PATIENCE_S))
            return {"done": "committed", "settled": commit_by_hand(context, transaction, limits)}
        if not because.strip():
            raise ConfigurationError("nobody has said why", hint="say why: it is kept in the checkpoint")
        at, why = datetime.now(UTC), because.strip()
        if is_stray:
            abort_strays(context, [found], by=who, at=at, because=why)
        else:
            _abort_own(context, found, who=who, at=at, because=why)
        return {"done": "aborted", "settled": context.watermark()}
    finally:
        _acting.release()


def _abort_own(context: RunContext, found: InDoubt, *, who: str, at: datetime, because: str) -> None:
    """Recorded first. After a crash in between the transaction is still listed: it is aborted by giving it again."""
    record_abort(context, [found], by=who, at=at, because=because)
    abort_by_hand(context, found.transaction)


def _found(view: JobView, action: Action, transaction: str) -> tuple[RunContext, InDoubt, bool]:
    access = view.place.access
    if access is None:
        raise ConfigurationError(_why_not(access, read_only=False), hint="onceward dashboard FILE:JOB")
    if action == "commit" and not isinstance(view.live(), NoDriver):
        raise ConfigurationError(
            "a driver runs on this checkpoint, and publishes by itself", hint="stop it first, if it should not"
        )
    context = access.context()
    listed: Sequence[tuple[InDoubt, bool]] = [
        *((one, False) for one in in_doubt(context)),
        *((one, True) for one in strays(context)),
    ]
    for one, is_stray in listed:
        if one.transaction == transaction:
            if action not in _allowed(_line(one, stray=is_stray), is_stopped=True):
                raise ConfigurationError(
                    f"{transaction} must not be {'committed' if action == 'commit' else 'aborted'}: {one.why}",
                    hint="its verdict is " + one.verdict.value,
                    epoch=one.epoch,
                    sink=one.sink,
                )
            return context, one, is_stray
    raise ConfigurationError(
        f"no target of this job holds a transaction {transaction!r}", hint="it may have ended meanwhile: look again"
    )


def rejected(view: JobView) -> dict[str, Any]:
    """The rows of the first unpublished epoch that a target does not take. Asks the target, and changes nothing."""
    access = view.place.access
    if access is None:
        raise ConfigurationError(
            "only a job's file knows its targets", hint="start the dashboard with FILE:JOB, or see onceward poison show"
        )
    rows = find_poison(access.context())
    values = [{name: str(value)[:200] for name, value in row.values.items()} for row in rows[:_SHOWN]]
    shown = [{**asdict(row), "values": found} for row, found in zip(rows, values, strict=False)]
    return {"rows": shown, "more": max(0, len(rows) - _SHOWN), "file": access.file}
