"""The endpoints. Each looks at values that are there, or at files; none waits for an epoch, and none holds one up.

They are plain functions, so that each runs in a thread of the server's small pool and may block there.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path as FolderPath
from typing import Annotated, Any, Final, Literal, cast

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from onceward.api import models
from onceward.api.served import Busy, Served
from onceward.epoch import RunStatus
from onceward.errors import ConfigurationError, OncewardError
from onceward.history import EpochRecord, duration_s, phases, summary
from onceward.metrics.exposition import CONTENT_TYPE
from onceward.version import __version__

log = logging.getLogger("onceward")
_MOST_EPOCHS: Final = 2**53
_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"model": models.Problem, "description": "Without the token"},
    403: {"model": models.Problem, "description": "Called by a foreign name, or from the page of another site"},
    422: {"model": models.Problem, "description": "A parameter or the body is wrong"},
    503: {"model": models.Problem, "description": "The checkpoint's storage or a target does not answer"},
}
_UNFIT_BODIES: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": models.Problem, "description": "The body is no JSON"},
    411: {"model": models.Problem, "description": "The body has no length"},
    413: {"model": models.Problem, "description": "The body is too large"},
    415: {"model": models.Problem, "description": "The body is said to be something else than JSON"},
}
EpochNumber = Annotated[int, Path(ge=0, le=_MOST_EPOCHS, description="the number of an epoch")]

probe = APIRouter()
v1 = APIRouter(prefix="/v1", responses=_REFUSALS)
metrics = APIRouter(responses=_REFUSALS)


def _served(request: Request) -> Served:
    return cast(Served, request.app.state.served)


@probe.get("/alive", tags=["probe"], openapi_extra={"security": []})
def alive() -> models.Alive:
    """Whether the process answers. The only request that needs no token."""
    return models.Alive()


@v1.get("/status", tags=["run"])
def status(request: Request) -> models.Status:
    """The run, its job and its sinks."""
    served = _served(request)
    context, now = served.context, served.run.status()
    return models.Status(
        name=now.name,
        active=now.active,
        planned=now.planned,
        decided=now.decided,
        settled=now.settled,
        in_doubt=_in_doubt(now),
        error=now.error,
        outage=_outage(now),
        stopping=served.run.is_stopping,
        removes_checkpoint=served.removes_checkpoint,
        checkpoint=served.checkpoint,
        generation=context.job.generation,
        run=context.run,
        guarantee=context.guarantee.value,
        sinks=[
            models.Sink(name=sink.name, guarantee=sink.guarantee.value, mechanism=sink.mechanism)
            for sink in context.sinks
        ],
        started_at=served.started_at,
        pid=os.getpid(),
        host=socket.gethostname(),
        version=__version__,
    )


@v1.get("/epochs", tags=["epochs"])
def epochs(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=500, description="so many epochs")] = 50,
    before: Annotated[int | None, Query(ge=0, le=_MOST_EPOCHS, description="only epochs below this one")] = None,
) -> models.Epochs:
    """What became of each epoch, the newest first, those in flight among them."""
    found = _served(request).newest(limit, below=before)
    lowest = min((one.epoch for one in found), default=0)
    is_last = len({one.epoch for one in found}) < limit or lowest == 0
    return models.Epochs(
        epochs=[models.Attempt(**_attempt(one)) for one in found], next_before=None if is_last else lowest
    )


@v1.get("/epochs/{epoch}", tags=["epochs"], responses={404: {"model": models.Problem}})
def epoch(request: Request, epoch: EpochNumber) -> models.Epoch:
    """One epoch: every attempt at it, with phases, slots, and what each sink got."""
    found = _served(request).attempts(epoch)
    if not found:
        raise HTTPException(404, f"nothing is known of epoch {epoch}: it is to come, or was forgotten (keep_history)")
    attempts = [
        models.AttemptWithSlots(
            **_attempt(one),
            slots=[models.Slot.model_validate(slot) for slot in one.slots],
            engine_ms=dict(one.engine_ms),
        )
        for one in found
    ]
    return models.Epoch(epoch=epoch, attempts=attempts)


@v1.get("/summary", tags=["epochs"])
def summarised(
    request: Request, epochs: Annotated[int, Query(ge=1, le=5000, description="over so many epochs")] = 1000
) -> models.Summary:
    """Totals and percentiles over the newest epochs."""
    return models.Summary.model_validate(summary(_served(request).newest(epochs)))


@v1.get("/transactions", tags=["targets"], responses={429: {"model": models.Problem}})
def transactions(
    request: Request,
    fresh: Annotated[bool, Query(description="ask the targets now; else the publisher's last look")] = False,
) -> models.Transactions:
    """What waits in the targets of two-phase sinks."""
    served = _served(request)
    listed = None
    if fresh:
        try:
            listed = [
                models.Transaction(
                    sink=one.sink,
                    transaction=one.transaction,
                    epoch=one.epoch,
                    slot=one.slot,
                    since=one.since,
                    age_s=one.age_s,
                    verdict=one.verdict.value,
                    why=one.why,
                    generation=one.generation,
                )
                for one in served.look_at_targets()
            ]
        except Busy:
            raise HTTPException(429, "the targets are being asked already", headers={"Retry-After": "5"}) from None
        except OncewardError:
            raise
        except Exception as error:
            raise HTTPException(503, f"a target does not answer: {type(error).__name__}: {error}") from error
    return models.Transactions(sinks=_in_doubt(served.run.status()), transactions=listed)


@v1.get("/publish", tags=["run"])
def publishing(request: Request) -> models.Publishing:
    """How many decided epochs wait, against the limit; and the outage, if there is one."""
    served = _served(request)
    now = served.run.status()
    return models.Publishing(
        decided=now.decided,
        settled=now.settled,
        unpublished=now.unpublished,
        limit=served.max_unpublished,
        held_back=now.planned - 1 - now.settled > served.max_unpublished,
        outage=_outage(now),
    )


@v1.post(
    "/savepoints",
    tags=["savepoints"],
    status_code=202,
    responses={**_UNFIT_BODIES, 409: {"model": models.Problem, "description": "One is being taken already"}},
)
def take_savepoint(request: Request, wanted: models.SavepointWanted) -> models.SavepointTask:
    """Begin to take a savepoint beside the running job. Answers at once; ask for it by its id until it is done."""
    try:
        return models.SavepointTask.model_validate(_served(request).savepoints.begin(FolderPath(wanted.folder)))
    except Busy:
        raise HTTPException(409, "a savepoint is being taken already", headers={"Retry-After": "5"}) from None
    except ConfigurationError as error:
        raise HTTPException(422, f"{error.message}: {error.hint}") from error


@v1.get("/savepoints", tags=["savepoints"])
def savepoints(request: Request) -> models.SavepointTasks:
    """The savepoints that this run was asked for, the newest first."""
    found = _served(request).savepoints.all()
    return models.SavepointTasks(savepoints=[models.SavepointTask.model_validate(one) for one in found])


@v1.get("/savepoints/{id}", tags=["savepoints"], responses={404: {"model": models.Problem}})
def savepoint(
    request: Request, id: Annotated[str, Path(max_length=64, description="as it was answered")]
) -> models.SavepointTask:
    """How far it is."""
    found = _served(request).savepoints.get(id)
    if found is None:
        raise HTTPException(404, "this run was asked for no savepoint of that id")
    return models.SavepointTask.model_validate(found)


@v1.post("/stop", tags=["run"], status_code=202)
def stop(request: Request) -> models.Stopping:
    """Ask the run to stop between two epochs. Answers at once; the run then ends as by SIGTERM."""
    log.info("asked to stop through the API")
    _served(request).run.request_stop()
    return models.Stopping()


@v1.get("/log-level", tags=["logs"])
def log_level() -> models.LogLevel:
    """From which level on onceward logs."""
    return models.LogLevel(level=_level())


@v1.put("/log-level", tags=["logs"], responses=_UNFIT_BODIES)
def set_log_level(wanted: models.LogLevel) -> models.LogLevel:
    """Set it, for this process. DEBUG has a line for every step of every epoch."""
    before = _level()
    log.setLevel(wanted.level)
    if wanted.level != before:
        log.info("the log level is now %s; it was %s", wanted.level, before)
    return models.LogLevel(level=_level())


@metrics.get("/metrics", tags=["metrics"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def prometheus(request: Request) -> Response:
    """The metrics in Prometheus' text format."""
    return Response(_served(request).metrics(), headers={"Content-Type": CONTENT_TYPE})


