"""The account of one process's lives: each is begun and ended on the record, and then the strategy decides.

Both who restart use it: the supervisor, whose lives are processes, and `Job.run`, whose lives are runs in its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from onceward.contracts import Clock
from onceward.durations import spoken
from onceward.errors import StorageFailed
from onceward.restart.exit_report import ExitReport
from onceward.restart.history import KEPT, Begun, Ended, How, Life, LifeLog, Reached, Then, failures
from onceward.restart.strategy import Decision, GiveUp, RestartAfter, RestartStrategy

log = logging.getLogger("onceward")
_ENDS: Final = (How.STOPPED, How.REFUSED)


class Restarts:
    """What is on record, in memory too: where the storage is full, restarting goes on all the same."""

    def __init__(self, strategy: RestartStrategy, lives: LifeLog, clock: Clock, reached: Callable[[], Reached]) -> None:
        self._strategy = strategy
        self._log = lives
        self._clock = clock
        self.reached = reached
        self._keep = max(KEPT, strategy.remembers)
        self.lives: list[Life] = lives.read()

    def settle_vanished(self) -> Decision | None:
        """At a process's first start: record the end of what has vanished, and decide; None where nothing has.

        The delay is counted from when that life was last known to be alive.
        """
        open_lives = [life for life in self.lives if life.ended is None]
        if not open_lives:
            return None
        newest, now, reached = open_lives[-1], self._clock.now(), self.reached()
        ends = [self._log.vanished(life, reached, Then.RESTART) for life in open_lives]
        for life, ended in zip(open_lives, ends, strict=True):
            self._close(life, ended)
        decision = self._strategy.decide(failures(self.lives), now)
        if isinstance(decision, GiveUp):
            ends[-1] = replace(ends[-1], then=Then.GAVE_UP)
            self._close(newest, ends[-1])
        for ended in ends:
            self._write(ended)
        if isinstance(decision, GiveUp):
            return decision
        waited_s = (now - self._log.last_sign(newest)).total_seconds()
        return replace(decision, delay_s=max(0.0, decision.delay_s - max(0.0, waited_s)))

    def begin(self) -> Begun:
        """A life begins."""
        reached = self.reached()
        try:
            begun = self._log.begin(reached)
        except StorageFailed as error:
            log.warning("the history of restarts cannot be written: %s", error.message)
            number = max((life.number for life in self.lives), default=-1) + 1
            begun = Begun(number, self._clock.now(), "", 0, reached)
        self.lives = [*self.lives[1 - self._keep :], Life(begun.number, begun, None)]
        return begun

    def end(self, report: ExitReport, *, stopping: bool = False) -> Decision | None:
        """The newest life has ended; what is to be done, None where nothing is: it was a clean end, a refusal, or
        somebody has asked for it."""
        life, now = self.lives[-1], self._clock.now()
        ended = Ended(
            number=life.number,
            at=now,
            how=report.how,
            then=Then.END,
            lived_s=report.lived_s,
            reached=self.reached(),
            exit_code=report.exit_code,
            signal=report.signal,
            error=report.error,
            message=report.message,
        )
        self._close(life, ended)
        decision = None
        if not stopping and report.how not in _ENDS:
            decision = self._strategy.decide(failures(self.lives), now)
            ended = replace(ended, then=Then.GAVE_UP if isinstance(decision, GiveUp) else Then.RESTART)
            self._close(life, ended)
        self._write(ended)
        return decision

    def _close(self, life: Life, ended: Ended) -> None:
        self.lives = [Life(one.number, one.begun, ended) if one.number == life.number else one for one in self.lives]

    def _write(self, ended: Ended) -> None:
        try:
            self._log.end(ended, keep=self._keep)
        except StorageFailed as error:
            log.warning("the history of restarts cannot be written: %s", error.message)


def describe(report: ExitReport | Ended) -> str:
    """How a life ended, in a few words."""
    match report.how:
        case How.STOPPED:
            return "ended cleanly"
        case How.FAILED | How.REFUSED:
            what = ": ".join(filter(None, (report.error, report.message)))
            return what or f"exit code {report.exit_code}"
        case How.KILLED:
            return f"killed by {report.signal}"
        case How.HUNG:
            return report.message or "its JVM did not answer"
        case How.VANISHED:
            return "vanished: nobody saw its end"


def announce(name: str, ended: ExitReport | Ended, decision: RestartAfter) -> str:
    """The one line that a restart is worth: why, after how long, how many are left."""
    left = "" if decision.left is None else f", {decision.left} more allowed"
    return (
        f"restarting {name} in {spoken(decision.delay_s)}: {describe(ended)}, after {spoken(ended.lived_s)} "
        f"({decision.why}{left})"
    )
