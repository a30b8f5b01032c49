"""Jobs of the harness that write to the real server, in each of the ways the sink has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from onceward.connections.postgres import PostgresError
from onceward.testing import DiesAt, Failed, Faults, Harness, SinkUnderTest, Source, TargetError
from onceward.testing.engine import SCHEMA

from .conftest import Place

T = TypeVar("T")

VARIANTS: dict[str, dict[str, Any]] = {
    "two-phase": {},
    "write-ahead": {"two_phase": False},
    "upsert": {"mode": "upsert", "keys": ["id"]},
}


class ServerErrorsAsFaults(Faults):
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


def subject(place: Place, variant: str) -> SinkUnderTest:
    sink = place.sink(**VARIANTS[variant]).choose()
    sink.check(SCHEMA, output_mode="append")
    return SinkUnderTest(sink, place.rows, ordered=False)


def job(place: Place, variant: str, *ends: int, **options: Any) -> Harness:
    source = Source(ends=ends or (4, 8), keys=4)
    return Harness(subject(place, variant), source=source, rows_in_a_batch=1, **options)


def publishing(variant: str) -> str:
    """How the operation that publishes an epoch begins."""
    return "sink postgres:rows " + ("commit_all" if variant == "two-phase" else "send")


def dies_before_publishing(variant: str) -> DiesAt:
    return DiesAt(publishing(variant))


def error_of(harness: Harness, kind: type[Exception], **options: Any) -> Any:
    """The error of that class with which the next driver stops."""
    ending = harness.life(ServerErrorsAsFaults(), **options)
    assert isinstance(ending, Failed), ending
    assert isinstance(ending.error, kind), ending
    return ending.error


def finished_cleanly(harness: Harness) -> None:
    harness.drain()
    assert harness.problems() == []
