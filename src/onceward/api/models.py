"""What the API answers, as types: OpenAPI is made of them. An epoch that does not exist is -1, as everywhere."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LevelName = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


class Answer(BaseModel):
    """Made from our own values by their attributes."""

    model_config = ConfigDict(from_attributes=True)


class Problem(Answer):
    """Why a request was refused, and what to do about it."""

    error: str
    message: str
    hint: str | None = None


class Alive(Answer):
    """The liveness probe: the process answers. It says nothing else, for it asks for no token."""

    alive: bool = True


class Sink(Answer):
    """One sink of the job."""

    name: str
    guarantee: str
    mechanism: str


class InDoubtCount(Answer):
    """The transactions of one sink that wait in its target, as the publisher last saw it, which may be never."""

    sink: str
    transactions: int
    oldest_s: float | None
    looked_at: datetime | None


class Outage(Answer):
    """A delivery that fails and is being repeated."""

    sink: str
    epoch: int
    why: str
    next_try: datetime


class Status(Answer):
    """The run and its job."""

    name: str
    active: bool
    planned: int
    decided: int
    settled: int
    in_doubt: list[InDoubtCount]
    error: str | None
    outage: Outage | None
    stopping: bool = Field(description="it was asked to stop, and ends after the running epoch")
    removes_checkpoint: bool = Field(description="after a clean end its checkpoint is removed")
    checkpoint: str
    generation: str
    run: str
    guarantee: str
    sinks: list[Sink]
    started_at: datetime
    pid: int
    host: str
    version: str


class Slot(Answer):
    """One slot of an epoch."""

    slot: int
    rows: int
    bytes: int
    host: str
    acked_at: datetime | None


class SinkRecord(Answer):
    """What one sink got of an epoch."""

    rows: int
    slots: int
    began_at: datetime | None
    delivered_at: datetime | None
    retries: int
    failure: str


class StateSize(Answer):
    """One stateful operator at the end of an epoch."""

    name: str
    rows: int
    bytes: int
    commit_ms: int


class Attempt(Answer):
    """One attempt at one epoch: open while it is in flight. `phases` are seconds."""

    epoch: int
    run: str
    outcome: Literal["open", "failed", "settled"]
    takeover: int
    guarantee: str
    times: dict[str, datetime]
    duration_s: float | None
    phases: dict[str, float]
    rows: int
    bytes: int
    input_rows: int
    slot_count: int
    sinks: dict[str, SinkRecord]
    sources: dict[str, str]
    state: list[StateSize]
    error: str
    why: str


class AttemptWithSlots(Attempt):
    """The same with its slots (of very many only the first) and what each step of Spark's own took."""

    slots: list[Slot]
    engine_ms: dict[str, int]


class Epochs(Answer):
    """A page, the newest epoch first. `next_before` is `before` of the next page, null on the last one."""

    epochs: list[Attempt]
    next_before: int | None


class Epoch(Answer):
    """All attempts at one epoch, in their order."""

    epoch: int
    attempts: list[AttemptWithSlots]


class Distribution(Answer):
    """Percentiles by nearest rank."""

    count: int
    min: float
    mean: float
    max: float
    p50: float
    p90: float
    p99: float


class Summary(Answer):
    """Totals and percentiles over the newest epochs: of the duration, of each phase, of rows, bytes and state."""

    epochs: int
    settled: int
    failed: int
    rows: int
    bytes: int
    retries: int
    distributions: dict[str, Distribution]


class Transaction(Answer):
    """One transaction that a target holds, and what becomes of it."""

    sink: str
    transaction: str
    epoch: int
    slot: int
    since: datetime | None
    age_s: float | None
    verdict: Literal["commit", "abort", "wait", "ask"]
    why: str
    generation: str


class Transactions(Answer):
    """`sinks` is the publisher's last look. `transactions` is what the targets say now: null without `fresh`."""

    sinks: list[InDoubtCount]
    transactions: list[Transaction] | None


class Publishing(Answer):
    """Decided epochs that wait, and why. `held_back`: staging waits until fewer are unpublished."""

    decided: int
    settled: int
    unpublished: int
    limit: int
    held_back: bool
    outage: Outage | None


class SavepointWanted(Answer):
    """Where a savepoint is to be taken: in a folder as the driver sees it."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(
        max_length=4096, pattern=r"^/[^\x00]*$", description="an absolute path; a directory is made in it"
    )


class SavepointTask(Answer):
    """A savepoint that was asked for. `path`, `savepoint` (its own id) and `epoch` are there once it is done."""

    id: str
    state: Literal["running", "done", "failed"]
    folder: str
    began_at: datetime
    ended_at: datetime | None
    bytes_done: int
    bytes_total: int = Field(description="0 while it is not known yet")
    bytes_per_s: float
    path: str | None
    savepoint: str | None
    epoch: int | None
    error: Problem | None


class SavepointTasks(Answer):
    """Those of this run, the newest first."""

    savepoints: list[SavepointTask]


class Stopping(Answer):
    """It was asked to stop; `onceward stop` waits until it has ended."""

    stopping: bool = True


class LogLevel(Answer):
    """Of onceward's own logger."""

    model_config = ConfigDict(extra="forbid")

    level: LevelName
