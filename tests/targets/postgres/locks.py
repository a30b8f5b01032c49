"""A table that someone else holds locked, and calls that must not wait for it without end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from onceward.connections.postgres import Address, Session
from onceward.contracts import SlotContext

from .conftest import Place
from .deliver import batch_of

T = TypeVar("T")
PATIENCE_S = 60.0
SHORT = {"lock_timeout_s": 0.3}
SEVEN = batch_of(id=pa.array([7]))


def within(call: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """What the call gives or raises, if that takes no longer."""
    given: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert given or raised, f"it still waits after {seconds} s"
    if raised:
        raise raised[0]
    return given[0]


def again(where: SlotContext) -> SlotContext:
    """The same slot's next attempt."""
    return replace(where, attempt=2)


@contextmanager
def locked(place: Place, *tables: str, mode: str = "ACCESS EXCLUSIVE") -> Iterator[int]:
    """By someone else; the number of that session."""
    with Session(Address.parse(f"{place.url}&application_name=someone%20else")) as other:
        other.begin()
        for table in tables:
            other.run(f"LOCK TABLE {table} IN {mode} MODE")
        yield int(other.run("SELECT pg_backend_pid()")[0][0])
        # The server notices the end of a connection later, and what comes next waits for no lock for long.
        other.run("ROLLBACK")
