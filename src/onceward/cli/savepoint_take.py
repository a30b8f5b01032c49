"""`onceward savepoint take`: through the driver if one answers, else from the checkpoint's files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from onceward import errors
from onceward.api import Driver, DriverGone, find_driver
from onceward.cli.bytes_bar import BytesBar
from onceward.cli.show import err, out, show_bytes, show_json
from onceward.clock import SystemClock
from onceward.errors import OncewardError
from onceward.savepoints import Progress
from onceward.savepoints import take as take_from_files
from onceward.storage import local_path
from onceward.version import spark_version

_LOOK_S: Final = 0.1

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="A directory for the savepoint is made in this folder.")]


@dataclass(frozen=True, slots=True)
class TakenSavepoint:
    """As JSON: where it is, and of which epoch."""

    path: str
    id: str
    epoch: int
    bytes: int


def take(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|FILE[:JOB]", help="The job's checkpoint directory, or its file.")
    ],
    folder: Folder,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take a savepoint of the newest published epoch, while the job runs or when it is stopped."""
    root, into = checkpoint_of(checkpoint), local_path(folder)
    driver = find_driver(root)
    taken = _by_driver(driver, into, quiet=json) if isinstance(driver, Driver) else None
    show_taken(taken or from_files(root, into, quiet=json), json=json)


def checkpoint_of(text: str) -> Path:
    """The checkpoint that is meant: a directory, or that of the job in FILE[:JOB]."""
    file = text.rpartition(":")[0] or text
    if (file.endswith(".py") and Path(file).is_file()) or text.endswith(".py"):
        from onceward.cli.load import load_job

        return local_path(load_job(text).checkpoint)
    return local_path(text)


def show_taken(taken: TakenSavepoint, *, json: bool) -> None:
    """Where it is."""
    if json:
        show_json(taken)
        return
    out.print(f"[green]taken[/] after epoch {taken.epoch}, {show_bytes(taken.bytes)}: {escape(taken.path)}")


def from_files(root: Path, folder: Path, *, quiet: bool) -> TakenSavepoint:
    """By this process. A job that runs is not held up, and need not know."""
    progress = Progress()
    with BytesBar("taking a savepoint", lambda: progress, quiet=quiet):
        taken = take_from_files(root, folder, clock=SystemClock(), spark=spark_version(), progress=progress)
    saved = taken.savepoint
    return TakenSavepoint(str(taken.path), saved.id, saved.epoch, saved.size)


@dataclass(slots=True)
class _Answered:
    """The driver's last answer, as the bar wants it."""

    total: int = 0
    done: int = 0
    bytes_per_s: float = 0.0

    def update(self, answer: dict[str, Any]) -> None:
        self.total, self.done = int(answer["bytes_total"]), int(answer["bytes_done"])
        self.bytes_per_s = float(answer["bytes_per_s"])


def _by_driver(driver: Driver, folder: Path, *, quiet: bool) -> TakenSavepoint | None:
    """None where it is of a release that takes none, or has ended meanwhile: then its files tell as much."""
    answered = _Answered()
    try:
        answer = driver.take_savepoint(str(folder))
        with BytesBar("taking a savepoint", lambda: answered, quiet=quiet):
            while answer["state"] == "running":
                time.sleep(_LOOK_S)
                answer = driver.get(f"/v1/savepoints/{answer['id']}")
                answered.update(answer)
    except DriverGone as gone:
        if not quiet:
            err.print(f"[dim]{escape(str(gone))}: taking it from the files instead[/]")
        return None
    if answer["state"] == "failed":
        raise _failure(answer["error"])
    return TakenSavepoint(answer["path"], answer["savepoint"], answer["epoch"], answer["bytes_total"])


def _failure(problem: dict[str, Any]) -> OncewardError:
    """What ended it in the driver, as this process would have raised it; of another release it may be unknown here."""
    kind = getattr(errors, str(problem["error"]), None)
    if not (isinstance(kind, type) and issubclass(kind, OncewardError)):
        kind = OncewardError
    return kind(problem["message"], hint=problem["hint"])
