"""What a job says about Spark's `writeStream`, in Spark's own words."""

from __future__ import annotations

import re

from onceward.errors import ConfigurationError

_ONE = r"(?:\d+ *(?:microsecond|millisecond|second|minute|hour|day|week)s?|\d+\.\d+ *seconds?)"
_INTERVAL = re.compile(rf"(?:interval +)?{_ONE}(?: +{_ONE})*")
_ASYNC_PROGRESS = "asyncprogresstrackingenabled"


def refuse_async_progress(options: dict[str, str]) -> None:
    """Refuse the option under which Spark's logs do not mean what they say."""
    for key, value in options.items():
        if key.lower() == _ASYNC_PROGRESS and str(value).lower() == "true":
            raise ConfigurationError(
                "async progress tracking is on: Spark then decides epochs it has not recorded, and a restart changes "
                "which rows belong to which epoch",
                hint=f"remove the option {key}",
            )


def trigger_arguments(trigger: str | None) -> dict[str, str | bool]:
    """Spark's keyword arguments for our trigger."""
    if trigger is None:
        return {}
    if trigger == "available-now":
        return {"availableNow": True}
    if not isinstance(trigger, str):
        raise ConfigurationError(
            f"the trigger is {trigger!r}, not a text", hint='use "10 seconds", "available-now", or None'
        )
    first = trigger.split()[0].lower() if trigger.strip() else ""
    if first in {"continuous", "real-time", "realtime"}:
        raise ConfigurationError(
            f"the trigger {trigger!r} has no micro-batches, so there is no decision to deliver by",
            hint='use an interval such as "1 second", "available-now", or None for as fast as possible',
        )
    if not _INTERVAL.fullmatch(trigger.strip().lower()):
        raise ConfigurationError(
            f"the trigger {trigger!r} is no interval that Spark knows",
            hint='use "10 seconds" (or milliseconds, minutes, hours, days), "available-now", or None',
        )
    return {"processingTime": trigger}
