"""Crash points inside the sinks: every call that changes a file, every statement that changes a database.

The contracts are wrapped by `onceward.testing.wrappers`; this goes below them, by standing between the sinks and the
operating system while a driver lives.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onceward.testing import Faults

_CHANGING = ("INSERT", "DELETE", "UPDATE", "COMMIT")
_fault_scope: list[tuple[Path, Faults]] = []


@contextmanager
def crash_points(folder: Path, faults: Faults) -> Iterator[Faults]:
    """Let everything that happens in this folder pass through `faults`."""
    _fault_scope.append((folder, faults))
    try:
        yield faults
    finally:
        _fault_scope.pop()


def install_crash_points(patch: pytest.MonkeyPatch, *, syncs: bool = False) -> None:
    """From here on, calls that change files and databases can be crash points. Nothing waits for the disk, unless asked
    to."""
    for name in ("link", "unlink", "rename", "replace", "mkdir"):
        patch.setattr(os, name, _watched_call(name, getattr(os, name)))
    if not syncs:
        patch.setattr(os, "fsync", lambda descriptor: None)
    connect = sqlite3.connect
    patch.setattr(sqlite3, "connect", lambda path, **options: connect(path, factory=_Connection, **options))


def _watched_call(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(path: Any, *args: Any, **options: Any) -> Any:
        changes = name != "mkdir" or not os.path.isdir(path)
        if changes and _fault_scope and str(path).startswith(str(_fault_scope[-1][0])):
            return _fault_scope[-1][1].perform(f"os {name} {Path(path).name}", partial(call, path, *args, **options))
        return call(path, *args, **options)

    return watched


class _Connection(sqlite3.Connection):
    def execute(self, sql: str, *parameters: Any) -> Any:
        return self._watched(sql, partial(super().execute, sql, *parameters))

    def executemany(self, sql: str, *parameters: Any) -> Any:
        return self._watched(sql, partial(super().executemany, sql, *parameters))

    def _watched(self, sql: str, call: Callable[[], Any]) -> Any:
        verb = sql.split(maxsplit=1)[0].upper()
        if _fault_scope and verb in _CHANGING:
            return _fault_scope[-1][1].perform(f"sql {verb}", call)
        return call()
