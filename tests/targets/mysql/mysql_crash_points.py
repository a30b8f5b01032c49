"""Crash points inside the sink: before and after every statement that changes something in the server.

A driver that dies takes its connections with it: the operating system closes them, without a word to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from onceward.connections.mysql import Session
from onceward.testing import Faults

_READS = ("SELECT", "SHOW", "SET", "START TRANSACTION", "XA RECOVER")
_fault_scope: list[tuple[Faults, list[Session]]] = []


@contextmanager
def crash_points(faults: Faults) -> Iterator[None]:
    """Let every statement pass through `faults`; at the end all connections of this life are gone."""
    opened: list[Session] = []
    _fault_scope.append((faults, opened))
    try:
        yield
    finally:
        _fault_scope.pop()
        for session in opened:
            session._connection._force_close()


def install_crash_points(patch: pytest.MonkeyPatch) -> None:
    """From here on, every statement of a life can be a crash point."""
    connect, execute, load = Session.__init__, Session.execute, Session.load

    def watched_connect(self: Session, *args: Any, **options: Any) -> None:
        connect(self, *args, **options)
        if _fault_scope:
            _fault_scope[-1][1].append(self)

    def watched_execute(self: Session, statement: str) -> Any:
        return _watched(statement, lambda: execute(self, statement))

    def watched_load(self: Session, statement: str, chunks: Any) -> Any:
        return _watched(statement, lambda: load(self, statement, chunks))

    def closed(self: Session) -> None:
        # A dead driver does not say good-bye.
        if _fault_scope and _fault_scope[-1][0].dead:
            self._connection._force_close()
        else:
            close(self)

    close = Session.close
    patch.setattr(Session, "__init__", watched_connect)
    patch.setattr(Session, "execute", watched_execute)
    patch.setattr(Session, "load", watched_load)
    patch.setattr(Session, "close", closed)


def _watched(statement: str, call: Callable[[], Any]) -> Any:
    if not _fault_scope:
        return call()
    verb = " ".join(statement.split()[:2])
    return _fault_scope[-1][0].perform(f"sql {verb}", call, writes=not statement.startswith(_READS))
