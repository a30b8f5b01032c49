"""One seed, one history: crashes, lost replies, late requests, zombies, broken disks, two drivers; then the verdict.

`simulate(seed)` is deterministic but for the random names inside transaction ids. A failing seed replays alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from onceward.contracts import AnySink
from onceward.epoch import Publisher, PublishLimits
from onceward.errors import EpochLost, Fenced, PublishFailed, StorageFailed, TargetUnavailable
from onceward.testing.engine import ConcurrentUpdate, MemoryLogs, Source
from onceward.testing.fakes import (
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    ManualClock,
    MemoryStorage,
    MemoryTarget,
    Row,
)
from onceward.testing.faults import Chain, Faults, Late, RandomFaults, Rates, TargetError, shown
from onceward.testing.harness import Conduct, Ending, Failed, Harness, Outlet
from onceward.testing.interleave import Interleaver

_CASTS: tuple[tuple[Callable[..., AnySink], ...], ...] = (
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


class Violation(AssertionError):
    """The history broke a promise. Carries what happened before."""


_MANIFEST = re.compile(r"manifests/([0-9]+)\.([0-9]+)\.(json|reserved|fate)")


@dataclass(slots=True)
class Window:
    """Who stands between writing a manifest and writing `commits/N`: the one place from which a driver that was taken
    over can still decide. Drivers are told apart by their thread.

    `contested` are takeovers that were reserved before their epoch was decided. If it is decided just before the
    takeover is fixed, the taker adopts what was decided; should it fail before it has written that down, the epoch is
    lost as well (docs/guarantees.md, "What no one can give").
    """

    inside: dict[int, int] = field(default_factory=dict)
    decided: set[int] = field(default_factory=set)
    contested: set[tuple[int, int]] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)

    def leave(self) -> None:
        """This driver has decided, or is gone."""
        self.inside.pop(threading.get_ident(), None)


@dataclass(slots=True)
class WatchedStorage(MemoryStorage):
    """Notes which takeovers happened while another driver stood in the window."""

    window: Window = field(default_factory=Window)

    def create(self, path: str, data: bytes) -> bool:
        """See `Storage.create`."""
        created = super(WatchedStorage, self).create(path, data)
        if created and (match := _MANIFEST.fullmatch(path)):
            epoch, takeover = int(match[1]), int(match[2])
            stands_inside = epoch in self.window.inside.values()
            if match[3] == "json":
                self.window.inside[threading.get_ident()] = epoch
            elif match[3] == "reserved" and epoch not in self.window.decided:
                self.window.contested.add((epoch, takeover))
            elif b'"taken"' in data and (stands_inside or self._was_decided_meanwhile(epoch, takeover)):
                self.window.excused.add(epoch)
        return created

    def _was_decided_meanwhile(self, epoch: int, takeover: int) -> bool:
        return epoch in self.window.decided and (epoch, takeover) in self.window.contested


@dataclass(slots=True)
class WatchedLogs(MemoryLogs):
    """Remembers what was ever decided, whatever is forgotten later."""

    ever_decided: int = -1
    window: Window = field(default_factory=Window)
    overwritten: set[int] = field(default_factory=set)

    def plan(self, epoch: int, text: str) -> None:
        """See `EngineLogs.plan`. A second driver may have looked before the first one wrote, and write over it."""
        if epoch in self.offsets and self.offsets[epoch] != text:
            self.overwritten.add(epoch)
        self.offsets[epoch] = text

    def commit(self, epoch: int, text: str) -> None:
        """See `EngineLogs.commit`."""
        self.commits[epoch] = text
        self.ever_decided = max(self.ever_decided, epoch)
        self.window.decided.add(epoch)
        self.window.leave()


class WatchedRows(list[Row]):
    """A table that objects to a row of an epoch that nobody has decided."""

    def __init__(self, logs: WatchedLogs) -> None:
        super().__init__()
        self._logs = logs
        self.early: list[Row] = []

    def extend(self, rows: Iterable[Any]) -> None:
        """Add rows; remember those that come too early."""
        rows = list(rows)
        self.early += [row for row in rows if row["epoch"] > self._logs.ever_decided]
        super().extend(rows)


@dataclass(slots=True)
class Story:
    """A simulated history and how it went; `excused` is the one loss that Spark's log does not let us prevent."""

    seed: int
    lives: int = 0
    two_drivers: bool = False
    excused: bool = False
    faults: int = 0
    endings: list[Ending] = field(default_factory=list)


