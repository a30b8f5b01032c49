"""Lengths of time as users write them: a number of seconds, or a text such as "10 s" or "1 hour 30 minutes"."""

from __future__ import annotations

import math
import re
from typing import Final

from onceward.errors import ConfigurationError

Duration = float | str
"""Seconds, or a text."""

_SECONDS: Final = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 0.000_001),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}
_ONE = re.compile(r"(\d+(?:\.\d+)?) *([a-z]+)")
_ALL = re.compile(rf"{_ONE.pattern}(?: *{_ONE.pattern})*")


def text_in_seconds(text: str) -> float | None:
    """What the text says, None where it is no length of time."""
    plain = text.strip().lower()
    if not _ALL.fullmatch(plain):
        return None
    parts = _ONE.findall(plain)
    if any(unit not in _SECONDS for _, unit in parts):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def in_seconds(value: Duration, *, what: str, at_least: float = 0.0) -> float:
    """The same in seconds; `what` names the option in the refusal."""
    given: object = value
    seconds: float | None = None
    if isinstance(given, str):
        seconds = text_in_seconds(given)
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        seconds = float(given)
    if seconds is None or not math.isfinite(seconds):
        raise ConfigurationError(
            f"{what} is {value!r}, which is no length of time",
            hint='give a number of seconds, or a text such as "10 s", "5 minutes" or "1 hour 30 minutes"',
        )
    if seconds < at_least:
        raise ConfigurationError(f"{what} is {value!r}: too short", hint=f"give {at_least:g} seconds or more")
    return seconds


def spoken(seconds: float) -> str:
    """For messages: `0.5 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" + (f" {minutes} min" if minutes else "")
