"""`keep_published` and `keep_history`, as users write them."""

from __future__ import annotations

import re
from typing import Final

from onceward.errors import ConfigurationError
from onceward.journal import Retention

_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_TEXT = re.compile(r"(\d+(?:\.\d+)?) *(second|minute|hour|day|week)s?")


def retention_from(keep: str | int, *, option: str = "keep_published") -> Retention:
    """A number of epochs, or a time such as "24 hours"."""
    if isinstance(keep, int) and not isinstance(keep, bool) and keep >= 0:
        return Retention(epochs=keep)
    match = _TEXT.fullmatch(keep.strip().lower()) if isinstance(keep, str) else None
    if match is None:
        raise ConfigurationError(
            f"{option} {keep!r} is neither a number of epochs nor a time",
            hint='say "24 hours", "7 days", or a number of epochs; 0 keeps none',
        )
    return Retention(epochs=None, seconds=float(match[1]) * _UNITS[match[2]])