class Simulation:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.story = Story(seed)
        self.window = Window()
        self.logs = WatchedLogs(window=self.window)
        self.late = Late()
        self.clock = ManualClock()
        rng = self.rng
        self.tables: list[WatchedRows] = []
        ends = [0]
        for _ in range(rng.randint(2, 3)):
            ends.append(ends[-1] + rng.choice((0, 2, 3, 4)))
        self.harness = Harness(
            *(self._outlet(kind) for kind in rng.choice(_CASTS)),
            source=Source(tuple(ends[1:])),
            storage=WatchedStorage(window=self.window),
            logs=self.logs,
            clock=self.clock,
            limits=PublishLimits(
                deadline_s=rng.choice((0.05, 1.0)),
                keep_receipts=rng.choice((0, 1, 100)),
                reap_every=rng.choice((1, 2, 20)),
            ),
            rows_in_a_batch=rng.choice((1, 1000)),
            keep_entries=rng.choice((None, None, 2)),
        )

    def _outlet(self, kind: Callable[..., AnySink]) -> Outlet:
        table = WatchedRows(self.logs)
        self.tables.append(table)
        return Outlet(kind(MemoryTarget(rows=table)), lambda: table)

    def run(self) -> Story:
        """Faulty lives first, then one that is left alone, then the verdict."""
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.3:
                self._two_lives()
            else:
                self._one_life()
            if self.story.excused:
                return self.story
            self._between_lives()
        self._let_late_ones_arrive(chance=0.5)
        if rng.random() < 0.5:
            self.harness.release_zombies()
        self._last_life()
        return self.story

    def _faults(self) -> RandomFaults:
        rng = self.rng
        strong = rng.random() < 0.5
        rates = Rates(
            crash=rng.choice((0.0, 0.005, 0.02)),
            lost_reply=rng.choice((0.0, 0.01, 0.1)),
            transient=rng.choice((0.0, 0.01, 0.05)),
            disk=rng.choice((0.0, 0.0, 0.01)),
            delayed=rng.choice((0.0, 0.05)) if strong else 0.0,
            repeated=rng.choice((0.0, 0.3)),
        )
        return RandomFaults(rng, rates, self.late)

    def _conduct(self) -> Conduct:
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

        return Conduct(
            lost_attempts=lambda epoch, slot: int(rng.random() < lost),
            leaves_zombie=lambda epoch, slot: rng.random() < stray,
            publishes=lambda epoch: rng.random() >= lazy,
            interrupts=interrupt,
            partitions=lambda epoch: slots,
        )

    def _one_life(self) -> None:
        ending = self.harness.life(self._faults(), self._conduct())
        self.window.leave()
        self._judge(ending, _ALLOWED_ALONE)

    def _two_lives(self) -> None:
        """Two drivers on one checkpoint, interleaved operation by operation; sometimes a third."""
        self.story.two_drivers = True
        endings: list[Ending] = []

        def life(faults: Faults, conduct: Conduct, step: Callable[[], None]) -> None:
            endings.append(self.harness.life(Chain(step, faults), conduct))
            self.window.leave()

        # Drivers that fail at once do not meet: most of these are left alone by everything but each other.
        calm = Rates(crash=0.002, repeated=0.1)
        count = 3 if self.rng.random() < 0.4 else 2
        casts = [
            RandomFaults(self.rng, calm, self.late) if self.rng.random() < 0.7 else self._faults() for _ in range(count)
        ]
        Interleaver(self.rng).run([partial(life, faults, self._conduct()) for faults in casts])
        for ending in endings:
            self._judge(ending, _ALLOWED_IN_COMPANY)

    def _judge(self, ending: Ending, allowed: tuple[type[Exception], ...]) -> None:
        self.story.lives += 1
        self.story.endings.append(ending)
        if not isinstance(ending, Failed):
            return
        if isinstance(ending.error, allowed):
            return
        if isinstance(ending.error, EpochLost):
            self._excuse(ending.error)
        else:
            self._fail(f"a driver stopped with {ending.error!r}")

    def _excuse(self, error: EpochLost) -> None:
        """Allowed only if the epoch was taken over from a driver in the window, and nothing from it on is visible."""
        self.story.excused = True
        epoch = error.epoch if error.epoch is not None else -1
        shown_rows = [row for table in self.tables for row in table if row["epoch"] >= epoch]
        if shown_rows or epoch not in self.window.excused:
            self._fail(f"{error!r}, but {len(shown_rows)} rows of it or of later epochs are visible")

    def _between_lives(self) -> None:
        rng = self.rng
        drawn = rng.random()
        # Not where a second driver wrote over the barrier: what was settled then really is another epoch than the one
        # the log has now, and the start is refused as it should be.
        if drawn < 0.15 and self.logs.commits and max(self.logs.commits) not in self.logs.overwritten:
            # A power loss forgets the last entry of the commit log; what was on its way is gone with the machine.
            newest = max(self.logs.commits)
            self.logs.forget_commit(newest)
            self.late.waiting.clear()
            self.harness.trace.append(f"commits/{newest} is forgotten")
        elif drawn < 0.3:
            self.harness.release_zombies()
        elif drawn < 0.4:
            self.clock.jump(rng.choice((-86400.0, 86400.0)))
        self._let_late_ones_arrive(chance=0.3)

    def _let_late_ones_arrive(self, *, chance: float) -> None:
        while self.late.waiting and self.rng.random() < chance:
            self.harness.trace.append(str(self.late.arrive(self.rng)))

    def _last_life(self) -> None:
        """A driver that is left alone; then whatever is still on its way arrives, and another one looks after it."""
        harness = self.harness
        while True:
            ending = harness.life()
            self.window.leave()
            if isinstance(ending, Failed) and isinstance(ending.error, EpochLost):
                self._excuse(ending.error)
                return
            if isinstance(ending, Failed):
                self._fail(f"a driver without any fault stopped with {ending.error!r}")
            self._verdict()
            if not (harness.zombies or self.late.waiting):
                return
            harness.release_zombies()
            self._let_late_ones_arrive(chance=1.0)

    def _verdict(self) -> None:
        problems = self.harness.problems()
        problems += [f"a row of undecided epoch was visible: {table.early[0]}" for table in self.tables if table.early]
        if problems:
            self._fail("; ".join(problems))

    def _fail(self, why: str) -> None:
        raise Violation(f"seed {self.story.seed}: {why}\n{shown(self.harness.trace)}")


def simulate(seed: int) -> Story:
    """Play one history; `Violation` with its trace when a promise is broken."""
    return Simulation(seed).run()
