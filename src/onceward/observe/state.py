"""What Spark's state was at the end of an epoch, beside where that epoch ends in its sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError
from onceward.sources.positions import positions, shown
from onceward.spark.checkpoint import SparkLogs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VARIABLES = "it has variables with names; read them with Spark's source `statestore` and its option stateVarName"


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The first rows of one operator by key, as `(key, ..., value, ...)`. `unread` says why there are none to show."""

    operator: int
    name: str
    rows: tuple[str, ...]
    has_more: bool = False
    unread: str | None = None


@dataclass(frozen=True, slots=True)
class EpochState:
    """One decided epoch: its end in Kafka, if it reads it, and the state of every operator at that end."""

    epoch: int
    offsets: str
    operators: tuple[OperatorState, ...]


def read_state(spark: SparkSession, checkpoint: Path, *, epoch: int | None = None, most: int = 10) -> EpochState:
    """At the end of `epoch`, or of the newest decided one; at most so many rows of each operator.

    Only reads, and may be called while the job runs. All of the state is looked through for the first rows by key.
    """
    logs = SparkLogs(checkpoint)
    wanted = logs.decided() if epoch is None else epoch
    if not 0 <= wanted <= logs.decided():
        raise ConfigurationError(
            f"epoch {wanted} is not decided, so there is no state of its end" if wanted >= 0 else "no epoch is decided",
            hint=f"the newest decided epoch is {logs.decided()}" if logs.decided() >= 0 else "wait for the first one",
        )
    if logs.barrier(wanted) is None:
        raise ConfigurationError(
            f"Spark has removed epoch {wanted} from its log, and its state with it",
            hint="give a newer epoch; Spark keeps as many as spark.sql.streaming.minBatchesToRetain says",
        )
    if not (checkpoint / "state").is_dir():
        raise ConfigurationError("the job keeps no state", hint="leave out --state; only stateful pipelines have one")
    return EpochState(wanted, shown(positions(checkpoint, wanted)), tuple(_operators(spark, checkpoint, wanted, most)))


def _operators(spark: SparkSession, checkpoint: Path, epoch: int, most: int) -> Iterator[OperatorState]:
    known = spark.read.format("state-metadata").load(str(checkpoint)).select("operatorId", "operatorName").distinct()
    for operator, name in sorted((row[0], row[1]) for row in known.collect()):
        views = views_of(name)
        if not views:
            yield OperatorState(operator, name, (), unread=_VARIABLES)
        for view in views:
            reader = spark.read.format("statestore").option("batchId", epoch).option("operatorId", operator)
            frame = (reader.option("joinSide", view) if view else reader).load(str(checkpoint))
            rows = _first(frame, most + 1)
            yield OperatorState(operator, f"{name} {view}".strip(), rows[:most], has_more=len(rows) > most)


def views_of(operator: str) -> tuple[str, ...]:
    """What Spark can be asked for, by an operator's name: all, both sides of a join, or nothing without more names."""
    if operator.startswith("transformWithState"):
        return ()
    return ("left", "right") if operator == "symmetricHashJoin" else ("",)


def _first(frame: DataFrame, most: int) -> tuple[str, ...]:
    """By key, so that two looks at one epoch show the same. Spark holds only so many rows of each task for it."""
    found = frame.select("key", "value").orderBy("key").limit(most).collect()
    return tuple(_text((*row["key"], *(row["value"] or ()))) for row in found)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return "null" if value is None else str(value)
