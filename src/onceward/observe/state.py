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

    from onceward.observe.state_views import StateView


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The first rows of one operator, or of one part of it, by key, as `(key, ..., value, ...)`."""

    operator: int
    name: str
    rows: tuple[str, ...]
    has_more: bool = False


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
    wanted = checked_epoch(checkpoint, epoch)
    found = tuple(_operators(spark, checkpoint, wanted, most))
    return EpochState(wanted, shown(positions(checkpoint, wanted)), found)


def checked_epoch(checkpoint: Path, epoch: int | None) -> int:
    """The epoch of whose end there is a state; `ConfigurationError` where there is none."""
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
        raise ConfigurationError("the job keeps no state", hint="only stateful pipelines have one")
    return wanted


def _operators(spark: SparkSession, checkpoint: Path, epoch: int, most: int) -> Iterator[OperatorState]:
    # Whoever asks where epochs stand, and not for state, need not wait for what reads it.
    from onceward.observe.state_views import frame_of, state_views

    for view in sorted(state_views(checkpoint), key=lambda one: one.operator.number):
        rows = first_rows(frame_of(spark, checkpoint, view, epoch), most + 1)
        yield OperatorState(view.operator.number, _name(view), rows[:most], has_more=len(rows) > most)


def _name(view: StateView) -> str:
    return f"{view.operator.name or view.operator.kind} {view.part}".strip()


def first_rows(frame: DataFrame, most: int) -> tuple[str, ...]:
    """Each as one text: see `first_cells`."""
    return tuple(f"({', '.join(cells)})" for cells in first_cells(frame, most))


def first_cells(frame: DataFrame, most: int) -> tuple[tuple[str, ...], ...]:
    """By key, so that two looks at one epoch show the same. Spark holds only so many rows of each task for it."""
    found = frame.orderBy(*_sortable(frame)).limit(most).collect()
    return tuple(tuple(_text(part) for cell in row for part in _parts(cell)) for row in found)


def columns_of(frame: DataFrame) -> list[str]:
    """The names that belong to the cells: those inside of key and value."""
    return [one for field in frame.schema.fields for one in getattr(field.dataType, "names", [field.name])]


def _sortable(frame: DataFrame) -> list[str]:
    """Spark does not compare maps."""
    return [field.name for field in frame.schema.fields if "map<" not in field.dataType.simpleString()]


def _parts(cell: Any) -> tuple[Any, ...]:
    """A key and a value are structs; when a timer fires is not."""
    return tuple(cell) if isinstance(cell, tuple) else () if cell is None else (cell,)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    return "null" if value is None else str(value)
