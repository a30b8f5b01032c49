"""What a pipeline is made of, by its plan, before it starts: stateful operators with their keys, and sources."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from onceward.errors import DamagedFile
from onceward.operators import (
    Column,
    Operator,
    SourceInfo,
    Topology,
    TopologyLog,
    read_topology,
    refuse_misfit,
    with_former_names,
    with_names,
)
from onceward.operators.schema import spelled
from onceward.spark.cause import in_one_line
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.needs import check_needs
from onceward.storage import LocalStorage

log = logging.getLogger("onceward")
_KEYS: Final = ("keyExpressions", "groupingAttributes")
_SIDES: Final = ("leftKeys", "rightKeys")
_AGGREGATIONS: Final = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
_GIVEN = re.compile(r'name="(.*)"', re.DOTALL)


def planned_topology(
    frame: DataFrame,
    *,
    output_mode: str = "append",
    operators: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    sinks: Sequence[str] = (),
) -> Topology | None:
    """Of the query that this frame will be, with the user's names. None where Spark does not tell: before 4.2, and of a
    query that it cannot plan, which it then says itself at the start; a `ConfigurationError` where Python lacks what a
    plan needs, which Spark would not say."""
    check_needs(frame)
    try:
        plan = frame._jdf.queryExecution().queryExecutionForExplain().executedPlan()
        stateful = _closed_up([*_operators(plan, is_complete=output_mode == "complete")])
        found = Topology(stateful, tuple(_sources(frame)), tuple(sinks))
    except (Py4JError, PySparkException) as error:
        is_named = operators is not None or sources is not None
        log.log(
            logging.WARNING if is_named else logging.DEBUG,
            "Spark does not tell the operators of this pipeline (that needs 4.2 or newer): they are not compared with "
            "the checkpoint's, and names for them are not kept: %s",
            in_one_line(error),
        )
        return None
    return with_names(found, operators=operators, sources=sources)


def check_topology(now: Topology | None, checkpoint: Path) -> None:
    """Before anything is written: `PipelineChanged` where the pipeline does not fit the state of its checkpoint.

    Logs that a power loss has torn are passed over here: recovery puts them right, and then it is asked again.
    """
    with suppress(DamagedFile):
        if now is not None and SparkLogs(checkpoint).decided() >= 0:
            refuse_misfit(read_topology(checkpoint), now, where=str(checkpoint))


def record_topology(now: Topology | None, checkpoint: Path) -> None:
    """After recovery, before Spark starts: it must fit, and is written down where it is another than before.

    Without a decided epoch there is no state that it could fail to fit: whatever stands there is superseded.
    """
    if now is None:
        return
    decided = SparkLogs(checkpoint).decided()
    if decided >= 0:
        before = read_topology(checkpoint)
        refuse_misfit(before, now, where=str(checkpoint))
        now = with_former_names(now, before)
    TopologyLog(LocalStorage(checkpoint / "onceward")).write(now, since=decided + 1)


def _operators(node: Any, *, is_complete: bool) -> Iterator[Operator]:
    """In the order data flows: inputs first, the left one before the right one.

    For a look Spark plans every query as in append mode. In complete mode a limit above an aggregation keeps no state.
    """
    below = [one for child in _all(node.children()) for one in _operators(child, is_complete=is_complete)]
    yield from below
    try:
        kind = str(node.shortName())
    except Py4JError:
        # Not one that writes state. Those that only read it share the number of one that does.
        return
    if is_complete and kind == "globalLimit" and any(one.kind in _AGGREGATIONS for one in below):
        return
    yield Operator(int(node.stateInfo().get().operatorId()), kind, keys=_keys(node))


def _closed_up(found: Sequence[Operator]) -> tuple[Operator, ...]:
    """Numbered without a gap, in the order of their numbers: as Spark does, which gives none to what keeps no state."""
    numbers = sorted({one.number for one in found})
    return tuple(replace(one, number=numbers.index(one.number)) for one in found)


def _keys(node: Any) -> tuple[Column, ...] | None:
    for attribute in _KEYS:
        with suppress(Py4JError):
            return tuple(_column(one) for one in _all(getattr(node, attribute)()))
    with suppress(Py4JError):
        return tuple(_column(one, f"{side[:-4]} ") for side in _SIDES for one in _all(getattr(node, side)()))
    return None


def _column(expression: Any, prefix: str = "") -> Column:
    """An attribute by its name; anything else by its text in SQL, which has none of Spark's running numbers."""
    try:
        name = str(expression.name())
    except Py4JError:
        name = str(expression.sql())
    return Column(f"{prefix}{name}", spelled(json.loads(expression.dataType().json())))


def _sources(frame: DataFrame) -> Iterator[SourceInfo]:
    """The streaming leaves, in Spark's order; one that the pipeline uses twice is one source."""
    seen: list[Any] = []
    for leaf in _all(frame._jdf.queryExecution().analyzed().collectLeaves()):
        if not leaf.isStreaming() or any(leaf.equals(other) for other in seen):
            continue
        seen.append(leaf)
        name = _given_name(leaf)
        yield SourceInfo(len(seen) - 1, _kind(leaf), name, name is not None)


def _kind(leaf: Any) -> str | None:
    """`FileSource[/path]` without its path: where it reads may change."""
    with suppress(Py4JError):
        return str(leaf.sourceName()).partition("[")[0]
    return None


def _given_name(leaf: Any) -> str | None:
    with suppress(Py4JError):
        match = _GIVEN.fullmatch(str(leaf.sourceIdentifyingName().toString()))
        return match[1] if match else None
    return None


def _all(sequence: Any) -> Iterator[Any]:
    yield from (sequence.apply(number) for number in range(sequence.size()))
