"""One job as the page sees it, running or not: what its files say, and on top of it what its driver does."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from onceward.api import DriverGone, NoDriver
from onceward.api.discovery import is_alive
from onceward.clock import SystemClock
from onceward.dashboard.digest import Digest, digest_of
from onceward.dashboard.index import HistoryIndex
from onceward.dashboard.live import Answers, Finder, Live, ask
from onceward.dashboard.places import Place
from onceward.dashboard.standing import Seen, Standing, standing
from onceward.dashboard.tables import recent
from onceward.errors import DamagedFile, OncewardError, StorageFailed
from onceward.history import EpochRecord
from onceward.journal import IdentityFile, IdentityRecord, SettledLog
from onceward.restart.history import LifeLog
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage

_FRESH_S: Final = 0.5
"""A second browser is given what the first one was, if it asks within this time."""


class JobView:
    """Looks at one checkpoint again and again; may be asked from any thread."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.storage = LocalStorage(place.checkpoint / "onceward")
        self.logs = SparkLogs(place.checkpoint)
        self.settled = SettledLog(self.storage)
        self.index = HistoryIndex(self.storage)
        self._finder = Finder(place.checkpoint, place.served)
        self._answers: Answers | None = None
        self._answered_at: float | None = None
        self._glance: dict[str, Any] = {}
        self._looked_at = float("-inf")
        self._looking = threading.Lock()

    def glance(self) -> dict[str, Any]:
        """A line of the overview. `version` changes with anything that the page shows of the job."""
        with self._looking:
            if time.monotonic() - self._looked_at > _FRESH_S:
                try:
                    self._glance = self._look()
                except (DamagedFile, StorageFailed, OSError) as error:
                    self._glance = self._unreadable(error)
                self._looked_at = time.monotonic()
            return self._glance

    def live(self) -> Live | NoDriver:
        """The driver, if one answers."""
        return self._finder.find()

    def rows(self) -> tuple[Digest, ...]:
        """Every attempt: what is written down, and what is in flight."""
        return merged(self.index.rows(), self._attempts())

    def record(self) -> IdentityRecord | None:
        """Whose checkpoint it is."""
        return IdentityFile(self.storage).read()

    def _attempts(self) -> list[Digest]:
        answers = self._answers
        return [digest_of(record_from(one)) for one in answers.attempts] if answers is not None else []

    def _look(self) -> dict[str, Any]:
        record = self.record()
        no_driver = self._ask()
        planned, decided = self.logs.planned(), self.logs.decided()
        settled = max(self.settled.watermark(), record.adopted if record is not None else -1)
        rows = self.rows()
        answers = self._answers
        moved = self._moved(rows)
        stands = self._standing(no_driver, moved, max(0, decided - settled))
        publishing = answers.publishing if answers is not None else {}
        found = {
            "id": self.place.id,
            "job": record.job if record is not None else self.place.checkpoint.name,
            "generation": record.generation if record is not None else None,
            "checkpoint": str(self.place.checkpoint),
            "file": self.place.access.file if self.place.access is not None else None,
            "standing": {"kind": stands.kind, "why": stands.why, "command": stands.command},
            "begun": record is not None,
            "planned": planned,
            "decided": decided,
            "settled": settled,
            "unpublished": max(0, decided - settled),
            "limit": publishing.get("limit"),
            "live": answers is not None,
            "last_seen": moved,
            "driver_seen": self._answered_at,
            "run": answers.status["run"] if answers is not None else None,
            "in_doubt": _in_doubt(answers),
            "runs": len({row.run for row in rows}),
            "failed": sum(row.outcome == "failed" for row in rows[-200:]),
            "complete": self.index.is_complete,
            **recent(rows),
        }
        return {**found, "version": _version(found, rows)}

    def _ask(self) -> NoDriver | None:
        found = self._finder.find()
        if isinstance(found, NoDriver):
            self._answers = None
            return found
        try:
            self._answers = ask(found)
            self._answered_at = time.time()
            return None
        except (DriverGone, KeyError, TypeError) as gone:
            self._answers = None
            self._finder.forget()
            return NoDriver(str(gone) or "the driver does not answer")

    def _standing(self, no_driver: NoDriver | None, moved: float | None, waiting: int) -> Standing:
        answers, access = self._answers, self.place.access
        seen = Seen(
            checkpoint=str(self.place.checkpoint), file=access.file if access is not None else "", waiting=waiting
        )
        if answers is not None:
            return standing(replace(seen, status=answers.status, publishing=answers.publishing))
        lives = LifeLog(self.storage, SystemClock()).read()[-1:]
        life = lives[0] if lives else None
        begun = life.begun if life is not None else None
        no_driver = no_driver or NoDriver("no driver")
        return standing(
            replace(
                seen,
                no_driver=no_driver.why,
                process=no_driver.pid,
                left_behind="is gone" in no_driver.why,
                life=life,
                watched=begun is not None and is_alive(begun.host, begun.pid),
                moved_s=time.time() - moved if moved is not None else None,
            )
        )

    def _moved(self, rows: Sequence[Digest]) -> float | None:
        """When something new was last seen of it."""
        times = [rows[-1].newest] if rows else []
        with suppress(OSError, DamagedFile):
            if (decided_at := self.logs.decided_at()) is not None:
                times.append(decided_at)
        return max(times, default=None)

    def _unreadable(self, error: Exception) -> dict[str, Any]:
        why = f"its files cannot be read: {error.message if isinstance(error, OncewardError) else error}"
        command = f"onceward checkpoints verify {self.place.checkpoint}"
        empty: dict[str, Any] = dict.fromkeys(
            ("generation", "file", "limit", "last_seen", "driver_seen", "run", "rows_per_s", "delay")
        )
        return {
            **empty,
            "id": self.place.id,
            "job": self.place.checkpoint.name,
            "checkpoint": str(self.place.checkpoint),
            "standing": {"kind": "refused", "why": why, "command": command},
            "begun": True,
            "planned": -1,
            "decided": -1,
            "settled": -1,
            "unpublished": 0,
            "live": False,
            "in_doubt": [],
            "runs": 0,
            "failed": 0,
            "complete": True,
            "sparks": [],
            "median_phases": {},
            "version": why,
        }


