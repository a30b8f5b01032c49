"""Restart strategies: given the failures so far, start again after a pause, or give up. Pure; a test owns the clock.

They are Flink's, by name and by meaning. What counts as a failure, and what makes a history begin anew, is in
`history`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from onceward.durations import Duration, in_seconds, spoken
from onceward.errors import ConfigurationError

_MOST: Final = 1000
"""Failures that a strategy may count. The history is bounded by it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One life that ended in a way that a restart may mend: when, how long it had lasted, and whether an epoch was
    published in it."""

    at: datetime
    lived_s: float
    published: bool


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Start again, so long after the failure. `left` is how many more failures may follow; None: no end is set."""

    delay_s: float
    why: str
    left: int | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not start again."""

    why: str


Decision = RestartAfter | GiveUp


@dataclass(frozen=True, slots=True)
class NoRestart:
    """Never start again: whatever started us is told by the exit code, and does as it likes."""

    def decide(self, failures: Sequence[Failure], now: datetime) -> Decision:
        """Give up at the first failure."""
        return GiveUp("the job has no restart strategy")

    @property
    def remembers(self) -> int:
        """How many failures a decision looks at."""
        return 1


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Start again up to `attempts` times in a row, each time after `delay`.

    An epoch that is published ends the row: the next failure is the first again. `attempts` None: without end.
    """

    attempts: int | None = None
    delay: Duration = "10 s"

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        _check_count("FixedDelay", "attempts", self.attempts)
        in_seconds(self.delay, what="delay of FixedDelay")

    def decide(self, failures: Sequence[Failure], now: datetime) -> Decision:
        """By the number of failures since an epoch was published."""
        row = _count_until(failures, lambda failure: failure.published)
        since = "since an epoch was published"
        if self.attempts is not None and row > self.attempts:
            return GiveUp(f"{_failures(row)} {since}, and {_restarts(self.attempts)} {_are(self.attempts)} allowed")
        delay_s = in_seconds(self.delay, what="delay")
        left = None if self.attempts is None else self.attempts - row
        return RestartAfter(delay_s, f"failure {row} {since}", left)

    @property
    def remembers(self) -> int:
        """How many failures a decision looks at."""
        return 1 if self.attempts is None else self.attempts + 1


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Start again after `delay` as long as no more than `max_failures` failures fall into one `interval`."""

    max_failures: int = 3
    interval: Duration = "10 minutes"
    delay: Duration = "10 s"

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        _check_count("FailureRate", "max_failures", self.max_failures)
        if self.max_failures is None:
            raise ConfigurationError("max_failures of FailureRate is None", hint="give a number, such as 3")
        in_seconds(self.interval, what="interval of FailureRate", at_least=0.001)
        in_seconds(self.delay, what="delay of FailureRate")

    def decide(self, failures: Sequence[Failure], now: datetime) -> Decision:
        """By the number of failures in the interval that ends now."""
        interval_s = in_seconds(self.interval, what="interval")
        # A failure in the future was written by a clock that was put back since: it is taken for a recent one.
        recent = sum(1 for failure in failures if now - failure.at < timedelta(seconds=interval_s))
        within = f"within {spoken(interval_s)}"
        if recent > self.max_failures:
            return GiveUp(f"{_failures(recent)} {within}, and {self.max_failures} {_are(self.max_failures)} allowed")
        delay_s = in_seconds(self.delay, what="delay")
        return RestartAfter(delay_s, f"failure {recent} {within}", self.max_failures - recent)

    @property
    def remembers(self) -> int:
        """How many failures a decision looks at."""
        return self.max_failures + 1


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Start again after `initial`, then `multiplier` times that, and so on up to `maximum`.

    Each delay is longer or shorter by up to the share `jitter`, so that jobs which failed together do not come back
    together. A life of `reset_after` or longer begins anew at `initial`. Without end, unless `attempts` says how often
    in a row.
    """

    initial: Duration = "1 s"
    maximum: Duration = "1 minute"
    multiplier: float = 1.5
    jitter: float = 0.1
    reset_after: Duration = "1 hour"
    attempts: int | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        of = "of ExponentialDelay"
        initial_s = in_seconds(self.initial, what=f"initial {of}", at_least=0.001)
        in_seconds(self.maximum, what=f"maximum {of}, which initial is not to exceed,", at_least=initial_s)
        in_seconds(self.reset_after, what=f"reset_after {of}", at_least=0.001)
        _check_number("multiplier", self.multiplier, 1.0, 1000.0)
        _check_number("jitter", self.jitter, 0.0, 1.0)
        _check_count("ExponentialDelay", "attempts", self.attempts)

    def decide(self, failures: Sequence[Failure], now: datetime) -> Decision:
        """By the number of failures since a life that was long enough."""
        reset_s = in_seconds(self.reset_after, what="reset_after")
        row = _count_until(failures, lambda failure: failure.lived_s >= reset_s)
        since = f"since a life of {spoken(reset_s)}"
        if self.attempts is not None and row > self.attempts:
            return GiveUp(f"{_failures(row)} {since}, and {_restarts(self.attempts)} {_are(self.attempts)} allowed")
        left = None if self.attempts is None else self.attempts - row
        return RestartAfter(self._delay_s(row, failures[-1].at), f"failure {row} {since}", left)

    def _delay_s(self, row: int, at: datetime) -> float:
        """The jitter follows from the moment of the failure: the same history gives the same delay."""
        initial_s, maximum_s = (in_seconds(one, what="delay") for one in (self.initial, self.maximum))
        # No more steps than it takes to the maximum: a large power would overflow.
        steps = min(row - 1, self._steps())
        plain_s = min(initial_s * self.multiplier**steps, maximum_s)
        digest = hashlib.sha256(f"{at.isoformat()} {row}".encode()).digest()
        share = int.from_bytes(digest[:4], "big") / 0xFFFFFFFF * 2 - 1
        return min(plain_s * (1 + self.jitter * share), maximum_s)

    def _steps(self) -> int:
        initial_s, maximum_s = (in_seconds(one, what="delay") for one in (self.initial, self.maximum))
        return 0 if self.multiplier == 1 else math.ceil(math.log(maximum_s / initial_s, self.multiplier))

    @property
    def remembers(self) -> int:
        """How many failures a decision looks at."""
        return min(max(self._steps() + 1, (self.attempts or 0) + 1), _MOST)


