"""The three promises a job can make, ordered from weak to strong."""

from __future__ import annotations

from enum import Enum


class Guarantee(Enum):
    """What a reader of the target may rely on after any number of crashes."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"

    def covers(self, wanted: Guarantee) -> bool:
        """Whether a sink that gives this one can serve a job that asks for `wanted`.

        Every sink can be run at most once (the job then never delivers an epoch twice), so only the step from
        at-least-once to exactly-once needs an able sink.
        """
        return wanted is not Guarantee.EXACTLY_ONCE or self is Guarantee.EXACTLY_ONCE
