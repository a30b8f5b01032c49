"""The real protocol over the fake engine: run, crash, restart, until the source is drained. Milliseconds, no JVM.

::

    target = MemoryTarget()
    harness = Harness(SinkUnderTest(FakeTwoPhaseSink(target), lambda: target.rows), source=Source(ends=(4, 8)))
    harness.life(CrashAt(17))      # a driver that dies at point 17
    harness.drain()                # fresh drivers until everything is delivered
    assert harness.problems() == []
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from onceward.admin import warn_of_strays
from onceward.contracts import AnySink, Clock, Guarantee, Hooks, Storage, TwoPhaseCommitSink
from onceward.contracts.events import Listener
from onceward.epoch import (
    Coordinator,
    EpochAssignment,
    Publisher,
    PublishLimits,
    RunContext,
    SlotAck,
    stage_epoch,
    stage_slot,
)
from onceward.errors import OncewardError, StorageFailed
from onceward.identity import JobName, SinkName
from onceward.journal import IdentityFile, KeptLog
from onceward.recovery import Accept, Plan, look_at, open_checkpoint
from onceward.testing.audit import Audit, audit
from onceward.testing.engine import Batch, ConcurrentUpdate, Engine, EngineLogs, MemoryLogs, Source
from onceward.testing.fakes import Loss, ManualClock, MemoryStorage, Row
from onceward.testing.faults import Crash, Faults, TargetError, shown
from onceward.testing.wrappers import FaultyLogs, FaultyStorage, with_faults
from onceward.wal import SegmentStore

_ATTEMPTS_OF_A_TASK = 4


@dataclass(frozen=True, slots=True)
class SinkUnderTest:
    """A sink, and the way to read its target as any other reader would. `ordered`: the target keeps an order."""

    sink: AnySink
    read: Callable[[], Sequence[Row]]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Finished:
    """The driver drained the source, published everything, and reported success."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The driver died."""

    where: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The driver stopped with an error."""

    error: Exception


Ending = Finished | Crashed | Failed


@dataclass(slots=True)
class Behaviour:
    """How tasks and publisher behave in one life; every answer may be drawn from a seed.

    `lost_attempts` says how many attempts of a slot are staged whole and then thrown away before the one that counts;
    `leaves_zombie` whether another attempt lives on and writes when `Harness.zombies` is let loose; `publishes` whether
    the publisher runs after this decision (if not, a later one, or the end of the life, publishes both); `interrupts`
    is called between the tasks of an epoch; `runs_on` gives a task its assignment as it is understood on its host;
    `tolerable_failures` is how often in a row an epoch is staged again in the same life after it failed.
    """

    lost_attempts: Callable[[int, int], int] = lambda epoch, slot: 0
    leaves_zombie: Callable[[int, int], bool] = lambda epoch, slot: False
    publishes: Callable[[int], bool] = lambda epoch: True
    interrupts: Callable[[Publisher], None] = lambda publisher: None
    runs_on: Callable[[EpochAssignment, int], EpochAssignment] = lambda assignment, slot: assignment
    partitions: Callable[[int], int] = lambda epoch: 2
    tolerable_failures: int = 0
    hooks: Hooks = field(default_factory=Hooks)
    listeners: tuple[Listener, ...] = ()
    accepted: frozenset[Accept] = frozenset()


class Harness:
    """What survives every crash (checkpoint, targets, clock, stray tasks), and the drivers that come and go."""

    def __init__(
        self,
        *subjects: SinkUnderTest,
        source: Source,
        storage: Storage | None = None,
        logs: EngineLogs | None = None,
        clock: Clock | None = None,
        name: str = "job",
        directory_id: str = "here",
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        limits: PublishLimits | None = None,
        rows_in_a_batch: int = 1000,
        keep_entries: int | None = None,
    ) -> None:
        self.subjects = subjects
        self.source = source
        self.storage: Storage = storage if storage is not None else MemoryStorage()
        self.logs: EngineLogs = logs if logs is not None else MemoryLogs()
        self.clock: Clock = clock if clock is not None else ManualClock()
        self.name = JobName(name)
        self.directory_id = directory_id
        self.guarantee = guarantee
        self.limits = limits or PublishLimits(deadline_s=2.0)
        self.rows_in_a_batch = rows_in_a_batch
        self.keep_entries = keep_entries
        self.zombies: list[Callable[[], object]] = []
        self.unjudged: defaultdict[SinkName, set[int]] = defaultdict(set)
        """Epochs of which the audit says nothing, by sink: given up by a person, or run without the sink."""
        self.trace: list[str] = []
        self.plans: list[Plan] = []
        self._lives = 0

    @property
    def sinks(self) -> tuple[AnySink, ...]:
        """The job's sinks, without faults."""
        return tuple(subject.sink for subject in self.subjects)

    def life(
        self, faults: Faults | None = None, behaviour: Behaviour | None = None, *, until: int | None = None
    ) -> Ending:
        """One driver from start to end. It stops by itself when the source is drained, or past epoch `until`."""
        faults, behaviour = faults or Faults(), behaviour or Behaviour()
        self._lives += 1
        name = f"life-{self._lives}"
        ending: Ending
        try:
            self._live(name, faults, behaviour, until)
            ending = Finished()
        except Crash as crash:
            ending = Crashed(str(crash))
        except (OncewardError, ConcurrentUpdate, TargetError) as error:
            ending = Failed(error)
        self.trace += [f"{name}:", *(f"  {line}" for line in faults.trace), f"  {ending}"]
        return ending

    def drain(self, behaviour: Behaviour | None = None) -> None:
        """A driver that is left alone must finish, whatever happened before it."""
        ending = self.life(None, behaviour)
        if not isinstance(ending, Finished):
            raise AssertionError(f"a driver without any fault ended with {ending}\n{shown(self.trace)}")

    def lose_power(self, loss: Loss) -> None:
        """The machine is gone, and what the checkpoint's disk had not got with it; the targets run elsewhere."""
        assert isinstance(self.storage, MemoryStorage), "only memory can forget what was not synced"
        assert isinstance(self.logs, MemoryLogs), "only memory can forget what was not synced"
        self.zombies.clear()
        self.storage.lose_power(loss)
        self.logs.lose_power(loss)
        self.trace.append("POWER LOSS")

    def release_zombies(self) -> None:
        """Let every stray task attempt write now; what happens to it is nobody's concern."""
        waiting, self.zombies = self.zombies, []
        for zombie in waiting:
            try:
                zombie()
            except Exception as error:
                self.trace.append(f"zombie: {error!r}")
            else:
                self.trace.append("zombie wrote")

    def context(self) -> RunContext:
        """The checkpoint and the targets as they stand, for work by hand."""
        parts = {
            "storage": self.storage,
            "decisions": self.logs,
            "directory_id": self.directory_id,
            "clock": self.clock,
        }
        return look_at(sinks=self.sinks, **parts)[0]  # type: ignore[arg-type]

    def audits(self) -> dict[str, Audit]:
        """What each target has, against the source."""
        return {str(subject.sink.name): self._audit(subject) for subject in self.subjects}

    def _audit(self, subject: SinkUnderTest) -> Audit:
        unjudged = self.unjudged[subject.sink.name]
        if not unjudged:
            return audit(subject.read(), self.source.ids(), ordered=subject.ordered)
        epochs = [epoch for epoch in range(len(self.source.ends)) if epoch not in unjudged]
        rows = [row for row in subject.read() if row["epoch"] not in unjudged]
        return audit(rows, [i for epoch in epochs for i in self.source.rows_of(epoch)], ordered=subject.ordered)

    def problems(self) -> list[str]:
        """Everything that contradicts what the job and its sinks promise; empty when all is well."""
        found = []
        for subject, result in zip(self.subjects, self.audits().values(), strict=True):
            wanted = self.guarantee if self.guarantee is not Guarantee.EXACTLY_ONCE else subject.sink.guarantee
            kept = {
                Guarantee.EXACTLY_ONCE: result.exactly_once,
                Guarantee.AT_LEAST_ONCE: result.at_least_once,
                Guarantee.AT_MOST_ONCE: result.at_most_once,
            }[wanted]
            if not kept:
                found.append(f"{subject.sink.name}: {result}")
        return found + self._versions_apart() + self.leftovers()

    def leftovers(self) -> list[str]:
        """What a job that is done must not leave behind: transactions, segments, manifests."""
        record = IdentityFile(self.storage).read()
        if record is None:
            return []
        found = [
            f"{sink.name}: transaction {handle.get('transaction')} is still pending"
            for sink in self.sinks
            if isinstance(sink, TwoPhaseCommitSink)
            for handle in sink.pending(record.identity)
        ]
        kept = KeptLog(self.storage).epochs()
        found += [
            f"segment {h['segment']} is still there"
            for h in SegmentStore(self.storage).pending(record.identity, besides=kept)
        ]
        return found + [f"manifests/{name} is still there" for name in self.storage.names("manifests")]

    def _versions_apart(self) -> list[str]:
        """Sinks with an exact guarantee must show one and the same computation of an epoch."""
        exact = [o for o in self.subjects if o.sink.guarantee is Guarantee.EXACTLY_ONCE]
        if len(exact) < 2 or self.guarantee is not Guarantee.EXACTLY_ONCE:
            return []
        versions: defaultdict[int, set[str]] = defaultdict(set)
        for subject in exact:
            for row in subject.read():
                if row["epoch"] not in self.unjudged[subject.sink.name]:
                    versions[row["epoch"]].add(row["version"])
        return [f"epoch {n} differs between sinks: {sorted(v)}" for n, v in versions.items() if len(v) > 1]

    def _live(self, name: str, faults: Faults, behaviour: Behaviour, until: int | None) -> None:
        logs = FaultyLogs(self.logs, faults)
        opened = open_checkpoint(
            name=self.name,
            sinks=tuple(with_faults(sink, faults) for sink in self.sinks),
            guarantee=self.guarantee,
            storage=FaultyStorage(self.storage, faults),
            decisions=logs,
            directory_id=self.directory_id,
            clock=self.clock,
            hooks=behaviour.hooks,
            listeners=behaviour.listeners,
            accepted=behaviour.accepted,
            limits=self.limits,
            on_plan=self.plans.append,
        )
        warn_of_strays(opened.context, self.limits)
        driver = _Driver(self, opened.context, opened.coordinator, Publisher(opened.context, self.limits), behaviour)
        engine = Engine(
            logs=logs,
            source=self.source,
            clock=self.clock,
            run_name=name,
            partitions=behaviour.partitions,
            keep_entries=self.keep_entries,
            rows_in_a_batch=self.rows_in_a_batch,
        )
        engine.run(driver.foreach_batch, on_progress=driver.on_progress, until=until)
        driver.finish()


