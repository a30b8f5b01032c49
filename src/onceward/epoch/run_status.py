"""Where a run stands, as a value: for its user, the command, the API and the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from onceward.epoch.deliver import Outage
from onceward.epoch.in_doubt import InDoubtSummary


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a run stands: planned by Spark, decided by Spark, settled in every target.

    `in_doubt` counts, for each two-phase sink, the transactions that wait in its target, with the age of the oldest.
    The publisher looks now and then, and more often while a delivery fails. `error` is what ended the run, or will when
    someone waits for it. `outage` is a delivery that fails and is being repeated.
    """

    name: str
    active: bool
    planned: int
    decided: int
    settled: int
    in_doubt: tuple[InDoubtSummary, ...] = ()
    error: str | None = None
    outage: Outage | None = None

    @property
    def unpublished(self) -> int:
        """How many decided epochs wait to be published."""
        return max(0, self.decided - self.settled)
