"""Another host: its executors have a disk of their own at the paths that they should share with the driver.

::

    elsewhere = SecondHost.without(harness.sinks)
    harness.life(behaviour=Behaviour(runs_on=elsewhere.some(lambda epoch, slot: slot == 1)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from onceward.contracts import AnySink, Storage
from onceward.epoch import EpochAssignment
from onceward.identity import SinkName
from onceward.testing.fake_sinks import FakeTwoPhaseSink, MemoryTarget
from onceward.testing.fakes import MemoryStorage

RunsOn = Callable[[EpochAssignment, int], EpochAssignment]


@dataclass(frozen=True, slots=True)
class SecondHost:
    """What its tasks see instead: `storage` where the checkpoint is not shared, `sinks` where a target is not.

    All that is written there succeeds, and nobody else ever sees it.
    """

    storage: Storage | None = None
    sinks: Mapping[SinkName, AnySink] = field(default_factory=dict)

    @classmethod
    def without(cls, sinks: Iterable[AnySink]) -> SecondHost:
        """A host that shares neither the checkpoint nor the target of any of our own two-phase fakes."""
        own = {
            sink.name: FakeTwoPhaseSink(MemoryTarget(), name=sink.name)
            for sink in sinks
            if isinstance(sink, FakeTwoPhaseSink)
        }
        return cls(MemoryStorage(), own)

    def assignment(self, assignment: EpochAssignment) -> EpochAssignment:
        """The same assignment as a task on this host understands it."""
        sinks = tuple(self.sinks.get(sink.name, sink) for sink in assignment.sinks)
        return replace(assignment, sinks=sinks, storage=self.storage or assignment.storage)

    def some(self, chosen: Callable[[int, int], bool]) -> RunsOn:
        """For `Behaviour.runs_on`: the chosen slots of an epoch run here, the others beside the driver."""
        return lambda assignment, slot: self.assignment(assignment) if chosen(assignment.epoch, slot) else assignment
