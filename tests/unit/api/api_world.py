"""A run of the real protocol over the fake engine, with everything that looks on: what the API is tested with."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from onceward.admin import in_doubt
from onceward.api.served import Served
from onceward.contracts import Handle, Outcome, RetryLater
from onceward.contracts.events import Begun, EngineReported, Failed, StateSize
from onceward.epoch import InDoubtTracker, Outage, RunContext, RunStatus
from onceward.epoch.reap import pending_transactions
from onceward.history import HistoryLog, Recorder
from onceward.identity import RunId
from onceward.journal import Retention
from onceward.metrics import Meter, StatusGauges, exposition
from onceward.metrics.gauges import RunLabels
from onceward.savepoints import SavepointTasks
from onceward.storage import LocalStorage
from onceward.testing import (
    Behaviour,
    DirectoryLogs,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    ManualClock,
    MemoryStorage,
    MemoryTarget,
    SinkUnderTest,
    Source,
)

TOKEN = "a-token-for-tests-only"
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}
DELIVERED = 3
"""Epochs 0 to 2 are settled, 3 is decided and waits, 4 failed once and is in flight."""


class Gate(FakeTwoPhaseSink):
    """Commits nothing while it is shut."""

    is_open = True

    def commit(self, handle: Handle) -> Outcome:
        return super().commit(handle) if self.is_open else RetryLater("the gate is shut", after_s=0.5)


@dataclass
class HarnessRun:
    """A run as the API sees one, over the context of a harness."""

    context: RunContext
    tracker: InDoubtTracker
    outage: Outage | None = None
    is_stopping: bool = False
    stops: int = 0
    fails: Exception | None = None

    def status(self) -> RunStatus:
        if self.fails is not None:
            raise self.fails
        decisions = self.context.decisions
        return RunStatus(
            name=self.context.job.name,
            active=True,
            planned=decisions.planned(),
            decided=decisions.decided(),
            settled=self.context.watermark(),
            in_doubt=self.tracker.report(),
            outage=self.outage,
        )

    def request_stop(self) -> None:
        self.is_stopping = True
        self.stops += 1


@dataclass
class World:
    """What `made` has made."""

    harness: Harness
    gate: Gate
    recorder: Recorder
    meter: Meter
    run: HarnessRun
    served: Served
    looks: list[int] = field(default_factory=list)


def made(checkpoint: Path, *, delivered: int = DELIVERED, on_disk: bool = False) -> World:
    """Three epochs through, one that its target does not take, one in flight."""
    storage = LocalStorage(checkpoint / "onceward") if on_disk else MemoryStorage()
    gate, other = Gate(MemoryTarget()), MemoryTarget()
    clock = ManualClock()
    harness = Harness(
        SinkUnderTest(gate, lambda: gate.target.rows),
        SinkUnderTest(FakeTransactionalSink(other), lambda: other.rows),
        source=Source(ends=tuple(range(4, 4 * (delivered + 2), 4)), keys=2),
        clock=clock,
        storage=storage,
        logs=DirectoryLogs(checkpoint) if on_disk else None,
    )
    meter = Meter([sink.name for sink in harness.sinks])
    reports = [
        EngineReported(
            epoch, clock.now(), {"walCommit": 16, "getBatch": 3}, 4, {"rate": "7"}, (StateSize("agg", 2, 900),)
        )
        for epoch in range(delivered)
    ]
    recorder = Recorder(
        HistoryLog(harness.storage), clock, keep=Retention(epochs=100), every_s=0.01, then=(meter.finished,)
    )
    recorder.begin(RunId("life-1"))
    recorder.ask(lambda: reports)
    behaviour = Behaviour(listeners=(recorder, meter))
    assert harness.life(behaviour=behaviour, until=delivered - 1) == Finished()
    gate.is_open = False
    assert harness.life(behaviour=behaviour, until=delivered) != Finished()
    now, barrier = clock.now(), clock.now() - timedelta(seconds=1)
    for event in (
        Begun(delivered + 1, now, barrier, 0, "exactly-once"),
        Failed(delivered + 1, now, "OSError", "no space"),
        Begun(delivered + 1, now + timedelta(seconds=5), barrier, 1, "exactly-once"),
    ):
        recorder(event)
        meter(event)
    context = harness.context()
    tracker = InDoubtTracker(context)
    tracker.note(one for one in pending_transactions(context) if one.sink == gate.name)
    run = HarnessRun(context, tracker, Outage(gate.name, delivered, "the gate is shut", now))
    labels = RunLabels(context.job.name, context.job.generation, context.run, context.guarantee.value, "0")
    started_at = datetime(2026, 1, 1, tzinfo=UTC)
    names = [sink.name for sink in context.sinks]
    meter.registry.register(StatusGauges(run.status, labels, sinks=names, started_at=started_at, max_unpublished=10))
    looks: list[int] = []

    def look() -> list[object]:
        looks.append(1)
        return list(in_doubt(context))

    served = Served(
        run=run,
        context=context,
        recorder=recorder,
        checkpoint=str(checkpoint),
        started_at=started_at,
        max_unpublished=10,
        metrics=lambda: exposition(meter.registry),
        look=look,
        savepoints=SavepointTasks(checkpoint, clock=clock, spark="4.3.0"),
    )
    return World(harness, gate, recorder, meter, run, served, looks)
