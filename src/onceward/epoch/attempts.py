"""*Stage*, again: an epoch that fails before its decision may be tried more than once in one run.

Each time is a takeover from the time before (`Coordinator.begin_again`), so that nothing of it can be taken for
something of this one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from onceward.epoch.coordinator import Coordinator
from onceward.epoch.stage import EpochAssignment

Work = Callable[[EpochAssignment | None], None]
"""Stages the epoch and finishes it; None: its rows are only to be read."""
Tolerates = Callable[[Exception, int], bool]
"""Whether to go on after this failure, of which there were so many before in a row."""


def stage_epoch(coordinator: Coordinator, epoch: int, work: Work, tolerates: Tolerates) -> None:
    """Begin the epoch and let `work` do it, again after each failure that is tolerated."""
    for failures in itertools.count():
        try:
            work(coordinator.begin_again(epoch) if failures else coordinator.begin(epoch))
            return
        except Exception as error:
            if not tolerates(error, failures):
                raise
