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
    files that hold it. Not `is_known`: its target keeps no receipts, and nobody can say. `beside` is the first job,
    where this one gets another name and the target is that of both."""

    sink: SinkName
    told: str | None
    repeated: Repeated
    is_known: bool = True
    patterns: tuple[str, ...] = ()
    beside: JobName | None = None

    @property
    def line(self) -> str:
        """For people."""
        if not self.is_known:
            return f"{self.sink}: its target keeps no receipts; what it got after the savepoint comes again"
        beside = "" if self.beside is None else f"; {self.beside!r} delivers there too: while both run, rows come twice"
        if self.told is None:
            return f"{self.sink}: nothing from after the savepoint{beside}"
        return f"{self.sink}: has {self.told}; {self.repeated.value}{beside}"


def consequences(savepoint: Savepoint, sinks: Iterable[AnySink], *, name: JobName | None = None) -> list[Consequence]:
    """Ask the targets, under the name that the job will have and the one that it had: by another name its rows are the
    same ones."""
    restored, names = savepoint.restored, dict.fromkeys((savepoint.job, name or savepoint.job))
    delivered, found = rows_delivered(restored), []
    for sink in sinks:
        has = [one for job in names for one in sink.receipts(JobIdentity(job, savepoint.generation))]
        later = later_receipts(has, restored, savepoint.known)
        told = told_by_sink(restored, later, delivered).get(sink.name)
        files = sorted({(one.job, one.generation, one.epoch) for one in later}) if sink.receipts_are_output else []
        patterns = [_pattern(JobIdentity(job, generation), sink.name, epoch) for job, generation, epoch in files]
        is_shared = len(names) > 1 and any((one.job, one.sink) == (savepoint.job, sink.name) for one in has)
        beside = savepoint.job if is_shared else None
        found.append(Consequence(sink.name, told, sink.repeated, sink.keeps_receipts, tuple(patterns), beside))
    return found


def _pattern(job: JobIdentity, sink: SinkName, epoch: int) -> str:
    """What the names of an epoch's files begin with, whatever takeover, slot and attempt."""
    name = str(TransactionName.of(job, sink, epoch=epoch, takeover=0, slot=0, attempt=0, run=new_run()))
    return f"part-{'_'.join(name.split('_')[:5])}_*"
