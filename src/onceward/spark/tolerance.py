"""When staging rests: between two epochs, and between a failure and the next try."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from onceward.errors import EpochTimedOut, OncewardError
from onceward.spark.cause import in_one_line, is_programming_error

log = logging.getLogger("onceward")
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class StoppedMeanwhile(Exception):
    """The run was stopped while a failed epoch waited for its next try."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many failures in a row are tolerated."""

    failures: int

    def tolerates(self, error: Exception, failures: int, stop_asked: threading.Event) -> bool:
        """Whether the epoch is to be staged again after this failure; if so, when it is time to.

        `StoppedMeanwhile` when the run is stopped before that.
        """
        if failures >= self.failures or stop_asked.is_set() or not may_go_away(error):
            return False
        pause_s = back_off(failures)
        log.warning(
            "an epoch could not be staged and was aborted (failure %d of %d that are tolerated); it is staged again in "
            "%.1f s: %s",
            failures + 1,
            self.failures,
            pause_s,
            in_one_line(error),
        )
        if stop_asked.wait(pause_s):
            raise StoppedMeanwhile
        return True


def may_go_away(error: Exception) -> bool:
    """Whether the same epoch may succeed when it is staged again: a target was away, an executor lost, time short."""
    if isinstance(error, OncewardError):
        return error.exit_code == EpochTimedOut.exit_code
    return not is_programming_error(error)


def back_off(failures: int) -> float:
    """How long to wait after a failure, of which there were so many before in a row."""
    return min(_FIRST_PAUSE_S * 2.0 ** min(failures, 10), _LONGEST_PAUSE_S)


def pause_left(pause_s: float, *, ended: float, now: float) -> float:
    """How much of a pause since `ended` is still to come; never more than all of it, however the clock was set."""
    return min(max(ended + pause_s - now, 0.0), pause_s)
