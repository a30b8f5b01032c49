"""What is read when someone asks: where the run stands now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from onceward.epoch import RunStatus
from onceward.identity import SinkName


@dataclass(frozen=True, slots=True)
class RunLabels:
    """What tells this run from others."""

    name: str
    generation: str
    run: str
    guarantee: str
    version: str


class StatusGauges(Collector):
    """One look at the status for all of them. Asks no target."""

    def __init__(
        self,
        status: Callable[[], RunStatus],
        labels: RunLabels,
        *,
        sinks: Iterable[SinkName],
        started_at: datetime,
        max_unpublished: int,
    ) -> None:
        self._status, self._labels, self._sinks = status, labels, tuple(sinks)
        self._started_at, self._max_unpublished = started_at, max_unpublished

    def describe(self) -> Iterable[Metric]:
        """None in advance: the registry need not look at a run to take this in."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """As it stands now."""
        status, labels = self._status(), self._labels
        about = {
            "name": labels.name,
            "generation": labels.generation,
            "run": labels.run,
            "guarantee": labels.guarantee,
            "version": labels.version,
        }
        run = GaugeMetricFamily("onceward_run_info", "Which run this is; always 1.", labels=list(about))
        run.add_metric(list(about.values()), 1)
        yield run
        yield _one("onceward_run_active", "1 while Spark runs the query.", status.active)
        yield _one(
            "onceward_run_start_time_seconds",
            "When the run began, in seconds since 1970; a change is a restart.",
            self._started_at.timestamp(),
        )
        newest = GaugeMetricFamily(
            "onceward_newest_epoch", "The newest epoch that has come so far; -1 for none.", labels=["step"]
        )
        for step, epoch in (("planned", status.planned), ("decided", status.decided), ("settled", status.settled)):
            newest.add_metric([step], epoch)
        yield newest
        yield _one("onceward_unpublished_epochs", "Decided epochs that are not settled.", status.unpublished)
        yield _one(
            "onceward_unpublished_epochs_limit",
            "With more than so many of them staging is held back.",
            self._max_unpublished,
        )
        outage = GaugeMetricFamily(
            "onceward_outage", "1 while deliveries to this sink fail and are being repeated.", labels=["sink"]
        )
        for sink in self._sinks:
            outage.add_metric([sink], status.outage is not None and status.outage.sink == sink)
        yield outage
        yield from _in_doubt(status)


def _in_doubt(status: RunStatus) -> Iterator[Metric]:
    """A sink whose target nobody has looked at yet has no series: nothing is known, which is not zero."""
    known = [one for one in status.in_doubt if one.looked_at is not None]
    count = GaugeMetricFamily(
        "onceward_in_doubt_transactions",
        "Transactions that wait in a target, as the publisher last saw it.",
        labels=["sink"],
    )
    oldest = GaugeMetricFamily(
        "onceward_in_doubt_oldest_seconds", "Age of the oldest of them; 0 where there is none.", labels=["sink"]
    )
    for one in known:
        count.add_metric([one.sink], one.transactions)
        oldest.add_metric([one.sink], one.oldest_s or 0.0)
    yield count
    yield oldest


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
