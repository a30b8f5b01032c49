"""Savepoints from the page: those that lie where they are looked for, and new ones, by the running driver or, where
none answers, by the dashboard itself from the checkpoint's files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from onceward.api import DriverGone, NoDriver
from onceward.api.served import Busy
from onceward.clock import SystemClock
from onceward.dashboard.view import JobView
from onceward.errors import ConfigurationError, OncewardError
from onceward.savepoints import SavepointTasks, read_savepoint
from onceward.savepoints.document import FILE
from onceward.savepoints.place import is_savepoint
from onceward.version import spark_version


class Saving:
    """Of one job. Where savepoints were asked for is remembered as long as the dashboard lives."""

    def __init__(self, view: JobView, folders: Sequence[Path] = ()) -> None:
        self._view = view
        self.folder = Path(f"{view.place.checkpoint}-savepoints")
        self._folders = dict.fromkeys((self.folder, *folders))
        self._own: SavepointTasks | None = None

    def is_of(self, view: JobView) -> bool:
        """Whether it is still about this view."""
        return self._view is view

    def shown(self, *, read_only: bool) -> dict[str, Any]:
        """Those that are being taken or were asked for, those that lie there, and why none can be taken, if so."""
        tasks, why_not = self._tasks()
        for one in tasks:
            self._folders.setdefault(Path(one["folder"]))
        return {
            "tasks": tasks,
            "savepoints": self._found(),
            "why_not": "this dashboard is read-only" if read_only else why_not,
            "folder": str(self.folder),
            "folders": [str(one) for one in self._folders],
            "file": self._view.place.access.file if self._view.place.access is not None else None,
        }

    def _tasks(self) -> tuple[list[dict[str, Any]], str]:
        live = self._view.live()
        own = _plain(self._own.all()) if self._own is not None else []
        if isinstance(live, NoDriver):
            return own, "" if self._view.record() is not None else "the job has not begun yet"
        try:
            return [*live.get("/v1/savepoints")["savepoints"], *own], ""
        except DriverGone as error:
            return own, str(error)

    def _found(self) -> list[dict[str, Any]]:
        """Those of this job, the newest first; what cannot be read comes last."""
        record = self._view.record()
        job = record.job if record is not None else None
        found = [one for folder in self._folders for path in _inside(folder) if (one := _described(path)) is not None]
        mine = [one for one in found if one["job"] == job or (one["job"] is None and one["folder"] == str(self.folder))]
        return sorted(mine, key=lambda one: (one["problem"] is None, one["taken_at"] or 0.0), reverse=True)

    def take(self, folder: str) -> dict[str, Any]:
        """Begin to take one; how far it is, is asked for again and again."""
        if not folder.startswith("/") or not folder.isprintable():
            raise ConfigurationError(f"{folder!r} is no absolute path", hint=f"give one like {self.folder}")
        live = self._view.live()
        try:
            if not isinstance(live, NoDriver):
                return dict(live.take_savepoint(folder))
            if self._own is None:
                self._own = SavepointTasks(self._view.place.checkpoint, clock=SystemClock(), spark=spark_version())
            return _plain([self._own.begin(Path(folder))])[0]
        except Busy:
            raise ConfigurationError("a savepoint is being taken already", hint="wait until it is done") from None
        except DriverGone as error:
            raise ConfigurationError(str(error), hint="give a path that the driver may write to") from error


def _plain(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With times as text, as the API answers."""
    at = ("began_at", "ended_at")
    return [{**one, **{name: one[name] and one[name].isoformat() for name in at}} for one in tasks]


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if is_savepoint(one))
    except OSError:
        return []


def _described(path: Path) -> dict[str, Any] | None:
    """What it says of itself; None where it is gone meanwhile."""
    try:
        stat = (path / FILE).stat()
    except OSError:
        return None
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=500)
def _read(path: Path, mtime_ns: int, size: int) -> dict[str, Any]:
    """Its list of files may be long, and never changes."""
    common = {"path": str(path), "folder": str(path.parent)}
    try:
        saved = read_savepoint(path)
    except OncewardError as error:
        nothing: dict[str, Any] = dict.fromkeys(("job", "generation", "epoch", "taken_at", "bytes", "files"))
        return {**common, **nothing, "problem": error.message}
    return {
        **common,
        "job": saved.job,
        "generation": saved.generation,
        "epoch": saved.epoch,
        "taken_at": saved.taken_at.timestamp(),
        "bytes": saved.size,
        "files": len(saved.files),
        "problem": None,
    }
