"""Before a restore: what the targets have from after the savepoint, and what becomes of it when its rows come again.

Nothing is changed here. Whoever goes on accepts it, by the flag that the first start then needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onceward.contracts import AnySink, Repeated
from onceward.identity import JobIdentity, JobName, SinkName, TransactionName, new_run
from onceward.recovery.rollback import later_receipts, rows_delivered, told_by_sink
from onceward.savepoints.document import Savepoint


@dataclass(frozen=True, slots=True)
class Consequence:
    """For one sink. `told` is None where its target has nothing from after the savepoint; `patterns` match the names of
    files that hold it. Not `is_known`: its target keeps no receipts, and nobody can say."""

    sink: SinkName
    told: str | None
    repeated: Repeated
    is_known: bool = True
    patterns: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """For people."""
        if not self.is_known:
            return f"{self.sink}: its target keeps no receipts; what it got after the savepoint comes again"
        if self.told is None:
            return f"{self.sink}: nothing from after the savepoint"
        return f"{self.sink}: has {self.told}; {self.repeated.value}"


def consequences(savepoint: Savepoint, sinks: Iterable[AnySink], *, name: JobName | None = None) -> list[Consequence]:
    """Ask the targets, under the name that the job will have."""
    job = JobIdentity(name or savepoint.job, savepoint.generation)
    restored = savepoint.restored
    delivered, found = rows_delivered(restored), []
    for sink in sinks:
        later = later_receipts(sink.receipts(job), restored, savepoint.known)
        told = told_by_sink(restored, later, delivered).get(sink.name)
        generations = sorted({one.generation for one in later}) if sink.receipts_are_output else []
        patterns = [
            _pattern(JobIdentity(job.name, generation), sink.name, epoch)
            for generation in generations
            for epoch in sorted({one.epoch for one in later if one.generation == generation})
        ]
        found.append(Consequence(sink.name, told, sink.repeated, sink.keeps_receipts, tuple(patterns)))
    return found


def _pattern(job: JobIdentity, sink: SinkName, epoch: int) -> str:
    """What the names of an epoch's files begin with, whatever takeover, slot and attempt."""
    name = str(TransactionName.of(job, sink, epoch=epoch, takeover=0, slot=0, attempt=0, run=new_run()))
    return f"part-{'_'.join(name.split('_')[:5])}_*"
