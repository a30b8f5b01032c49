"""`keep_published` and `keep_history`, as users write them."""

from __future__ import annotations

from onceward.durations import text_in_seconds
from onceward.errors import ConfigurationError
from onceward.journal import Retention


def retention_from(keep: str | int, *, option: str = "keep_published") -> Retention:
    """A number of epochs, or a time such as "24 hours"."""
    if isinstance(keep, int) and not isinstance(keep, bool) and keep >= 0:
        return Retention(epochs=keep)
    seconds = text_in_seconds(keep) if isinstance(keep, str) else None
    if seconds is None:
        raise ConfigurationError(
            f"{option} {keep!r} is neither a number of epochs nor a time",
            hint='say "24 hours", "7 days", or a number of epochs; 0 keeps none',
        )
    return Retention(epochs=None, seconds=seconds)
