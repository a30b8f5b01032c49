"""The dashboard's own endpoints and its page. All answers are plain JSON, the same for a running job and a stopped one.

The functions run in threads of the server; nothing here is asked of a driver that its own API does not give.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, FastAPI, HTTPException, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from onceward.api.app import answer_errors
from onceward.clock import SystemClock
from onceward.dashboard import hand, tables
from onceward.dashboard.config import DashboardConfig
from onceward.dashboard.detail import epoch_detail, job_detail, settings
from onceward.dashboard.gate import Gate
from onceward.dashboard.past import lives
from onceward.dashboard.places import Places
from onceward.dashboard.reader import StateReader
from onceward.dashboard.saving import Saving
from onceward.dashboard.state import MOST_ROWS, entries, state
from onceward.dashboard.stream import Stream
from onceward.dashboard.view import JobView, Views
from onceward.verify import verify
from onceward.version import __version__

STATIC: Final = FilePath(__file__).parent / "static"
_MOST: Final = 2**53
router = APIRouter(prefix="/api")

JobId = Annotated[str, Path(pattern="[0-9a-f]{10}")]
EpochNumber = Annotated[int, Path(ge=0, le=_MOST)]
Number = Annotated[int | None, Query(ge=0, le=_MOST)]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the endpoints stand on. `actor` is who acts, where the page does not say more."""

    places: Places
    views: Views
    config: DashboardConfig
    actor: str
    stream: Stream
    gate: Callable[[], Gate]
    reader: StateReader
    _saving: dict[str, Saving] = field(default_factory=dict)

    def overview(self) -> list[dict[str, Any]]:
        """A line for each job."""
        return [view.glance() for view in self.views.of(self.places.all())]

    def view(self, job: str) -> JobView:
        """Of one job."""
        place = self.places.get(job)
        if place is None:
            raise HTTPException(
                404, "there is no such job here: it was removed, or the address is of another dashboard"
            )
        return self.views.one(place)

    def saving(self, job: str) -> Saving:
        """Savepoints of one job."""
        view = self.view(job)
        found = self._saving.get(job)
        if found is None or not found.is_of(view):
            found = self._saving[job] = Saving(view, self.places.savepoints)
        return found


class Wanted(BaseModel):
    """What to do with which transaction."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["commit", "abort"]
    transaction: str = Field(min_length=1, max_length=500)


class Signed(Wanted):
    """The same, with who and why."""

    because: str = Field("", max_length=2000)
    who: str = Field("", max_length=200)


class Folder(BaseModel):
    """Where a savepoint goes, on the driver's host."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(min_length=1, max_length=1000)


class Login(BaseModel):
    """The token, from the form of who has no cookie yet."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(max_length=500)


def dashboard_app(
    places: Places,
    config: DashboardConfig,
    token: str,
    *,
    actor: str,
    base: str = "",
    reader: StateReader | None = None,
) -> Gate:
    """What the server runs. `base` is where it stands beside other applications of one server."""
    app = FastAPI(
        title="onceward dashboard",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    views = Views()
    # Inside a driver every look is paid for by the job.
    stream = Stream(lambda: [view.glance() for view in views.of(places.all())], every_s=2.0 if base else 1.0)
    gate = Gate(app, config, token, base=base, on_close=stream.close)
    app.state.shown = Shown(places, views, config, actor, stream, lambda: gate, reader or StateReader())
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_api_route("/", page, methods=["GET", "HEAD"], include_in_schema=False)
    answer_errors(app)
    return gate


def page() -> FileResponse:
    """The page. It has nothing of a job in it."""
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


def _shown(request: Request) -> Shown:
    found: Shown = request.app.state.shown
    return found


def _answer(document: object) -> Response:
    return Response(json.dumps(document, ensure_ascii=False, allow_nan=False), media_type="application/json")


@router.post("/login")
def login(request: Request, wanted: Login) -> Response:
    """Give the cookie for the token."""
    return _shown(request).gate().login(request.scope, wanted.token)


@router.get("/about")
def about(request: Request) -> Response:
    """What the page must know before anything else."""
    shown = _shown(request)
    read_only = shown.config.read_only
    return _answer({"version": __version__, "read_only": read_only, "one": shown.places.is_one, "actor": shown.actor})


@router.get("/jobs")
def jobs(request: Request) -> Response:
    """The overview."""
    return _answer({"now": time.time(), "jobs": _shown(request).overview()})


@router.get("/events")
async def events(request: Request) -> StreamingResponse:
    """The overview as it changes, as server-sent events."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_shown(request).stream.events(), media_type="text/event-stream", headers=headers)


@router.get("/jobs/{job}")
def job(request: Request, job: JobId) -> Response:
    """One job, with the way of its data."""
    return _answer(job_detail(_shown(request).view(job)))


