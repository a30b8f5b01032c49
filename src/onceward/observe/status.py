"""A checkpoint at a glance: each epoch's place between barrier and settled, each sink's guarantee."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from onceward.errors import ConfigurationError, DamagedFile
from onceward.identity import SinkName
from onceward.journal import EpochFiles, IdentityFile, Manifest, Register, Resolutions, SettledLog
from onceward.journal.resolutions import describe
from onceward.observe.state import EpochState
from onceward.sources.positions import positions, shown
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage

if TYPE_CHECKING:
    from onceward.admin import InDoubt
    from onceward.api import Driver

SHOWN = 20
"""So many of the settled epochs are shown, the newest."""

T = TypeVar("T")
State = Literal["planned", "staged", "decided", "settled", "lost"]


@dataclass(frozen=True, slots=True)
class EpochStatus:
    """One epoch. `rows` counts what each sink got or will get; `offsets` is where it ends in Kafka, if it reads it."""

    epoch: int
    state: State
    planned_at: datetime | None
    settled_at: datetime | None
    takeovers: int
    rows: dict[SinkName, int]
    offsets: str = ""


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """One sink, as its newest epoch shows it. `pending_rows` wait for a decision or for their publication.

    `in_doubt` transactions wait in its target, the oldest for `oldest_in_doubt_s`; None where nobody has asked it.
    """

    name: SinkName
    mechanism: str
    guarantee: str | None
    pending_epochs: int
    pending_rows: int
    in_doubt: int | None = None
    oldest_in_doubt_s: float | None = None


@dataclass(frozen=True, slots=True)
class ResolutionStatus:
    """What a person said, who and when and why."""

    number: int
    what: str
    epoch: int | None
    by: str
    at: datetime
    because: str
    withdrawn: bool


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """What the running driver says of itself, through its API."""

    run: str
    pid: int
    host: str
    active: bool
    stopping: bool
    unpublished: int
    limit: int
    error: str | None = None
    outage: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """Everything about one checkpoint. `state` is that of one epoch, and None where nobody has asked for it; `driver`
    is what the driver that runs on it says, and None where none answers."""

    checkpoint: str
    job: str
    generation: str
    planned: int
    decided: int
    settled: int
    epochs: tuple[EpochStatus, ...]
    sinks: tuple[SinkStatus, ...]
    state: EpochState | None = None
    resolutions: tuple[ResolutionStatus, ...] = ()
    driver: DriverStatus | None = None


def read_status(checkpoint: Path) -> CheckpointStatus:
    """Read it all; may be called while the job runs."""
    storage = LocalStorage(checkpoint / "onceward")
    record = IdentityFile(storage).read()
    if record is None:
        raise ConfigurationError(
            f"{checkpoint} is not a checkpoint of an onceward job",
            hint="give the directory that the job has as `checkpoint`; it holds a folder named onceward",
        )
    logs, register, settled = SparkLogs(checkpoint), Register(storage), SettledLog(storage)
    decided, planned = logs.decided(), logs.planned()
    watermark = max(record.adopted, settled.watermark())
    files = register.epochs()
    unsettled = range(watermark + 1, max([planned, decided, *files], default=-1) + 1)
    epochs = [_settled_epoch(settled, logs, epoch) for epoch in settled.epochs()[-SHOWN:] if epoch <= watermark]
    epochs += [_open_epoch(register, logs, epoch, files.get(epoch, EpochFiles()), decided) for epoch in unsettled]
    return CheckpointStatus(
        checkpoint=str(checkpoint),
        job=record.job,
        generation=record.generation,
        planned=planned,
        decided=decided,
        settled=watermark,
        epochs=tuple(epochs),
        sinks=_sinks(settled, register, epochs),
        resolutions=_resolutions(storage),
    )


def _resolutions(storage: LocalStorage) -> tuple[ResolutionStatus, ...]:
    found = Resolutions(storage).history()
    gone = {one.withdraws for one in found}
    return tuple(
        ResolutionStatus(one.number, describe(one), one.epoch, one.by, one.at, one.because, one.number in gone)
        for one in found
    )


def with_in_doubt(status: CheckpointStatus, found: Sequence[InDoubt]) -> CheckpointStatus:
    """The same, with what the targets were found to hold."""
    sinks = []
    for sink in status.sinks:
        mine = [one for one in found if one.sink == sink.name]
        ages = [one.age_s for one in mine if one.age_s is not None]
        sinks.append(replace(sink, in_doubt=len(mine), oldest_in_doubt_s=max(ages, default=None)))
    return replace(status, sinks=tuple(sinks))


def with_driver(status: CheckpointStatus, driver: Driver) -> CheckpointStatus:
    """The same, with what its driver knows: how it is, and what the publisher last saw in the targets."""
    said, publishing = driver.get("/v1/status"), driver.get("/v1/publish")
    counts = {one["sink"]: one for one in said["in_doubt"] if one["looked_at"] is not None}
    sinks = tuple(
        replace(sink, in_doubt=one["transactions"], oldest_in_doubt_s=one["oldest_s"])
        if (one := counts.get(sink.name)) is not None
        else sink
        for sink in status.sinks
    )
    names = ("run", "pid", "host", "active", "stopping", "error", "outage")
    found = DriverStatus(
        **{name: said[name] for name in names}, unpublished=publishing["unpublished"], limit=publishing["limit"]
    )
    return replace(status, sinks=sinks, driver=found)


def _readable(read: Callable[[], T | None]) -> T | None:
    """What is there, or None: a damaged file is for the next start to refuse, if it needs it."""
    try:
        return read()
    except DamagedFile:
        return None


def _manifest(register: Register, epoch: int) -> Manifest | None:
    return _readable(lambda: register.valid_manifest(epoch))


def _settled_epoch(settled: SettledLog, logs: SparkLogs, epoch: int) -> EpochStatus:
    marker = _readable(partial(settled.marker, epoch))
    barrier = logs.barrier(epoch)
    return EpochStatus(
        epoch=epoch,
        state="settled",
        planned_at=barrier.timestamp if barrier else None,
        settled_at=marker.settled_at if marker else None,
        takeovers=0,
        rows={name: total.rows for name, total in marker.sinks.items()} if marker else {},
        offsets=shown(positions(logs.root, epoch)),
    )


def _open_epoch(register: Register, logs: SparkLogs, epoch: int, files: EpochFiles, decided: int) -> EpochStatus:
    manifest = _manifest(register, epoch)
    barrier = logs.barrier(epoch)
    state: State
    if epoch <= decided:
        state = "decided" if manifest is not None or logs.is_engine_made(epoch) else "lost"
    else:
        state = "staged" if manifest is not None else "planned"
    return EpochStatus(
        epoch=epoch,
        state=state,
        planned_at=barrier.timestamp if barrier else None,
        settled_at=None,
        takeovers=files.highest,
        rows={name: entry.rows for name, entry in manifest.sinks.items()} if manifest else {},
        offsets=shown(positions(logs.root, epoch)),
    )


def _sinks(settled: SettledLog, register: Register, epochs: list[EpochStatus]) -> tuple[SinkStatus, ...]:
    """The sinks of the newest settled epoch, and those that unsettled epochs name."""
    mechanism: dict[SinkName, tuple[str, str | None]] = {}
    newest = _readable(partial(settled.marker, settled.watermark()))
    if newest is not None:
        mechanism |= {name: (total.mechanism, total.guarantee) for name, total in newest.sinks.items()}
    waiting = [epoch for epoch in epochs if epoch.state in ("staged", "decided")]
    for epoch in waiting:
        manifest = _manifest(register, epoch.epoch)
        for name, entry in manifest.sinks.items() if manifest else ():
            mechanism.setdefault(name, (entry.mechanism, None))
    return tuple(
        SinkStatus(
            name=name,
            mechanism=by,
            guarantee=guarantee,
            pending_epochs=sum(1 for epoch in waiting if epoch.rows.get(name)),
            pending_rows=sum(epoch.rows.get(name, 0) for epoch in waiting),
        )
        for name, (by, guarantee) in sorted(mechanism.items())
    )
