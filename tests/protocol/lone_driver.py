"""One driver's context on a harness's checkpoint, without the driver: for tests that call its steps one by one."""

from collections.abc import Callable
from typing import Any

from sink_cases import fake

from onceward.contracts import Clock
from onceward.epoch import EpochAssignment, Publisher, PublishLimits, RunContext, SlotAck, stage_slot
from onceward.identity import Generation, JobIdentity, RunId
from onceward.journal import IdentityFile
from onceward.testing import Faults, Harness, Source
from onceward.testing.engine import Batch, offsets_entry
from onceward.testing.wrappers import FaultyLogs, FaultyStorage, with_faults

IDENTITY = Generation("aaaaaaaa")


def job(*kinds: Callable[..., Any], ends: tuple[int, ...] = (4, 8), **options: Any) -> Harness:
    return Harness(*(fake(kind) for kind in kinds), source=Source(ends=ends), **options)


def context_of(
    harness: Harness, *, faults: Faults | None = None, run: str = "zzzzzz", clock: Clock | None = None
) -> RunContext:
    """That of a driver which has recovered just now."""
    faults = faults or Faults()
    record = IdentityFile(harness.storage).read()
    return RunContext(
        job=record.identity if record else JobIdentity(harness.name, IDENTITY),
        run=RunId(run),
        sinks=tuple(with_faults(sink, faults) for sink in harness.sinks),
        guarantee=harness.guarantee,
        storage=FaultyStorage(harness.storage, faults),
        decisions=FaultyLogs(harness.logs, faults),
        clock=clock or harness.clock,
        adopted=record.adopted if record else -1,
    )


def publisher_of(
    harness: Harness, *, faults: Faults | None = None, clock: Clock | None = None, limits: PublishLimits | None = None
) -> Publisher:
    """A publisher by itself, as a driver's publisher thread is."""
    return Publisher(context_of(harness, faults=faults, clock=clock), limits or harness.limits)


def plan(harness: Harness, epoch: int = 0, *, end: int | None = None) -> None:
    """Write the barrier of an epoch, as the engine does; with another `end`, as another driver's engine would."""
    ends = harness.source.ends[epoch] if end is None else end
    harness.logs.plan(epoch, offsets_entry(ends, at=harness.clock.now()))


def stage(order: EpochAssignment, harness: Harness, *, version: str = "by-hand", attempt: int = 1) -> list[SlotAck]:
    """Both slots of an epoch, staged by this order."""
    rows = harness.source.rows_of(order.epoch)
    batch = Batch(order.epoch, slots=2, version=version, ids=rows, keys=harness.source.keys)
    slots = range(batch.slots)
    return [stage_slot(order, slot=slot, attempt=attempt, batches=batch.slot(slot, attempt)) for slot in slots]


class Watched(Faults):
    """Lets everything happen and notes it, reads included."""

    def perform(self, what: str, call: Callable[[], Any], **options: Any) -> Any:
        self.trace.append(what)
        return call()

    def first(self, beginning: str) -> int:
        """When something that begins like this was first done."""
        return next(number for number, what in enumerate(self.trace) if what.startswith(beginning))
