"""The lives of a job on one checkpoint, kept there: a crash loop is not forgotten by a new process.

Two write-once files a life, `lives/<k>.begun` before its driver starts and `lives/<k>.ended` when it has ended. Nothing
is appended to and nothing is changed, so that a store without either will do. A life that was begun and has no end when
the next one begins has *vanished*: whoever watched it is gone too, as when the host died.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from onceward.contracts import Clock, Storage
from onceward.errors import DamagedFile
from onceward.journal import SettledLog, seal, unseal
from onceward.restart.strategy import Failure

FOLDER: Final = "lives"
KEPT: Final = 100
"""So many lives at least, the newest; more where the strategy counts further."""
_NAME = re.compile(r"([0-9]+)\.(begun|ended)")


class How(Enum):
    """How a life ended."""

    STOPPED = "stopped"
    """By itself, at the end of its input, or because it was asked to."""
    FAILED = "failed"
    """With an error that a restart may mend."""
    REFUSED = "refused"
    """With an error that no restart mends."""
    KILLED = "killed"
    """By a signal: SIGKILL, the kernel short of memory, a crash of the interpreter."""
    HUNG = "hung"
    """Its JVM did not answer, and it was killed."""
    VANISHED = "vanished"
    """Nobody has seen its end."""


class Then(Enum):
    """What was decided at its end."""

    RESTART = "restart"
    GAVE_UP = "gave-up"
    END = "end"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the checkpoint was: the newest epoch that is decided and that is settled, -1 where there is none."""

    decided: int
    settled: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A life begins."""

    number: int
    at: datetime
    host: str
    pid: int
    reached: Reached


@dataclass(frozen=True, slots=True)
class Ended:
    """Its end. `at` is when that was seen, `lived_s` how long it had lasted at least."""

    number: int
    at: datetime
    how: How
    then: Then
    lived_s: float
    reached: Reached
    exit_code: int | None = None
    signal: str | None = None
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """What is known of one life; a file that is damaged says nothing."""

    number: int
    begun: Begun | None
    ended: Ended | None

    @property
    def published(self) -> bool:
        """Whether an epoch was settled in it."""
        if self.begun is None or self.ended is None:
            return False
        return self.ended.reached.settled > self.begun.reached.settled


def failures(lives: Sequence[Life]) -> list[Failure]:
    """What a strategy is to count: failures since a clean stop, the oldest first. Refusals are not counted, as a person
    has looked at them; and they end no row."""
    found: list[Failure] = []
    for life in lives:
        if life.ended is None:
            continue
        match life.ended.how:
            case How.STOPPED:
                found.clear()
            case How.REFUSED:
                continue
            case How.FAILED | How.KILLED | How.HUNG | How.VANISHED:
                found.append(Failure(life.ended.at, life.ended.lived_s, life.published))
    return found


class LifeLog:
    """The files. The highest number is the newest life."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def read(self) -> list[Life]:
        """Every life that is kept, the oldest first. What cannot be read is left out: it decides over a pause at most,
        and is no reason not to start."""
        return [self._life(number) for number in self._numbers()]

    def begin(self, reached: Reached) -> Begun:
        """A new life, under the next free number."""
        number = max(self._numbers(), default=-1) + 1
        while not self.create(begun := Begun(number, self._clock.now(), socket.gethostname(), os.getpid(), reached)):
            number += 1
        return begun

    def create(self, begun: Begun) -> bool:
        """Record it, unless there is one of its number."""
        return self._storage.create(f"{FOLDER}/{begun.number}.begun", seal("begun", _begun_document(begun)))

    def end(self, ended: Ended, *, keep: int = KEPT) -> None:
        """Its end, unless someone has recorded one; then let go of the oldest lives."""
        self._storage.create(f"{FOLDER}/{ended.number}.ended", seal("ended", _ended_document(ended)))
        for number in self._numbers()[: -max(keep, KEPT)]:
            # The end last: a life that is half removed must not look as if it had vanished.
            for name in ("begun", "ended"):
                self._storage.delete(f"{FOLDER}/{number}.{name}")

    def vanished(self, life: Life, reached: Reached, then: Then) -> Ended:
        """The end of a life that nobody saw. It lasted at least until the last epoch that it settled."""
        now = self._clock.now()
        begun_at = life.begun.at if life.begun is not None else now
        return Ended(life.number, now, How.VANISHED, then, (self.last_sign(life) - begun_at).total_seconds(), reached)

    def last_sign(self, life: Life) -> datetime:
        """When a life that has no end was certainly alive."""
        begun_at = life.begun.at if life.begun is not None else self._clock.now()
        settled = SettledLog(self._storage)
        marker = settled.legible(settled.watermark())
        return max(begun_at, marker.settled_at) if marker is not None else begun_at

    def _numbers(self) -> list[int]:
        matches = (_NAME.fullmatch(name) for name in self._storage.names(FOLDER))
        return sorted({int(match[1]) for match in matches if match})

    def _life(self, number: int) -> Life:
        """A damaged end is an end all the same, of which nothing is known."""
        begun = self._begun(number)
        try:
            document = self._document(number, "ended")
            ended = None if document is None else _ended_from(number, document)
        except (DamagedFile, KeyError, TypeError, ValueError):
            at, reached = (self._clock.now(), Reached(-1, -1)) if begun is None else (begun.at, begun.reached)
            ended = Ended(number, at, How.VANISHED, Then.RESTART, 0.0, reached)
        return Life(number, begun, ended)

    def _begun(self, number: int) -> Begun | None:
        with contextlib.suppress(DamagedFile, KeyError, TypeError, ValueError):
            if (document := self._document(number, "begun")) is not None:
                at, reached = datetime.fromisoformat(str(document["at"])), _reached(document)
                return Begun(number, at, str(document["host"]), _integer(document["pid"]), reached)
        return None

    def _document(self, number: int, kind: str) -> Mapping[str, object] | None:
        path = f"{FOLDER}/{number}.{kind}"
        data = self._storage.read(path)
        return None if data is None else unseal(kind, data, path=path)


def _begun_document(begun: Begun) -> dict[str, object]:
    return {
        "life": begun.number,
        "at": begun.at.isoformat(),
        "host": begun.host,
        "pid": begun.pid,
        "decided": begun.reached.decided,
        "settled": begun.reached.settled,
    }


def _ended_document(ended: Ended) -> dict[str, object]:
    return {
        "life": ended.number,
        "at": ended.at.isoformat(),
        "how": ended.how.value,
        "then": ended.then.value,
        "lived_s": round(ended.lived_s, 3),
        "decided": ended.reached.decided,
        "settled": ended.reached.settled,
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "error": ended.error,
        "message": ended.message,
    }


def _ended_from(number: int, document: Mapping[str, object]) -> Ended:
    code = document["exit_code"]
    signal, error, message = (None if (text := document[key]) is None else str(text) for key in _TEXTS)
    return Ended(
        number=number,
        at=datetime.fromisoformat(str(document["at"])),
        how=How(document["how"]),
        then=Then(document["then"]),
        lived_s=float(str(document["lived_s"])),
        reached=_reached(document),
        exit_code=None if code is None else _integer(code),
        signal=signal,
        error=error,
        message=message,
    )


_TEXTS: Final = ("signal", "error", "message")


def _reached(document: Mapping[str, object]) -> Reached:
    return Reached(_integer(document["decided"]), _integer(document["settled"]))


def _integer(value: object) -> int:
    return int(str(value))
