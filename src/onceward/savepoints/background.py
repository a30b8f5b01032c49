"""Savepoints of a running job, taken by a thread beside it: one at a time, each with its progress."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from onceward.api.served import Busy
from onceward.contracts import Clock
from onceward.errors import OncewardError
from onceward.identity import new_generation
from onceward.savepoints.copying import BESIDE_A_JOB
from onceward.savepoints.progress import Progress, State
from onceward.savepoints.take import Taken, refuse_folder, take

log = logging.getLogger("onceward")
_KEPT: Final = 100


@dataclass(slots=True)
class SavepointTask:
    """One that was asked for. `taken` and `failure` are None until it has ended."""

    id: str
    folder: Path
    began_at: datetime
    state: State = State.RUNNING
    progress: Progress = field(default_factory=Progress)
    taken: Taken | None = None
    failure: OncewardError | None = None
    ended_at: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """As the API answers."""
        state, taken, failure = self.state, self.taken, self.failure
        problem = failure and {"error": type(failure).__name__, "message": failure.message, "hint": failure.hint}
        return {
            "id": self.id,
            "state": state.value,
            "folder": str(self.folder),
            "began_at": self.began_at,
            "ended_at": self.ended_at,
            "bytes_done": self.progress.done,
            "bytes_total": self.progress.total,
            "bytes_per_s": self.progress.bytes_per_s,
            "path": str(taken.path) if taken is not None else None,
            "savepoint": taken.savepoint.id if taken is not None else None,
            "epoch": taken.savepoint.epoch if taken is not None else None,
            "error": problem,
        }


class SavepointTasks:
    """Of one run. The newest are remembered for as long as it lives."""

    def __init__(self, checkpoint: Path, *, clock: Clock, spark: str) -> None:
        self._checkpoint, self._clock, self._spark = checkpoint, clock, spark
        self._tasks: OrderedDict[str, SavepointTask] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, folder: Path) -> dict[str, Any]:
        """Begin to take one; returns at once. `Busy` while another one is being taken."""
        refuse_folder(self._checkpoint, folder)
        task = SavepointTask(str(new_generation()), folder, self._clock.now())
        with self._lock:
            if any(one.state is State.RUNNING for one in self._tasks.values()):
                raise Busy
            self._tasks[task.id] = task
            while len(self._tasks) > _KEPT:
                self._tasks.popitem(last=False)
        threading.Thread(target=self._work, args=(task,), name="onceward-savepoint", daemon=True).start()
        return task.as_json()

    def all(self) -> list[dict[str, Any]]:
        """The newest first."""
        with self._lock:
            return [one.as_json() for one in reversed(self._tasks.values())]

    def get(self, identifier: str) -> dict[str, Any] | None:
        """The one that was asked for under this id."""
        with self._lock:
            found = self._tasks.get(identifier)
        return None if found is None else found.as_json()

    def _work(self, task: SavepointTask) -> None:
        try:
            taken = take(
                self._checkpoint,
                task.folder,
                clock=self._clock,
                spark=self._spark,
                progress=task.progress,
                pace=BESIDE_A_JOB,
            )
            task.taken, state = taken, State.DONE
            log.info("took the savepoint %s of epoch %d: %s", taken.savepoint.id, taken.savepoint.epoch, taken.path)
        except OncewardError as error:
            task.failure, state = error, State.FAILED
            log.warning("a savepoint could not be taken: %s", error)
        except Exception as error:
            task.failure, state = OncewardError(f"{type(error).__name__}: {error}", hint="see the log"), State.FAILED
            log.warning("a savepoint could not be taken", exc_info=True)
        task.ended_at = self._clock.now()
        # Last: whoever sees it ended finds everything else.
        task.state = state