@dataclass(slots=True)
class _Driver:
    """What onceward's bridge does for Spark, for the fake engine."""

    harness: Harness
    context: RunContext
    coordinator: Coordinator
    publisher: Publisher
    behaviour: Behaviour
    _attempts: int = 0

    def foreach_batch(self, batch: Batch) -> None:
        computations = count()

        def work(assignment: EpochAssignment | None) -> None:
            # No two computations agree.
            again = next(computations)
            computed = replace(batch, version=f"{batch.version}.{again}") if again else batch
            if assignment is not None:
                self.coordinator.finish(assignment, self._stage(assignment, computed), self.harness.limits)

        stage_epoch(self.coordinator, batch.epoch, work, self._tolerates)

    def _tolerates(self, error: Exception, failures: int) -> bool:
        few = failures < self.behaviour.tolerable_failures
        return few and (isinstance(error, TargetError) or getattr(error, "exit_code", 0) == StorageFailed.exit_code)

    def _stage(self, assignment: EpochAssignment, batch: Batch) -> list[SlotAck]:
        acks = []
        try:
            for slot in range(batch.slots):
                acks.append(self._run_task(assignment, batch, slot))
                self.behaviour.interrupts(self.publisher)
        except Exception:
            # What cannot be aborted now is aborted at the next start; the first failure is the one to report.
            with contextlib.suppress(Exception):
                self.coordinator.abort(assignment)
            raise
        return acks

    def on_progress(self, epoch: int) -> None:
        if self.behaviour.publishes(epoch):
            self.publisher.publish_decided()

    def finish(self) -> None:
        """Success is reported only when everything decided, by whomever, is settled."""
        while self.publisher.publish_decided() < self.context.decisions.decided():
            pass
        self.publisher.sweep()

    def _run_task(self, assignment: EpochAssignment, batch: Batch, slot: int) -> SlotAck:
        """Stage one slot as Spark does: lost attempts, stray attempts, and attempts again after a failure."""
        for _ in range(self.behaviour.lost_attempts(batch.epoch, slot)):
            self._attempt(assignment, batch, slot)
        if self.behaviour.leaves_zombie(batch.epoch, slot):
            self._leave_zombie(assignment, batch, slot)
        for left in range(_ATTEMPTS_OF_A_TASK - 1, -1, -1):
            try:
                return self._attempt(assignment, batch, slot)
            except (OncewardError, TargetError):
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _attempt(self, assignment: EpochAssignment, batch: Batch, slot: int) -> SlotAck:
        self._attempts += 1
        there = self.behaviour.runs_on(assignment, slot)
        ack = stage_slot(there, slot=slot, attempt=self._attempts, batches=batch.slot(slot, self._attempts))
        return SlotAck.from_json(ack.to_json())

    def _leave_zombie(self, assignment: EpochAssignment, batch: Batch, slot: int) -> None:
        """It runs on an executor, so the driver's death is not its own."""
        self._attempts += 1
        stray = replace(assignment, sinks=self.harness.sinks, storage=self.harness.storage)
        batches = list(batch.slot(slot, self._attempts))
        self.harness.zombies.append(partial(stage_slot, stray, slot=slot, attempt=self._attempts, batches=batches))
