"""Restart strategies as they are written on a command line: `none`, `fixed-delay:3:10s`, `exponential-delay`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Final

from onceward.errors import ConfigurationError
from onceward.restart.strategy import ExponentialDelay, FailureRate, FixedDelay, NoRestart, RestartStrategy

_NAMES: Final[dict[str, type[RestartStrategy]]] = {
    "none": NoRestart,
    "fixed-delay": FixedDelay,
    "failure-rate": FailureRate,
    "exponential-delay": ExponentialDelay,
}
_HINT: Final = (
    "write none, fixed-delay:ATTEMPTS:DELAY, failure-rate:MAX_FAILURES:INTERVAL:DELAY or "
    "exponential-delay:INITIAL:MAXIMUM:MULTIPLIER:JITTER:RESET_AFTER:ATTEMPTS; what is left out at the end keeps its "
    "default, and - as ATTEMPTS is without end: fixed-delay:3:10s"
)


def strategy_from(text: str) -> RestartStrategy:
    """The strategy of that spelling, its arguments in the order of the class."""
    name, *given = (part.strip() for part in text.split(":"))
    kind = _NAMES.get(name)
    if kind is None or len(given) > len(fields(kind)):
        raise ConfigurationError(f"--restart {text!r} is no restart strategy", hint=_HINT)
    make: Callable[..., RestartStrategy] = kind
    try:
        return make(*map(_argument, given))
    except ConfigurationError as error:
        raise ConfigurationError(f"--restart {text!r}: {error.message}", hint=error.hint) from error


def _argument(text: str) -> int | float | str | None:
    if text == "-":
        return None
    if re.fullmatch(r"\d+", text):
        return int(text)
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else text