RestartStrategy = NoRestart | FixedDelay | FailureRate | ExponentialDelay
STRATEGIES: Final = (NoRestart, FixedDelay, FailureRate, ExponentialDelay)


def checked_strategy(strategy: object) -> RestartStrategy:
    """The same, if it is one."""
    if not isinstance(strategy, STRATEGIES):
        hint = "use NoRestart(), FixedDelay(3, '10 s'), FailureRate(...) or ExponentialDelay(...), from onceward"
        raise ConfigurationError(f"restart is {strategy!r}, not a restart strategy", hint=hint)
    return strategy


def _count_until(failures: Sequence[Failure], is_first: Callable[[Failure], bool]) -> int:
    """How many in a row, the newest among them, back to the one that began it."""
    row = 0
    for failure in reversed(failures):
        row += 1
        if is_first(failure):
            break
    return row


def _check_count(strategy: str, option: str, count: object) -> None:
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MOST:
        raise ConfigurationError(
            f"{option} of {strategy} is {count!r}",
            hint=f"give a whole number from 0 to {_MOST}"
            + (", or None for without end" if option == "attempts" else ""),
        )


def _check_number(option: str, number: object, low: float, high: float) -> None:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not low <= number <= high:
        raise ConfigurationError(
            f"{option} of ExponentialDelay is {number!r}", hint=f"give a number from {low:g} to {high:g}"
        )


def _failures(count: int) -> str:
    return f"{count} failure" + ("" if count == 1 else "s")


def _restarts(count: int) -> str:
    return f"{count} restart" + ("" if count == 1 else "s")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
