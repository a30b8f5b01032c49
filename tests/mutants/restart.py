"""Restarting: the strategies, the history of lives, and the supervisor."""

from __future__ import annotations

from mutants.mutant import Mutant

STRATEGIES = ("tests/unit/restart/test_strategies.py",)
HISTORY = ("tests/unit/restart/test_history.py",)
SUPERVISOR = ("tests/unit/restart/test_supervisor.py",)

RULES = (
    Mutant(
        name="restart-fixed-delay-counts-to-its-attempts",
        rule="A fixed delay gives up at the failure after its last attempt.",
        file="restart/strategy.py",
        old='since = "since an epoch was published"\n        if self.attempts is not None and row > self.attempts:',
        new='since = "since an epoch was published"\n        if self.attempts is not None and row > self.attempts + 1:',
        tests=STRATEGIES,
    ),
    Mutant(
        name="restart-published-epochs-end-the-row",
        rule="An epoch that was published begins the count of a fixed delay anew.",
        file="restart/strategy.py",
        old="lambda failure: failure.published",
        new="lambda failure: False",
        tests=STRATEGIES,
    ),
    Mutant(
        name="restart-failures-outside-the-interval",
        rule="A failure rate counts the failures of its interval, and no others.",
        file="restart/strategy.py",
        old="if now - failure.at < timedelta",
        new="if now - failure.at <= timedelta",
        tests=STRATEGIES,
    ),
    Mutant(
        name="restart-a-long-life-resets",
        rule="A life of reset_after begins an exponential delay anew.",
        file="restart/strategy.py",
        old="failure.lived_s >= reset_s",
        new="failure.lived_s > reset_s",
        tests=STRATEGIES,
    ),
    Mutant(
        name="restart-jitter-keeps-to-the-maximum",
        rule="No delay is longer than the maximum, with its jitter either.",
        file="restart/strategy.py",
        old="return min(plain_s * (1 + self.jitter * share), maximum_s)",
        new="return plain_s * (1 + self.jitter * share)",
        tests=STRATEGIES,
    ),
    Mutant(
        name="restart-a-clean-stop-resets",
        rule="A clean stop begins every count anew.",
        file="restart/history.py",
        old="found.clear()",
        new="continue",
        tests=HISTORY,
    ),
    Mutant(
        name="restart-vanished-lives-count",
        rule="A life that nobody saw the end of is a failure.",
        file="restart/history.py",
        old="case How.STOPPED:\n                found.clear()",
        new="case How.VANISHED:\n                pass\n            case How.STOPPED:\n                found.clear()",
        tests=HISTORY,
    ),
    Mutant(
        name="restart-history-keeps-what-is-counted",
        rule="As many lives are kept as the strategy counts.",
        file="restart/history.py",
        old="[: -max(keep, KEPT)]",
        new="[:-KEPT]",
        tests=HISTORY,
    ),
    Mutant(
        name="restart-no-secret-is-kept",
        rule="What is kept of an error has no password in it.",
        file="restart/exit_report.py",
        old='_IN_URL.sub("***@", line)',
        new="line",
        tests=HISTORY,
    ),
    Mutant(
        name="restart-refusals-are-not-restarted",
        rule="Exit codes 1, 2 and 4 end it: no restart mends them.",
        file="restart/supervisor.py",
        old="_REFUSALS: Final = (1, 2, 4)",
        new="_REFUSALS: Final = (1, 2)",
        tests=SUPERVISOR,
    ),
    Mutant(
        name="restart-the-whole-session-is-killed",
        rule="What outlives its driver is killed before the next begins.",
        file="restart/driver_process.py",
        old="        kill_session(self.pid)\n        code = self._process.wait()",
        new="        code = self._process.wait()",
        tests=SUPERVISOR,
    ),
    Mutant(
        name="restart-a-silent-driver-is-killed",
        rule="A driver whose JVM does not answer is replaced.",
        file="restart/supervisor.py",
        old="if silent_s > limit_s else None",
        new="if silent_s > limit_s and self._stop.is_set() else None",
        tests=(f"{SUPERVISOR[0]}::test_a_driver_that_falls_silent_is_killed_with_all_of_its_session",),
    ),
    Mutant(
        name="restart-accepted-for-one-start",
        rule="A consequence that was accepted for one start is not accepted at a later restart.",
        file="restart/supervisor.py",
        old="self._was_ready = self._was_ready or watch.was_ready",
        new="self._was_ready = False",
        tests=SUPERVISOR,
    ),
    Mutant(
        name="restart-not-ready-without-a-driver",
        rule="The ready file goes when its driver does.",
        file="restart/notifier.py",
        old='self._remove()\n        notify_systemd(f"STATUS={self._name}: {why}"',
        new='notify_systemd(f"STATUS={self._name}: {why}"',
        tests=SUPERVISOR,
    ),
    Mutant(
        name="restart-the-driver-does-not-speak-to-systemd",
        rule="A supervised driver does not feed the watchdog by itself.",
        file="restart/driver_process.py",
        old="**without_systemd(inherited)",
        new="**inherited",
        tests=SUPERVISOR,
    ),
)
