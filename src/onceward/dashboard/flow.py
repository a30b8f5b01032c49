"""The way of the data: sources → operators → sinks, by name, each with what went through it in the newest epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.contracts.events import StateSize
from onceward.dashboard.view import JobView
from onceward.errors import DamagedFile
from onceward.history import EpochRecord
from onceward.operators import Operator, SourceInfo, Topology, read_topology


def topology_of(view: JobView) -> Topology:
    """By the files of its checkpoint; an empty one where its record is damaged, which a start refuses."""
    try:
        return read_topology(view.place.checkpoint)
    except DamagedFile:
        return Topology()


def flow(topology: Topology, record: EpochRecord | None) -> dict[str, Any]:
    """For the picture. What Spark has reported of an epoch comes later than what the query is made of."""
    return {
        "epoch": record.epoch if record is not None else None,
        "sources": _sources(topology.sources, record.sources if record is not None else {}),
        "operators": operators_of(topology, record),
        "input_rows": record.input_rows if record is not None else None,
        "rows": record.rows if record is not None else None,
    }


def _sources(known: Sequence[SourceInfo], ends: Mapping[str, str]) -> list[dict[str, Any]]:
    """Spark reports sources by a description, in the order of their numbers; two that are described alike as one."""
    reported = list(ends.items())
    if len(reported) != len(known):
        return [_source(SourceInfo(n), one) for n, one in enumerate(reported)] or [_source(one) for one in known]
    return [_source(one, reported[index]) for index, one in enumerate(known)]


def _source(one: SourceInfo, reported: tuple[str, str] = ("", "")) -> dict[str, Any]:
    description, end = reported
    return {"name": one.name, "kind": one.kind, "description": description, "end": end}


def operators_of(topology: Topology, record: EpochRecord | None) -> list[dict[str, Any]]:
    """In the order data flows, with their sizes."""
    sizes = record.state if record is not None else ()
    if not topology.operators:
        return [_operator(Operator(n, one.name), one) for n, one in enumerate(sizes)]
    known = dict(enumerate(sizes)) if _fit(topology, sizes) else {}
    return [_operator(one, known.get(one.number)) for one in topology.operators]


def _fit(topology: Topology, sizes: Sequence[StateSize]) -> bool:
    """Spark reports operators in the order of their numbers, and does not say these."""
    kinds = {one.number: one.kind for one in topology.operators}
    return kinds == {n: one.name for n, one in enumerate(sizes)}


def _operator(one: Operator, size: StateSize | None) -> dict[str, Any]:
    return {
        "number": one.number,
        "name": one.name,
        "kind": one.kind,
        "keys": None if one.keys is None else [[column.name, column.type] for column in one.keys],
        "partitions": one.partitions or None,
        "rows": size.rows if size is not None else None,
        "bytes": size.bytes if size is not None else None,
        "commit_ms": size.commit_ms if size is not None else None,
    }
