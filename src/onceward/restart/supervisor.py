"""The supervisor: runs the driver as a child, and replaces it, as the strategy says, when it was killed, crashed or
hangs.

It holds no session, no target and no decision of the protocol. If it dies, the driver notices and ends; if both do, the
next start takes up the history where it ends.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceward.durations import spoken
from onceward.restart.driver_process import DriverProcess
from onceward.restart.exit_report import ExitReport
from onceward.restart.history import How
from onceward.restart.notifier import Notifier
from onceward.restart.restarts import Restarts, announce
from onceward.restart.strategy import Decision, GiveUp, RestartAfter
from onceward.restart.wire import Beat, Failed, Message, Ready, Stopping

log = logging.getLogger("onceward")

_TICK_S: Final = 0.2
_SESSION_GRACE_S: Final = 5.0
_REFUSALS: Final = (1, 2, 4)
MAY_BE_RESTARTED: Final = 3


@dataclass(frozen=True, slots=True)
class SupervisorLimits:
    """How long a driver may take: to its first heartbeat, from one to the next, and to stop.

    `stop_grace_s` is what it gets beyond the time in which it should end by itself, before it is killed.
    """

    start_s: float = 600.0
    heartbeat_s: float = 60.0
    stop_s: float = 60.0
    stop_grace_s: float = 20.0


@dataclass(frozen=True, slots=True)
class End:
    """How it all ended: the exit code, why no further restart was made, and what the last driver said of itself."""

    exit_code: int
    gave_up: str | None = None
    document: Mapping[str, Any] | None = None


class Supervisor:
    """`command` is asked before each start, and told whether a driver has been ready before."""

    def __init__(
        self,
        name: str,
        command: Callable[[bool], Sequence[str]],
        restarts: Restarts,
        notifier: Notifier,
        *,
        limits: SupervisorLimits,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._name = name
        self._command = command
        self._restarts = restarts
        self._notifier = notifier
        self._limits = limits
        self._environment = environment
        self._stop = threading.Event()
        self._was_ready = False

    def stop(self) -> None:
        """Ask for an end between two epochs. May be called by a signal handler."""
        self._stop.set()

    def run(self) -> End:
        """Until the job ends, cannot be mended by a restart, is told to stop, or the strategy gives up."""
        try:
            return self._run()
        finally:
            self._notifier.ended()

    def _run(self) -> End:
        decision: Decision | None = self._restarts.settle_vanished()
        report, document, code = None, None, 0
        while True:
            if isinstance(decision, GiveUp):
                return End(MAY_BE_RESTARTED, decision.why, document)
            if isinstance(decision, RestartAfter):
                self._announce(report, decision)
                if not self._pause(decision.delay_s):
                    return End(self._code_between_lives())
            report, document, code = self._live()
            decision = self._restarts.end(report, stopping=self._stop.is_set())
            if decision is None:
                return End(self._code_between_lives() if report.how in (How.KILLED, How.HUNG) else code, None, document)

    def _announce(self, report: ExitReport | None, decision: RestartAfter) -> None:
        ended = report if report is not None else self._restarts.lives[-1].ended
        if ended is not None:
            line = announce(self._name, ended, decision)
            log.warning("%s", line)
            self._notifier.starting(line)

    def _pause(self, delay_s: float) -> bool:
        """Whether it may go on afterwards. systemd is told meanwhile that all is as it should be."""
        end = time.monotonic() + delay_s
        while not self._stop.is_set() and (left_s := end - time.monotonic()) > 0:
            self._notifier.alive()
            self._stop.wait(min(left_s, 1.0))
        return not self._stop.is_set()

    def _code_between_lives(self) -> int:
        """Told to stop while no driver could publish: all is well if nothing that is decided waits."""
        reached = self._restarts.reached()
        return 0 if reached.settled >= reached.decided else MAY_BE_RESTARTED

    def _live(self) -> tuple[ExitReport, Mapping[str, Any] | None, int]:
        """One driver, from its start to its end."""
        self._restarts.begin()
        begun = time.monotonic()
        driver = DriverProcess(self._command(self._was_ready), self._environment)
        watch = _Watch(driver, self._notifier, self._limits, self._stop)
        why_killed = watch.until_exit()
        self._was_ready = self._was_ready or watch.was_ready
        code = driver.end(grace_s=0.0 if why_killed else _SESSION_GRACE_S)
        lived_s = time.monotonic() - begun
        said = watch.document or {}
        report = _exit_report(code, lived_s, why_killed, said)
        return report, watch.document, code


class _Watch:
    """Over one driver."""

    def __init__(
        self, driver: DriverProcess, notifier: Notifier, limits: SupervisorLimits, stop: threading.Event
    ) -> None:
        self._driver = driver
        self._notifier = notifier
        self._limits = limits
        self._stop = stop
        self._has_beaten = False
        self.was_ready = False
        self.document: Mapping[str, Any] | None = None

    def until_exit(self) -> str | None:
        """Wait for its end, or bring it about; then why.

        Silence is counted in steps of at most two ticks: if we ourselves stood still, as a machine that is suspended
        does, that is not held against the driver.
        """
        silent_s, before, told_at = 0.0, time.monotonic(), None
        while not self._driver.has_exited():
            heard = self._listen()
            now = time.monotonic()
            silent_s = 0.0 if heard else silent_s + min(now - before, 2 * _TICK_S)
            before = now
            if told_at is None and self._stop.is_set():
                told_at = now
                self._notifier.stopping()
                self._driver.terminate()
            if (why := self._why_overdue(silent_s, None if told_at is None else now - told_at)) is not None:
                self._driver.kill()
                return why
        self._hear(self._driver.last_messages())
        return None

    def _why_overdue(self, silent_s: float, stopping_s: float | None) -> str | None:
        if stopping_s is not None:
            allowed_s = self._limits.stop_s + self._limits.stop_grace_s
            return f"it did not stop within {spoken(allowed_s)}" if stopping_s > allowed_s else None
        if not self._has_beaten:
            start_s = self._limits.start_s
            return f"Spark had not started after {spoken(start_s)}" if silent_s > start_s else None
        limit_s = self._limits.heartbeat_s
        return f"no heartbeat through its JVM for {spoken(limit_s)}" if silent_s > limit_s else None

    def _listen(self) -> bool:
        """Whether it gave a sign of life."""
        heard = self._hear(self._driver.messages(_TICK_S))
        if heard or not self._has_beaten:
            # While Spark starts there is no JVM to ask; its time is bounded by us.
            self._notifier.alive()
        return heard

    def _hear(self, messages: Sequence[Message]) -> bool:
        heard = False
        for message in messages:
            match message:
                case Beat():
                    heard = self._has_beaten = True
                case Ready():
                    heard = self.was_ready = True
                    if not self._stop.is_set():
                        self._notifier.ready()
                case Stopping():
                    self._stop.set()
                case Failed():
                    self.document = message.document
        return heard


def _exit_report(code: int, lived_s: float, why_killed: str | None, said: Mapping[str, Any]) -> ExitReport:
    if why_killed is not None:
        return ExitReport(How.HUNG, lived_s, signal="SIGKILL", message=why_killed)
    if code < 0:
        return ExitReport(How.KILLED, lived_s, signal=_signal_name(-code))
    how = How.STOPPED if code == 0 else How.REFUSED if code in _REFUSALS else How.FAILED
    error, message = (None if said.get(key) is None else str(said[key]) for key in ("error", "first_line"))
    return ExitReport(how, lived_s, exit_code=code, error=error, message=message)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
