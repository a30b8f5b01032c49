"""How a job makes its checkpoints, as users write it: checked at once, and nothing is looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from onceward.durations import in_seconds, text_in_seconds
from onceward.errors import ConfigurationError

OnStop = Literal["retain", "delete"]
StateBackend = Literal["rocksdb", "memory"]

PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS: Final = "spark.sql.shuffle.partitions"
RETAINED: Final = "spark.sql.streaming.minBatchesToRetain"
_STATE: Final = "org.apache.spark.sql.execution.streaming.state"
BACKENDS: Final[Mapping[str, str]] = {
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
    "memory": f"{_STATE}.HDFSBackedStateStoreProvider",
}
ON_STOP: Final = ("retain", "delete")
_SHORTEST_S: Final = 0.001


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How a job makes its checkpoints: how often, how patiently, and in what its state is kept.

    Times are texts such as "10 seconds", or numbers of seconds. `interval` is how often an epoch begins, the same as
    the job's trigger. An epoch that takes longer than `timeout` is aborted; None: it may. `min_pause` is the least time
    between the end of one epoch and the beginning of staging the next. `tolerable_failures` is how many times in a row
    staging may fail without ending the job: the epoch is aborted and staged again. It is for queries without state.

    `retained` is how many epochs Spark keeps in its logs and its state; None leaves it at Spark's setting. `on_stop`
    "delete" removes the checkpoint after a clean end: the next start is then a fresh one, and must be accepted as such.

    `state_backend` is "rocksdb" or "memory", and `state_partitions` in how many partitions the state is kept. Both are
    fixed by the first start. With `incremental`, RocksDB's checkpoints hold what has changed; without it, all of it.
    None leaves what the session says; where it says nothing either, new state goes into RocksDB, incrementally.
    """

    interval: str | float | None = None
    timeout: str | float | None = None
    min_pause: str | float | None = None
    tolerable_failures: int = 0
    retained: int | None = None
    on_stop: OnStop = "retain"
    state_backend: StateBackend | None = None
    incremental: bool = True
    state_partitions: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is of the wrong kind."""
        for name in ("interval", "timeout", "min_pause"):
            _seconds(name, getattr(self, name))
        _at_least("tolerable_failures", self.tolerable_failures, 0)
        _at_least("retained", self.retained, 2)
        _at_least("state_partitions", self.state_partitions, 1)
        _one_of("on_stop", self.on_stop, ON_STOP)
        if self.state_backend is not None:
            _one_of("state_backend", self.state_backend, tuple(BACKENDS))
        if not isinstance(self.incremental, bool):
            raise ConfigurationError(f"incremental is {self.incremental!r}", hint="it is True or False")
        if not self.incremental and self.state_backend == "memory":
            raise ConfigurationError(
                "incremental=False is for RocksDB; the state in memory always writes what has changed",
                hint='leave incremental out, or choose state_backend="rocksdb"',
            )

    @property
    def timeout_s(self) -> float | None:
        """In seconds."""
        return _seconds("timeout", self.timeout)

    @property
    def min_pause_s(self) -> float:
        """In seconds; 0 when there need be none."""
        return _seconds("min_pause", self.min_pause) or 0.0

    def trigger(self, trigger: str | None) -> str | None:
        """The job's trigger, which may be said here as `interval`, or there; not two different ones."""
        wanted = _seconds("interval", self.interval)
        if wanted is None:
            return trigger
        if trigger is None:
            return f"{wanted * 1000:.0f} milliseconds"
        if not math.isclose(text_in_seconds(trigger.lower().removeprefix("interval ")) or 0.0, wanted):
            raise ConfigurationError(
                f"the job's trigger is {trigger!r}, and the interval of its checkpoints {self.interval!r}",
                hint="they are one thing: leave one of them out",
            )
        return trigger

    def check_retained(self, max_unpublished_epochs: int) -> None:
        """Refuse to keep fewer epochs than may wait for their target."""
        if self.retained is not None and self.retained <= max_unpublished_epochs + 1:
            raise ConfigurationError(
                f"retained={self.retained} epochs, and {max_unpublished_epochs} may be unpublished",
                hint=f"set retained to at least {max_unpublished_epochs + 2}, or lower max_unpublished_epochs",
            )

    def asks_for(self) -> dict[str, str]:
        """What of Spark's settings the options name, by Spark's own names."""
        asked: dict[str, str] = {}
        if self.state_backend is not None:
            asked[PROVIDER] = BACKENDS[self.state_backend]
        if self.state_backend == "rocksdb" or not self.incremental:
            asked[CHANGELOG] = str(self.incremental).lower()
        if self.state_partitions is not None:
            asked[PARTITIONS] = str(self.state_partitions)
        if self.retained is not None:
            asked[RETAINED] = str(self.retained)
        return asked


def _seconds(name: str, value: str | float | None) -> float | None:
    return None if value is None else in_seconds(value, what=name, at_least=_SHORTEST_S)


def _at_least(name: str, value: object, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ConfigurationError(f"{name} is {value!r}", hint=f"give a whole number, {least} or more")


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigurationError(f"{name} {value!r} is unknown", hint=f"use one of: {', '.join(known)}")
