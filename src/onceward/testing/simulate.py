"""One seed, one history: crashes, lost replies, late requests, zombies, broken disks, two drivers; then the verdict.

`simulate(seed)` is deterministic but for the random names inside transaction ids. A failing seed replays alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from random import Random

from onceward.admin import propose_accept_loss, propose_epoch_is_published, record, replay
from onceward.contracts import AnySink, Guarantee, Log, WriteAheadSink
from onceward.epoch import Publisher, PublishLimits
from onceward.errors import (
    CheckpointRolledBack,
    EpochLost,
    Fenced,
    OutputLost,
    PublishFailed,
    SinkMissing,
    StagedRowsMissing,
    StorageFailed,
    TargetRolledBack,
    TargetUnavailable,
)
from onceward.identity import SinkName
from onceward.journal import Retention, forget_settled
from onceward.journal.settled import KEPT
from onceward.testing.engine import ConcurrentUpdate, Source
from onceward.testing.fake_sinks import (
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    MemoryTarget,
)
from onceward.testing.fakes import ManualClock, Unsynced
from onceward.testing.faults import Chain, Faults, Late, RandomFaults, Rates, TargetError, shown
from onceward.testing.harness import Behaviour, Ending, Failed, Harness, SinkUnderTest
from onceward.testing.hosts import SecondHost
from onceward.testing.interleave import Interleaver, Step
from onceward.testing.watch import Story, Violation, WatchedLogs, WatchedRows, WatchedStorage, Window

_SINK_CASES: tuple[tuple[Callable[..., AnySink], ...], ...] = (
    (FakeTwoPhaseSink,),
    (FakeTransactionalSink,),
    (FakeSlotwiseSink,),
    (FakeTwoPhaseSink, FakeTransactionalSink),
    (FakeSlotwiseSink, FakeTwoPhaseSink),
    (FakeTwoPhaseSink, FakeWriteAheadSink),
)

_ALLOWED_ALONE = (StorageFailed, PublishFailed, TargetError, TargetUnavailable)
# A driver that meets an epoch which another one is just taking over may stop too early with EpochLost. That harms
# nothing: the story goes on, and if the epoch is really lost, a driver that is alone will say so and needs the excuse.
_ALLOWED_IN_COMPANY = (EpochLost, *_ALLOWED_ALONE, Fenced, ConcurrentUpdate)
_CROWDED = 0.3


class Simulation:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = Random(seed)
        self.story = Story(seed)
        self.window = Window()
        self.logs = WatchedLogs(window=self.window)
        self.late = Late()
        self.clock = ManualClock()
        self.tables: list[WatchedRows] = []
        self.targets: list[MemoryTarget] = []
        self.went_back = False
        self.changes_job = rng.random() < 0.15
        self.weak: set[int] = set()
        self.away: defaultdict[int, set[int]] = defaultdict(set)
        self.given_up: set[int] = set()
        ends = [0]
        for _ in range(rng.randint(2, 3)):
            ends.append(ends[-1] + rng.choice((0, 2, 3, 4)))
        self.harness = Harness(
            *(self._subject(kind) for kind in rng.choice(_SINK_CASES)),
            source=Source(tuple(ends[1:])),
            storage=WatchedStorage(window=self.window),
            logs=self.logs,
            clock=self.clock,
            limits=PublishLimits(
                deadline_s=rng.choice((0.05, 1.0)),
                keep_receipts=rng.choice((0, 1, 100)),
                reap_every=rng.choice((1, 2, 20)),
                keep_published=rng.choice((Retention(), Retention(), Retention(epochs=100))),
                look_back_every_s=rng.choice((0.0, 60.0)),
            ),
            rows_in_a_batch=rng.choice((1, 1000)),
            keep_entries=rng.choice((None, None, 2)),
        )
        self.backups = [target.backup() for target in self.targets]

    def _subject(self, kind: Callable[..., AnySink]) -> SinkUnderTest:
        table = WatchedRows(self.logs)
        self.tables.append(table)
        self.targets.append(MemoryTarget(rows=table))
        return SinkUnderTest(kind(self.targets[-1]), lambda: table)

    def run(self) -> Story:
        """Faulty lives first, then one that is left alone, then the verdict."""
        rng = self.rng
        crowded = rng.random() < _CROWDED
        for _ in range(rng.randint(1, 3)):
            if crowded or rng.random() < 0.3:
                self._two_lives(crowded)
            else:
                self._one_life()
            if self.story.refused:
                return self.story
            self._between_lives()
        self._let_late_ones_arrive(chance=0.5)
        if rng.random() < 0.5:
            self.harness.release_zombies()
        self._last_life()
        return self.story

    def _faults(self) -> RandomFaults:
        rng, strong = self.rng, self.rng.random() < 0.5
        rates = Rates(
            crash=rng.choice((0.0, 0.005, 0.02)),
            lost_reply=rng.choice((0.0, 0.01, 0.1)),
            transient=rng.choice((0.0, 0.01, 0.05)),
            disk=rng.choice((0.0, 0.0, 0.01)),
            delayed=rng.choice((0.0, 0.05)) if strong else 0.0,
            repeated=rng.choice((0.0, 0.3)),
            locked=rng.choice((0.0, 0.0, 0.02)),
        )
        return RandomFaults(rng, rates, self.late, self.clock)

    def _behaviour(self) -> Behaviour:
        rng = self.rng
        lost, stray, lazy = rng.choice((0.0, 0.2)), rng.choice((0.0, 0.2)), rng.choice((0.0, 0.5))
        slots = rng.randint(1, 3)

        def interrupt(publisher: Publisher) -> None:
            drawn = rng.random()
            if drawn < 0.2:
                publisher.publish_decided()
            elif drawn < 0.3:
                publisher.sweep()
            elif drawn < 0.4:
                self._let_late_ones_arrive(chance=0.5)
            elif drawn < 0.45:
                self.harness.release_zombies()

        return Behaviour(
            lost_attempts=lambda epoch, slot: int(rng.random() < lost),
            leaves_zombie=lambda epoch, slot: rng.random() < stray,
            publishes=lambda epoch: rng.random() >= lazy,
            interrupts=interrupt,
            partitions=lambda epoch: slots,
            tolerable_failures=(0, 0, 2)[self.story.seed % 3],
        )

    def _one_life(self) -> None:
        changed = self._change_job()
        decided, behaviour = max((n for n, text in self.logs.commits.items() if text), default=-1), self._behaviour()
        allowed: tuple[type[Exception], ...] = _ALLOWED_ALONE
        if self.rng.random() < 0.1:
            # A host that has disks of its own where it should share ours.
            elsewhere = SecondHost.without(self.harness.sinks)
            behaviour.runs_on = elsewhere.some(lambda epoch, slot: self.rng.random() < 0.3)
            allowed = (*allowed, StagedRowsMissing)
        ending = self.harness.life(self._faults(), behaviour)
        self.window.leave(ending)
        changed(range(decided + 1, max(self.logs.offsets, default=-1) + 1))
        self._judge(ending, allowed)

    def _change_job(self) -> Callable[[range], None]:
        """Sometimes the job asks for less, or does without a sink, for one life; what its epochs are then."""
        harness, subjects, drawn = self.harness, self.harness.subjects, self.rng.random() if self.changes_job else 1.0
        if drawn < 0.3:
            harness.guarantee = Guarantee.AT_LEAST_ONCE

            def back(epochs: range) -> None:
                harness.guarantee = Guarantee.EXACTLY_ONCE
                self.weak.update(epochs)
                for subject in subjects:
                    harness.unjudged[subject.sink.name].update(epochs)

            return back
        # Not where a decision was deleted: nobody would ask the target of a sink that is away whether it has the epoch.
        if drawn < 0.6 and len(subjects) == 2 and self.logs.ever_decided in (-1, *self.logs.commits):
            without = self.rng.choice((0, 1))
            harness.subjects = tuple(subject for n, subject in enumerate(subjects) if n != without)

            def again(epochs: range) -> None:
                harness.subjects = subjects
                harness.unjudged[subjects[without].sink.name].update(epochs)
                self.away[without].update(epochs)

            return again
        return lambda epochs: None

    def _two_lives(self, crowded: bool) -> None:
        """Two drivers on one checkpoint, interleaved operation by operation; sometimes a third."""
        self.story.two_drivers = True
        endings: list[Ending] = []

        def life(faults: Faults, behaviour: Behaviour, step: Step) -> None:
            endings.append(self.harness.life(Chain(step, faults), behaviour))
            self.window.leave(endings[-1])

        # Drivers that fail at once do not meet: most of these are left alone by everything but each other.
        calm = Rates(crash=0.002, repeated=0.1)
        count = 3 if self.rng.random() < 0.4 else 2
        cases = [
            RandomFaults(self.rng, calm, self.late) if self.rng.random() < 0.7 else self._faults() for _ in range(count)
        ]
        Interleaver(self.rng, crowded=crowded).run([partial(life, faults, self._behaviour()) for faults in cases])
        for ending in endings:
            self._judge(ending, _ALLOWED_IN_COMPANY)

    def _judge(self, ending: Ending, allowed: tuple[type[Exception], ...]) -> None:
        self.story.lives += 1
        self.story.endings.append(ending)
        if not isinstance(ending, Failed):
            return
        if isinstance(ending.error, allowed):
            return
        self._stopped(ending.error)

    def _stopped(self, error: Exception) -> None:
        """What may stop a driver that nothing disturbs, and what its user does about it."""
        if isinstance(error, EpochLost):
            self._excuse(error)
        elif isinstance(error, CheckpointRolledBack) and self.logs.overwritten:
            self.story.refused = True
        elif isinstance(error, SinkMissing) and self.changes_job:
            self.harness.trace.append("the sink is put back")
        elif isinstance(error, TargetRolledBack) and self.went_back:
            self._restore_published()
        elif isinstance(error, OutputLost) and self.went_back and error.epoch is not None:
            if any(row["epoch"] >= error.epoch for table in self.tables for row in table):
                self._bring_in(error.epoch, SinkName(str(error.sink)))
            else:
                self._compute_again(error.epoch)
        else:
            self._fail(f"a driver stopped with {error!r}")

    def _excuse(self, error: EpochLost) -> None:
        """Allowed only if the epoch was taken over from a driver in the window, and nothing from it on is visible.

        The user then has it computed again, as the error says.
        """
        self.story.excused = True
        epoch = error.epoch if error.epoch is not None else -1
        # What ran at least once was shown before its decision, and may be computed and shown again.
        strict = (row for table in self.tables for row in table if row["epoch"] not in self.weak)
        shown_rows = [row for row in strict if row["epoch"] >= epoch]
        if shown_rows or epoch not in self.window.excused:
            self._fail(f"{error!r}, but {len(shown_rows)} rows of it or of later epochs are visible")
        self.window.excused.pop(epoch)
        if self.rng.random() < 0.3:
            self._give_up(epoch)
            return
        if not self.logs.rewind(epoch):
            self.story.refused = True
        self.window.forget(epoch)
        self.harness.trace.append(f"rewind to {epoch}")

    def _give_up(self, epoch: int) -> None:
        """The other exit: a person accepts the loss, and says so in the checkpoint."""
        proposal = propose_accept_loss(self.harness.context(), epoch=epoch)
        record(self.harness.storage, proposal, by="operator", at=self.clock.now(), because="simulated")
        for subject in self.harness.subjects:
            self.harness.unjudged[subject.sink.name].add(epoch)
        self.given_up.add(epoch)
        self.story.gave_up = True
        self.harness.trace.append(f"the loss of epoch {epoch} is accepted")

    def _bring_in(self, epoch: int, sink: SinkName) -> None:
        """Another sink has it, so a rewind would repeat it there: its rows are copied by hand, and a person says so."""
        mine = self.tables[[one.name for one in self.harness.sinks].index(sink)]
        found = {row["id"]: row for table in self.tables for row in table if row["epoch"] == epoch}
        if set(found) != set(self.harness.source.rows_of(epoch)):
            self._fail(f"epoch {epoch} is lost in {sink}, and no other sink has all of it")
        mine.extend(dict(found[number]) for number in sorted(set(found) - {row["id"] for row in mine}))
        proposal = propose_epoch_is_published(self.harness.context(), epoch=epoch, sink=sink)
        record(self.harness.storage, proposal, by="operator", at=self.clock.now(), because="simulated")
        self.story.by_hand = True
        self.harness.trace.append(f"epoch {epoch} is copied to {sink} by hand")

    def _between_lives(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            self.backups = [target.backup() for target in self.targets]
        drawn = rng.random()
        newest = max(self.logs.commits, default=-1)
        # Not where a second driver wrote over the barrier, or a power loss took it or may yet: what was settled is then
        # another epoch than the one the log has, or one that it has not, and the start is refused as it should be.
        is_durable = self.logs.offsets.get(newest) and (Log.OFFSETS, newest) not in self.logs.unsynced
        if drawn < 0.15 and is_durable and newest not in self.logs.overwritten:
            # The last entry of the commit log is deleted by hand; what was on its way is gone with the machine.
            self.logs.forget_commit(newest)
            self.window.forget(newest)
            self.late.waiting.clear()
            self.harness.trace.append(f"commits/{newest} is forgotten")
        elif drawn < 0.3 and not self.logs.overwritten:
            self._lose_power()
        elif drawn < 0.4:
            self.harness.release_zombies()
        elif drawn < 0.5:
            self._target_goes_back()
        elif drawn < 0.6:
            self.clock.jump(rng.choice((-86400.0, 86400.0)))
        self._let_late_ones_arrive(chance=0.3)

    def _target_goes_back(self) -> None:
        """All are restored from the last backup, the first of which is empty. A plain sink has no receipts to tell by,
        nor have those whose receipts were pruned behind epochs without rows, nor what was brought in by hand."""
        is_plain = any(isinstance(sink, WriteAheadSink) for sink in self.harness.sinks) or self.story.by_hand
        if is_plain or self.changes_job or self.harness.limits.keep_receipts < KEPT or self.logs.overwritten:
            return
        for target, backup in zip(self.targets, self.backups, strict=True):
            target.restore(backup)
        self.late.waiting.clear()
        self.went_back = True
        self.story.went_back = True
        self.harness.trace.append("the targets are restored from a backup")

    def _restore_published(self) -> None:
        """What the error says: replay what was kept, else have Spark compute it again."""
        try:
            replayed = replay(self.harness.context(), self.harness.limits)
            self.harness.trace.append(f"replayed {[one.epoch for one in replayed]}")
        except TargetRolledBack as gone:
            self._compute_again(gone.epoch if gone.epoch is not None else 0)

    def _compute_again(self, epoch: int) -> None:
        """As `rewind --went-back` does it; refused where one target has some of it, or Spark has purged the barrier."""
        if any(row["epoch"] >= epoch for table in self.tables for row in table) or not self.logs.rewind(epoch):
            self.story.refused = True
            return
        forget_settled(self.harness.storage, epoch)
        self.window.forget(epoch)
        self.harness.trace.append(f"rewind to {epoch}, which the targets have lost")

    def _lose_power(self) -> None:
        """Everything that was not synced is torn or gone, each as it is drawn, or all alike."""
        fates = self.rng.choice([list(Unsynced), [Unsynced.EMPTY], [Unsynced.GONE]])
        before = set(self.logs.commits)
        self.harness.lose_power(lambda: self.rng.choice(fates))
        self.late.waiting.clear()
        for epoch in sorted(before - {n for n, text in self.logs.commits.items() if text}):
            self.window.forget(epoch)

    def _let_late_ones_arrive(self, *, chance: float) -> None:
        while self.late.waiting and self.rng.random() < chance:
            self.harness.trace.append(str(self.late.arrive(self.rng)))

    def _last_life(self) -> None:
        """A driver that is left alone; then whatever is still on its way arrives, and another one looks after it."""
        harness = self.harness
        while True:
            ending = harness.life()
            self.window.leave(ending)
            if isinstance(ending, Failed):
                self._stopped(ending.error)
                if self.story.refused:
                    return
                continue
            self._verdict()
            if not (harness.zombies or self.late.waiting):
                return
            harness.release_zombies()
            self._let_late_ones_arrive(chance=1.0)

    def _verdict(self) -> None:
        problems = self.harness.problems()
        early = [row for table in self.tables for row in table.early if row["epoch"] not in self.weak]
        problems += [f"a row of an undecided epoch was visible: {row}" for row in early[:1]]
        problems += self._lost_though_at_least_once()
        if problems:
            self._fail("; ".join(problems))

    def _lost_though_at_least_once(self) -> list[str]:
        """Epochs that ran at least once may be there twice, but not be missing, unless their sink was away."""
        found = []
        for number, table in enumerate(self.tables):
            weak = self.weak - self.away[number] - self.given_up
            wanted = {i for epoch in weak for i in self.harness.source.rows_of(epoch)}
            if lost := wanted - {row["id"] for row in table}:
                found.append(f"lost, though at least once was promised: {sorted(lost)}")
        return found

    def _fail(self, why: str) -> None:
        raise Violation(f"seed {self.story.seed}: {why}\n{shown(self.harness.trace)}")


def simulate(seed: int) -> Story:
    """Play one history; `Violation` with its trace when a promise is broken."""
    return Simulation(seed).run()
