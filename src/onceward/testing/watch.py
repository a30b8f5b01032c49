"""A checkpoint and tables that notice what the simulation must judge: takeovers in the window, rows that come early."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from onceward.errors import EpochLost, StorageFailed
from onceward.testing.engine import MemoryLogs
from onceward.testing.fakes import MemoryStorage, Row
from onceward.testing.harness import Crashed, Ending, Failed

_MANIFEST = re.compile(r"manifests/([0-9]+)\.([0-9]+)\.(json|reserved|fate)")


@dataclass(slots=True)
class Window:
    """Who stands between writing a manifest and writing `commits/N`: the one place from which a driver that was taken
    over can still decide. Drivers are told apart by their thread.

    `excused` are the epochs that may be lost, each with the takeover from which that follows (docs/guarantees.md, "What
    no one can give"), until the manifest of that takeover stands. `contested` are takeovers that were reserved before
    their epoch was decided: if it is decided just before the takeover is fixed, the taker must adopt what was decided,
    and only if it fails before it has written that down is the epoch lost as well.
    """

    inside: dict[int, int] = field(default_factory=dict)
    decided: set[int] = field(default_factory=set)
    contested: set[tuple[int, int]] = field(default_factory=set)
    excused: dict[int, int] = field(default_factory=dict)
    adopting: set[tuple[int, int]] = field(default_factory=set)
    highest: dict[int, int] = field(default_factory=dict)
    takers: dict[int, set[int]] = field(default_factory=dict)

    def manifest(self, epoch: int, takeover: int) -> None:
        """It stands, and its driver may decide, if no one else has."""
        if self.excused.get(epoch) == takeover:
            del self.excused[epoch]
        self.adopting.discard((threading.get_ident(), epoch))
        if epoch not in self.decided:
            self.inside[threading.get_ident()] = epoch

    def taken(self, epoch: int, takeover: int) -> None:
        """From here on no lower manifest counts, and the taker must bring one, if there was one."""
        self.takers.setdefault(epoch, set()).add(threading.get_ident())
        if takeover < self.highest.get(epoch, 0):
            return
        self.highest[epoch] = takeover
        was_lost = self.excused.pop(epoch, None) is not None
        if epoch in self.inside.values():
            self.excused[epoch] = takeover
        elif epoch in self.decided and (epoch, takeover) in self.contested:
            self.excused[epoch] = takeover
            if not was_lost:
                self.adopting.add((threading.get_ident(), epoch))

    def leave(self, ending: Ending | None = None) -> None:
        """This driver has decided, or is gone. One that should have adopted an epoch needs a reason why it has not."""
        self.inside.pop(threading.get_ident(), None)
        if ending is None:
            return
        error = ending.error if isinstance(ending, Failed) else None
        failed = isinstance(ending, Crashed) or isinstance(error, StorageFailed)
        for driver, epoch in list(self.adopting):
            if driver == threading.get_ident():
                self.adopting.discard((driver, epoch))
                # One of several takers may wait without end for another to write down what was decided: `EpochLost`.
                waited = isinstance(error, EpochLost) and len(self.takers.get(epoch, ())) > 1
                if not failed and not waited:
                    self.excused.pop(epoch, None)

    def forget(self, epoch: int) -> None:
        """It is undecided again, and so are those after it."""
        self.decided = {decided for decided in self.decided if decided < epoch}


@dataclass(slots=True)
class WatchedStorage(MemoryStorage):
    """Notes which takeovers happened while another driver stood in the window."""

    window: Window = field(default_factory=Window)

    def create(self, path: str, data: bytes) -> bool:
        """See `Storage.create`."""
        created = super(WatchedStorage, self).create(path, data)
        if created and (match := _MANIFEST.fullmatch(path)):
            epoch, takeover = int(match[1]), int(match[2])
            if match[3] == "json":
                self.window.manifest(epoch, takeover)
            elif match[3] == "reserved" and epoch not in self.window.decided:
                self.window.contested.add((epoch, takeover))
            elif b'"taken"' in data:
                self.window.taken(epoch, takeover)
        return created


@dataclass(slots=True)
class WatchedLogs(MemoryLogs):
    """Remembers what was ever decided, whatever is forgotten later."""

    ever_decided: int = -1
    window: Window = field(default_factory=Window)
    overwritten: set[int] = field(default_factory=set)

    def plan(self, epoch: int, text: str) -> None:
        """See `EngineLogs.plan`. A second driver may have looked before the first one wrote, and write over it."""
        if epoch in self.offsets and self.offsets[epoch] != text:
            self.overwritten.add(epoch)
        super(WatchedLogs, self).plan(epoch, text)

    def rewind(self, epoch: int) -> bool:
        """As `onceward rewind` does it; False when the engine has purged the barrier, which the facade's check of what
        Spark retains keeps from happening."""
        if epoch not in self.offsets:
            return False
        self.commits = {n: text for n, text in self.commits.items() if n < epoch}
        self.offsets = {n: text for n, text in self.offsets.items() if n <= epoch}
        self.ever_decided = min(self.ever_decided, epoch - 1)
        return True

    def commit(self, epoch: int, text: str) -> None:
        """See `EngineLogs.commit`."""
        super(WatchedLogs, self).commit(epoch, text)
        self.ever_decided = max(self.ever_decided, epoch)
        self.window.decided.add(epoch)
        self.window.leave()


class WatchedRows(list[Row]):
    """A table that objects to a row of an epoch that nobody has decided."""

    def __init__(self, logs: WatchedLogs) -> None:
        super().__init__()
        self._logs = logs
        self.early: list[Row] = []

    def extend(self, rows: Iterable[Any]) -> None:
        """Add rows; remember those that come too early."""
        rows = list(rows)
        self.early += [row for row in rows if row["epoch"] > self._logs.ever_decided]
        super().extend(rows)


@dataclass(slots=True)
class Story:
    """A simulated history and how it went.

    `excused` is the one loss that Spark's log does not let us prevent; the user then rewinds, and the story goes on.
    `refused` is a start after a second driver wrote over the barrier of a settled epoch. `by_hand`: an epoch that one
    of two targets had lost was copied to it, and resolved.
    """

    seed: int
    lives: int = 0
    two_drivers: bool = False
    excused: bool = False
    refused: bool = False
    went_back: bool = False
    gave_up: bool = False
    by_hand: bool = False
    faults: int = 0
    endings: list[Ending] = field(default_factory=list)


class Violation(AssertionError):
    """The history broke a promise. Carries what happened before."""
