"""Keys and values of a job's state. Only Spark reads them: one in a process of its own, begun by the first question
and ended when nobody has asked for a while, or with the dashboard. No request waits for it.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import IO, Any, Final

from onceward.errors import ConfigurationError

COMMAND: Final = (sys.executable, "-m", "onceward", "state", "answer")
_IDLE_S: Final = 180.0
_LIMIT_S: Final = 120.0
"""How long a start, or an answer, may take."""
_WAITING: Final = 8
_KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class Question:
    """Which entries: of this operator's part, at the end of this epoch, with these values in their key."""

    path: str
    operator: int
    part: str
    epoch: int
    keys: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Pending:
    """Not answered yet: `starting` until Spark is there, then `reading`."""

    stage: str
    since: float


Answer = Mapping[str, Any]


class StateReader:
    """May be asked from any thread: the same question again and again, until it is answered."""

    def __init__(self, command: Sequence[str] = COMMAND, *, idle_s: float = _IDLE_S, limit_s: float = _LIMIT_S) -> None:
        self._command, self._idle_s, self._limit_s = tuple(command), idle_s, limit_s
        self._asked: queue.Queue[Question] = queue.Queue()
        self._pending: dict[Question, float] = {}
        self._answers: dict[Question, Answer] = {}
        self._worker: threading.Thread | None = None
        self._is_ready = False
        self._lock = threading.Lock()

    @property
    def is_warm(self) -> bool:
        """Whether a Spark is there already, or on its way."""
        return self._worker is not None

    def ask(self, question: Question) -> Answer | Pending:
        """The answer, if there is one by now; an answer that is an error is given once."""
        with self._lock:
            if question in self._answers:
                found = self._answers[question]
                if "error" in found:
                    del self._answers[question]
                return found
            if question not in self._pending:
                if len(self._pending) >= _WAITING:
                    raise ConfigurationError("too many look at state at once", hint="wait until they are answered")
                self._pending[question] = time.time()
                self._asked.put(question)
                if self._worker is None:
                    self._worker = threading.Thread(target=self._work, name="onceward-state", daemon=True)
                    self._worker.start()
            return Pending("reading" if self._is_ready else "starting", self._pending[question])

    def _work(self) -> None:
        """Start the process, put the questions to it one after the other, and end it."""
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                # Ctrl-C in the terminal is for the dashboard, at whose end its standard input ends.
                start_new_session=True,
            )
        except OSError as error:
            self._give_up(f"it does not start: {error.strerror}")
            return
        # Closing flushes, which a process that has ended takes amiss.
        with suppress(BrokenPipeError), process:
            try:
                self._converse(process)
            finally:
                process.kill()

    def _converse(self, process: subprocess.Popen[str]) -> None:
        ready = self._in_time(process, partial(_next, _pipe(process.stdout)))
        if ready is None:
            self._give_up("Spark did not start; try the command")
            return
        self._is_ready = True
        while True:
            try:
                question = self._asked.get(timeout=self._idle_s)
            except queue.Empty:
                with self._lock:
                    # Who asks from now on begins another process.
                    if self._asked.empty():
                        self._worker, self._is_ready = None, False
                        return
                continue
            answer = self._in_time(process, partial(_put, process, question))
            if answer is None:
                self._give_up("Spark ended while it read, or took too long; try the command")
                return
            self._keep(question, answer)

    def _in_time(self, process: subprocess.Popen[str], work: Callable[[], Answer | None]) -> Answer | None:
        """None where the process has ended, as it does when its time is up."""
        timer = threading.Timer(self._limit_s, process.kill)
        timer.start()
        try:
            return work()
        except OSError:
            return None
        finally:
            timer.cancel()

    def _keep(self, question: Question, answer: Answer) -> None:
        with self._lock:
            self._pending.pop(question, None)
            self._answers[question] = answer
            for oldest in [*self._answers][:-_KEPT]:
                del self._answers[oldest]

    def _give_up(self, why: str) -> None:
        """Every question that waits is answered so; the next one begins anew."""
        with self._lock:
            for question in self._pending:
                hint = f"onceward state show {question.path} --operator {question.operator}"
                self._answers[question] = {"error": "NoSpark", "message": why, "hint": hint}
            self._pending = {}
            self._asked = queue.Queue()
            self._worker, self._is_ready = None, False


def _put(process: subprocess.Popen[str], question: Question) -> Answer | None:
    pipe = _pipe(process.stdin)
    pipe.write(json.dumps(asdict(question)) + "\n")
    pipe.flush()
    return _next(_pipe(process.stdout))


def _next(pipe: IO[str]) -> Answer | None:
    """The next line that is one of ours; whatever a library prints is passed over."""
    for line in pipe:
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return None


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None, "asked for"
    return pipe
