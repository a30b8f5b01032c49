"""Jobs of the harness that write to the real server, in each of the ways the sink has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from onceward.connections.postgres import PostgresError
from onceward.testing import DiesAt, Failed, Faults, Harness, Outlet, Source, TargetError
from onceward.testing.engine import SCHEMA

from .conftest import Place

T = TypeVar("T")

WAYS: dict[str, dict[str, Any]] = {
    "two-phase": {},
    "write-ahead": {"two_phase": False},
    "upsert": {"mode": "upsert", "keys": ["id"]},
}


class Told(Faults):
    """Changes nothing but the error's class: a task that meets it fails and is tried again, as Spark does."""

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        self.trace.append(what)
        try:
            return call()
        except PostgresError as error:
            self.trace.append(f"  FAILS {error}")
            raise TargetError(str(error)) from error


def outlet(place: Place, way: str) -> Outlet:
    sink = place.sink(**WAYS[way]).choose()
    sink.check(SCHEMA, output_mode="append")
    return Outlet(sink, place.rows, ordered=False)


def job(place: Place, way: str, *ends: int, **options: Any) -> Harness:
    source = Source(ends=ends or (4, 8), keys=4)
    return Harness(outlet(place, way), source=source, rows_in_a_batch=1, **options)


def publishing(way: str) -> str:
    """How the operation that publishes an epoch begins."""
    return "sink postgres:rows " + ("commit_all" if way == "two-phase" else "send")


def dies_before_publishing(way: str) -> DiesAt:
    return DiesAt(publishing(way))


def error_of(harness: Harness, kind: type[Exception], **options: Any) -> Any:
    """The error of that class with which the next driver stops."""
    ending = harness.life(Told(), **options)
    assert isinstance(ending, Failed), ending
    assert isinstance(ending.error, kind), ending
    return ending.error


def finished_cleanly(harness: Harness) -> None:
    harness.drain()
    assert harness.problems() == []
