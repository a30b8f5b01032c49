"""What happens to an epoch, told as it happens: by these the history, the metrics and the logs know of it.

Listeners are told after the fact, on the driver, in the thread in which it happened; what they raise changes nothing.
Nothing of the protocol rests on them: they may miss events, as when a process is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from onceward.identity import SinkName


@dataclass(frozen=True, slots=True)
class Begun:
    """The driver begins to stage the epoch, whose barrier is of `barrier_at`."""

    epoch: int
    at: datetime
    barrier_at: datetime
    takeover: int
    guarantee: str


@dataclass(frozen=True, slots=True)
class StagedSlot:
    """One slot: its rows, the bytes they took in memory, and when its task acknowledged, by the clock of its host."""

    slot: int
    rows: int
    bytes: int
    host: str
    acked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """All slots have acknowledged."""

    epoch: int
    at: datetime
    slots: tuple[StagedSlot, ...]


@dataclass(frozen=True, slots=True)
class PreCommitted:
    """The manifest is durable; Spark may decide."""

    epoch: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Decided:
    """The publisher has seen the decision."""

    epoch: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Retried:
    """A delivery has failed and will be repeated."""

    epoch: int
    at: datetime
    sink: SinkName
    why: str


@dataclass(frozen=True, slots=True)
class Delivered:
    """One sink has the epoch. `began_at` is when it was first tried."""

    epoch: int
    at: datetime
    sink: SinkName
    began_at: datetime
    slots: int
    rows: int


@dataclass(frozen=True, slots=True)
class Settled:
    """Every sink has the epoch, and what was staged for it is gone."""

    epoch: int
    at: datetime
    rows: Mapping[SinkName, int]


@dataclass(frozen=True, slots=True)
class Failed:
    """The epoch was not decided: it failed while it was being staged, and was aborted."""

    epoch: int
    at: datetime
    error: str
    why: str


@dataclass(frozen=True, slots=True)
class StateSize:
    """One stateful operator, in the order in which Spark reports them."""

    name: str
    rows: int
    bytes: int
    commit_ms: int = 0


@dataclass(frozen=True, slots=True)
class EngineReported:
    """What Spark says of an epoch once it is through: how long each of its own steps took, in milliseconds, the rows it
    read, where it ends in its sources, and the size of its state."""

    epoch: int
    at: datetime
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    input_rows: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    state: tuple[StateSize, ...] = ()


Event = Begun | Staged | PreCommitted | Decided | Retried | Delivered | Settled | Failed | EngineReported
Listener = Callable[[Event], None]
