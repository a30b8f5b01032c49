"""What is counted as it happens: a listener of the events, and of the records that are made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from onceward.contracts.events import Begun, Event, Failed, Retried, Settled, Staged
from onceward.history import PHASES, EpochRecord, duration_s, phases
from onceward.identity import SinkName

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Meter:
    """Of one run, in a registry of its own. Counters begin at zero with each run.

    Labels have few values: outcomes, phases, sinks, operators. None has the number of an epoch.
    """

    def __init__(self, sinks: Iterable[SinkName] = ()) -> None:
        self.registry = registry = CollectorRegistry()
        self._epochs = Counter(
            "onceward_epochs",
            "Epochs that ended in this run: settled, or failed while they were staged.",
            ["outcome"],
            registry=registry,
        )
        self._duration = Histogram(
            "onceward_epoch_duration_seconds",
            "From an epoch's barrier until it is settled.",
            buckets=BUCKETS,
            registry=registry,
        )
        self._phase = Histogram(
            "onceward_epoch_phase_seconds",
            "Where the time of settled epochs went.",
            ["phase"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._input = Counter("onceward_input_rows", "Rows that Spark has read from its sources.", registry=registry)
        self._staged = Counter("onceward_staged_rows", "Rows that were staged.", registry=registry)
        self._bytes = Counter("onceward_staged_bytes", "Bytes in memory of the rows staged.", registry=registry)
        self._rows = Counter("onceward_settled_rows", "Rows that a sink has for good.", ["sink"], registry=registry)
        self._retries = Counter(
            "onceward_delivery_retries", "Deliveries that failed and were repeated.", ["sink"], registry=registry
        )
        self._takeovers = Counter(
            "onceward_takeovers", "Epochs that this run took over from another driver.", registry=registry
        )
        self._state_rows = Gauge(
            "onceward_state_rows",
            "Rows in Spark's state, by stateful operator.",
            ["operator", "name"],
            registry=registry,
        )
        self._state_bytes = Gauge(
            "onceward_state_bytes",
            "Bytes of memory that Spark's state takes, by stateful operator.",
            ["operator", "name"],
            registry=registry,
        )
        # A rate needs a series that was there before: each begins at zero, not with its first event.
        for outcome in ("settled", "failed"):
            self._epochs.labels(outcome)
        for phase in PHASES:
            self._phase.labels(phase)
        for sink in sinks:
            self._rows.labels(sink)
            self._retries.labels(sink)

    def __call__(self, event: Event) -> None:
        """A listener."""
        match event:
            case Begun() if event.takeover:
                self._takeovers.inc()
            case Staged():
                self._staged.inc(sum(slot.rows for slot in event.slots))
                self._bytes.inc(sum(slot.bytes for slot in event.slots))
            case Retried():
                self._retries.labels(event.sink).inc()
            case Settled():
                self._epochs.labels("settled").inc()
                for sink, rows in event.rows.items():
                    self._rows.labels(sink).inc(rows)
            case Failed():
                self._epochs.labels("failed").inc()

    def finished(self, record: EpochRecord) -> None:
        """Of a whole epoch: durations, and what Spark says of it. For `Recorder(then=...)`."""
        self._input.inc(record.input_rows)
        for number, operator in enumerate(record.state):
            self._state_rows.labels(str(number), operator.name).set(operator.rows)
            self._state_bytes.labels(str(number), operator.name).set(operator.bytes)
        if record.outcome != "settled":
            return
        if (took := duration_s(record)) is not None:
            self._duration.observe(took)
        for phase, seconds in phases(record).items():
            self._phase.labels(phase).observe(seconds)