class Views:
    """One view for each place, kept as long as its place is shown."""

    def __init__(self, make: Callable[[Place], JobView] = JobView) -> None:
        self._make = make
        self._views: dict[str, JobView] = {}
        self._making = threading.Lock()

    def of(self, places: Sequence[Place]) -> list[JobView]:
        """In the order of the places."""
        with self._making:
            self._views = {one.id: self._views.get(one.id) or self._make(one) for one in places}
            return list(self._views.values())

    def one(self, place: Place) -> JobView:
        """That of one place."""
        with self._making:
            return self._views.setdefault(place.id, self._make(place))


def merged(written: Sequence[Digest], live: Sequence[Digest]) -> tuple[Digest, ...]:
    """An attempt may be in flight and written at once: the one that has ended and is written knows more.

    Rows are in the order of epochs, and only those from the first live one on are looked at.
    """
    if not live:
        return tuple(written)
    place = bisect_left(written, min(row.epoch for row in live), key=lambda row: row.epoch)
    tail = written[place:]
    ended = {row.key[:3] for row in tail if row.outcome != "open"}
    fresh = [row for row in live if row.key[:3] not in ended]
    newer = {row.key[:3] for row in fresh}
    kept = [row for row in tail if row.key[:3] not in newer]
    return (*written[:place], *sorted([*kept, *fresh], key=lambda row: (row.epoch, row.newest)))


def record_from(attempt: Mapping[str, Any]) -> EpochRecord:
    """A record from the API's JSON, which has nothing where a record leaves out."""
    sinks = {name: _known(sink) for name, sink in attempt.get("sinks", {}).items()}
    slots = [_known(slot) for slot in attempt.get("slots", ())]
    return EpochRecord.from_json({**attempt, "sinks": sinks, "slots": slots})


def _known(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}


def _in_doubt(answers: Answers | None) -> list[dict[str, Any]]:
    found = answers.status["in_doubt"] if answers is not None else ()
    return [{"sink": one["sink"], "transactions": one["transactions"], "oldest_s": one["oldest_s"]} for one in found]


def _version(found: Mapping[str, Any], rows: Sequence[Digest]) -> str:
    moving = ("driver_seen", "in_doubt")
    shown = {name: value for name, value in found.items() if name not in moving}
    newest = [(row.epoch, row.outcome, row.newest) for row in rows[-3:]]
    return f"{hash(json.dumps([shown, len(rows), newest], sort_keys=True)) & 0xFFFFFFFFFFFF:x}"