def _level() -> models.LevelName:
    """The nearest of the four that lets as much through."""
    number = log.getEffectiveLevel()
    known: tuple[tuple[int, Literal["DEBUG", "INFO", "WARNING"]], ...] = (
        (logging.DEBUG, "DEBUG"),
        (logging.INFO, "INFO"),
        (logging.WARNING, "WARNING"),
    )
    return next((name for least, name in known if number <= least), "ERROR")


def _in_doubt(now: RunStatus) -> list[models.InDoubtCount]:
    return [models.InDoubtCount.model_validate(one) for one in now.in_doubt]


def _outage(now: RunStatus) -> models.Outage | None:
    return None if now.outage is None else models.Outage.model_validate(now.outage)


def _attempt(record: EpochRecord) -> dict[str, Any]:
    return {
        "epoch": record.epoch,
        "run": record.run,
        "outcome": record.outcome,
        "takeover": record.takeover,
        "guarantee": record.guarantee,
        "times": dict(record.times),
        "duration_s": duration_s(record),
        "phases": phases(record),
        "rows": record.rows,
        "bytes": record.bytes,
        "input_rows": record.input_rows,
        "slot_count": record.slot_count,
        "sinks": {name: models.SinkRecord.model_validate(sink) for name, sink in record.sinks.items()},
        "sources": dict(record.sources),
        "state": [models.StateSize.model_validate(size) for size in record.state],
        "error": record.error,
        "why": record.why,
    }