@router.get("/jobs/{job}/epochs")
def epochs(
    request: Request,
    job: JobId,
    offset: Annotated[int, Query(ge=0, le=_MOST)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    outcome: Annotated[Literal["settled", "failed", "open"] | None, Query()] = None,
    first: Number = None,
    last: Number = None,
    since: Annotated[float | None, Query(ge=0, le=1e12)] = None,
    until: Annotated[float | None, Query(ge=0, le=1e12)] = None,
    unusual: bool = False,
) -> Response:
    """A page of the table, the newest first."""
    view = _shown(request).view(job)
    search = tables.Search(outcome, first, last, since, until, unusual)
    found = tables.page(view.rows(), search, offset=offset, limit=limit)
    return _answer({**found, "complete": view.index.is_complete})


@router.get("/jobs/{job}/timeline")
def timeline(
    request: Request,
    job: JobId,
    first: Number = None,
    last: Number = None,
    bars: Annotated[int, Query(ge=10, le=1000)] = tables.BARS,
    newest: Annotated[int | None, Query(ge=1, le=_MOST)] = None,
) -> Response:
    """The phases of these epochs, as many bars as asked for at most; `newest`: of so many of the newest epochs."""
    view = _shown(request).view(job)
    rows = view.rows()
    if newest is not None and rows:
        first = max(0, rows[-1].epoch - newest + 1)
    return _answer({**tables.timeline(rows, first, last, bars=bars), "complete": view.index.is_complete})


@router.get("/jobs/{job}/epochs/{epoch}")
def epoch(request: Request, job: JobId, epoch: EpochNumber) -> Response:
    """All that is known of one epoch."""
    found = epoch_detail(_shown(request).view(job), epoch)
    if found is None:
        raise HTTPException(404, f"nothing is known of epoch {epoch}: it is to come, or was forgotten (keep_history)")
    return _answer(found)


@router.get("/jobs/{job}/summary")
def summary(request: Request, job: JobId) -> Response:
    """Totals and percentiles over all that is kept."""
    view = _shown(request).view(job)
    return _answer({**tables.summary(view.rows()), "complete": view.index.is_complete})


@router.get("/jobs/{job}/settings")
def configuration(request: Request, job: JobId) -> Response:
    """What the job was asked for."""
    return _answer(settings(_shown(request).view(job)))


@router.get("/jobs/{job}/lives")
def past(request: Request, job: JobId) -> Response:
    """Restarts, drivers, operator actions, and what the next start does."""
    return _answer(lives(_shown(request).view(job)))


@router.get("/jobs/{job}/transactions")
def transactions(request: Request, job: JobId) -> Response:
    """What waits in the targets, asked now."""
    shown = _shown(request)
    return _answer(hand.transactions(shown.view(job), read_only=shown.config.read_only))


@router.post("/jobs/{job}/transactions/propose")
def propose(request: Request, job: JobId, wanted: Wanted) -> Response:
    """What would happen."""
    return _answer(hand.propose(_shown(request).view(job), wanted.action, wanted.transaction))


@router.post("/jobs/{job}/transactions/act")
def act(request: Request, job: JobId, wanted: Signed) -> Response:
    """Do it."""
    shown = _shown(request)
    who = f"{wanted.who.strip()} ({shown.actor}, dashboard)" if wanted.who.strip() else f"{shown.actor} (dashboard)"
    return _answer(hand.act(shown.view(job), wanted.action, wanted.transaction, who=who, because=wanted.because))


@router.get("/jobs/{job}/rejected")
def rejected(request: Request, job: JobId) -> Response:
    """The rows that a target does not take."""
    return _answer(hand.rejected(_shown(request).view(job)))


@router.get("/jobs/{job}/savepoints")
def savepoints(request: Request, job: JobId) -> Response:
    """Those that lie there, and those that are being taken."""
    shown = _shown(request)
    return _answer(shown.saving(job).shown(read_only=shown.config.read_only))


@router.post("/jobs/{job}/savepoints")
def take(request: Request, job: JobId, wanted: Folder) -> Response:
    """Begin to take one, beside the running job or from its files."""
    return _answer(_shown(request).saving(job).take(wanted.folder))


@router.get("/jobs/{job}/state")
def operators(request: Request, job: JobId) -> Response:
    """The operators that keep state, by name, and the epochs at whose end it can be looked at."""
    return _answer(state(_shown(request).view(job), _shown(request).reader))


@router.get("/jobs/{job}/state/entries")
def state_entries(
    request: Request,
    job: JobId,
    operator: Annotated[int, Query(ge=0, le=_MOST)],
    part: Annotated[str, Query(max_length=200)] = "",
    epoch: Number = None,
    key: Annotated[list[Annotated[str, Query(max_length=1000)]], Query(max_length=20)] = [],  # noqa: B006
    rows: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
) -> Response:
    """Keys and values, or how far their reading is: to be asked for again until it is done."""
    shown = _shown(request)
    found = entries(
        shown.view(job), shown.reader, operator=operator, part=part, epoch=epoch, keys=tuple(key), rows=rows
    )
    return _answer(found)


@router.get("/jobs/{job}/verify")
def verified(request: Request, job: JobId, quick: bool = True) -> Response:
    """Is the checkpoint whole? Reads it, and changes nothing."""
    view = _shown(request).view(job)
    report = verify(view.place.checkpoint, clock=SystemClock(), quick=quick)
    findings = [{**asdict(one), "severity": one.severity.value} for one in report.findings]
    return _answer({"resumable": report.is_resumable, "verdict": report.verdict, "quick": quick, "findings": findings})
