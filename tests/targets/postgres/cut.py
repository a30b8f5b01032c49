"""Drivers that lose their connection: failures of the real server as the harness knows failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onceward.connections.postgres import PostgresError
from onceward.testing import Faults, TargetError

T = TypeVar("T")


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
