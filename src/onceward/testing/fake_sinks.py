"""A target in memory, with one sink of each template. Each is held to its contract by the suite of the real ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from onceward.contracts import (
    AlreadyCommitted,
    CheckpointCommitter,
    Committed,
    Handle,
    Lost,
    Outcome,
    Receipt,
    SlotContext,
    SlotValues,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.identity import JobIdentity, JobName, SinkName, TransactionName
from onceward.sinks.receipts import slots_to_send
from onceward.testing.fakes import Row


@dataclass(slots=True)
class Prepared:
    """A transaction in the target: open while `receipt` is None, then durable and invisible."""

    rows: list[Row] = field(default_factory=list)
    receipt: Receipt | None = None


@dataclass(slots=True, weakref_slot=True, eq=False)
class MemoryTarget:
    """A transactional database with one table. Pickled, it stays the same object: the outside world has no copies."""

    rows: list[Row] = field(default_factory=list)
    transactions: dict[str, Prepared] = field(default_factory=dict)
    receipts: dict[tuple[object, ...], Receipt] = field(default_factory=dict)
    watermarks: dict[tuple[JobIdentity, SinkName], int] = field(default_factory=dict)
    sent: set[tuple[JobIdentity, SinkName, int, int]] = field(default_factory=set)

    def __reduce__(self) -> tuple[object, tuple[int]]:
        """Pickle a reference."""
        _TARGETS[id(self)] = self
        return _target_of, (id(self),)

    def backup(self) -> MemoryTarget:
        """A copy of everything, as a backup or a standby that lags has it."""
        return MemoryTarget(
            list(self.rows),
            {name: Prepared(list(one.rows), one.receipt) for name, one in self.transactions.items()},
            dict(self.receipts),
            dict(self.watermarks),
            set(self.sent),
        )

    def restore(self, backup: MemoryTarget) -> None:
        """Go back to what the backup has."""
        self.rows[:] = backup.rows
        copy = backup.backup()
        self.transactions, self.receipts = copy.transactions, copy.receipts
        self.watermarks, self.sent = copy.watermarks, copy.sent

    def receipts_of(self, job: JobIdentity, sink: SinkName) -> list[Receipt]:
        """This job's, of all generations."""
        return [r for r in self.receipts.values() if (r.job, r.sink) == (job.name, sink)]

    def settled(self, job: JobIdentity, sink: SinkName) -> int:
        """Up to which epoch receipts may have been pruned, so that their absence says nothing."""
        return self.watermarks.get((job, sink), -1)

    def prune(self, job: JobIdentity, sink: SinkName, below: int) -> None:
        """Raise the watermark and drop the receipts under it, in one transaction."""
        self.watermarks[job, sink] = max(below - 1, self.watermarks.get((job, sink), -1))
        mine = (job.name, job.generation, sink)
        self.receipts = {
            key: r
            for key, r in self.receipts.items()
            if (r.job, r.generation, r.sink) != mine or r.epoch > self.watermarks[job, sink]
        }


_TARGETS: WeakValueDictionary[int, MemoryTarget] = WeakValueDictionary()


def _target_of(number: int) -> MemoryTarget:
    return _TARGETS[number]


class FakeTwoPhaseSink(TwoPhaseCommitSink[Any]):
    """Prepared transactions, as PostgreSQL has them; an open one is listed too, as a hidden file would be."""

    def __init__(self, target: MemoryTarget, *, name: str = "two-phase") -> None:
        super().__init__(name=name)
        self.target = target

    def begin_transaction(self, context: SlotContext) -> tuple[SlotContext, Prepared]:
        """See `TwoPhaseCommitSink`."""
        transaction = self.target.transactions[str(context.transaction)] = Prepared()
        return context, transaction

    def invoke(self, transaction: tuple[SlotContext, Prepared], batch: pa.RecordBatch) -> None:
        """See `TwoPhaseCommitSink`."""
        transaction[1].rows.extend(batch.to_pylist())

    def pre_commit(self, transaction: tuple[SlotContext, Prepared]) -> Handle:
        """See `TwoPhaseCommitSink`."""
        context, prepared = transaction
        prepared.receipt = Receipt(
            job=context.job.name,
            generation=context.job.generation,
            sink=self.name,
            epoch=context.epoch,
            slot=context.slot,
            fingerprint=context.fingerprint,
        )
        return {"job": context.job.name, "rows": len(prepared.rows)}

    def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
        """See `TwoPhaseCommitSink`."""
        found = [self.target.transactions.get(str(handle["transaction"])) for handle in handles]
        return [
            None if prepared and prepared.receipt and len(prepared.rows) == handle["rows"] else "it is not prepared"
            for handle, prepared in zip(handles, found, strict=True)
        ]

    def commit(self, handle: Handle) -> Outcome:
        """See `TwoPhaseCommitSink`."""
        name = str(handle["transaction"])
        prepared = self.target.transactions.get(name)
        if prepared is not None and prepared.receipt is not None:
            self.target.rows.extend(prepared.rows)
            self.target.receipts[(name,)] = prepared.receipt
            del self.target.transactions[name]
            return Committed()
        if (name,) in self.target.receipts or self._may_be_pruned(handle):
            return AlreadyCommitted()
        return Lost(f"transaction {name} is not in the target")

    def abort(self, handle: Handle) -> None:
        """See `TwoPhaseCommitSink`."""
        self.target.transactions.pop(str(handle["transaction"]), None)

    def discard(self, transaction: tuple[SlotContext, Prepared]) -> None:
        """See `TwoPhaseCommitSink`."""
        self.target.transactions.pop(str(transaction[0].transaction), None)

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """See `TwoPhaseCommitSink`."""
        for handle in self.pending_of_job(job.name):
            name = TransactionName.parse(str(handle["transaction"]))
            if name is not None and name.belongs_to(job, self.name):
                yield handle

    def pending_of_job(self, name: JobName) -> Iterable[Handle]:
        """See `TwoPhaseCommitSink`."""
        owned = ((text, TransactionName.parse(text)) for text in list(self.target.transactions))
        return [{"transaction": text, "job": name} for text, owner in owned if owner and owner.is_of_job(name)]

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """See `Sink`."""
        return self.target.receipts_of(job, self.name)

    def forget(self, job: JobIdentity, below: int) -> None:
        """See `Sink`."""
        self.target.prune(job, self.name, below)

    def _may_be_pruned(self, handle: Handle) -> bool:
        name = TransactionName.parse(str(handle["transaction"]))
        return name is not None and any(
            name.belongs_to(job, sink) and name.epoch <= mark
            for (job, sink), mark in self.target.watermarks.items()
            if sink == self.name
        )


class FakeTransactionalSink(TransactionalWriteAheadSink):
    """Rows and receipts in one transaction, all slots of an epoch at once."""

    def __init__(self, target: MemoryTarget, *, name: str = "transactional") -> None:
        super().__init__(name=name)
        self.target = target

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """See `TransactionalWriteAheadSink`."""
        rows = {values.slot: [row for batch in values.read() for row in batch.to_pylist()] for values in slots}
        # Reading takes time, in which another publisher may come first; from here on it is one step, or none.
        receipts = self.target.receipts
        keys = {values.slot: (job, self.name, checkpoint_id, values.slot) for values in slots}
        found = [(slot, receipts[key].fingerprint) for slot, key in keys.items() if key in receipts]
        for values in slots_to_send(slots, found, settled=self.target.settled(job, self.name)):
            if values.receipt is not None:
                receipts[keys[values.slot]] = values.receipt
            self.target.rows.extend(rows[values.slot])
        return True

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """See `Sink`."""
        return self.target.receipts_of(job, self.name)

    def forget(self, job: JobIdentity, below: int) -> None:
        """See `Sink`."""
        self.target.prune(job, self.name, below)


class FakeSlotwiseSink(FakeTransactionalSink):
    """The same, one transaction a slot, as Redis does it."""

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """See `TransactionalWriteAheadSink`."""
        for values in slots:
            super().send_transaction([values], job, checkpoint_id, timestamp)
        return True


class MemoryCommitter(CheckpointCommitter):
    """Remembers slots in the target's memory, beside the rows and not together with them."""

    def __init__(self, target: MemoryTarget) -> None:
        self.target = target
        self._whose: tuple[JobIdentity, SinkName] | None = None

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """See `CheckpointCommitter`."""
        self._whose = (job, sink)

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """See `CheckpointCommitter`."""
        return self._key(slot, checkpoint_id) in self.target.sent

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """See `CheckpointCommitter`."""
        self.target.sent.add(self._key(slot, checkpoint_id))

    def forget(self, below: int) -> None:
        """See `CheckpointCommitter`."""
        mine = self._key(0, 0)[:2]
        self.target.sent = {key for key in self.target.sent if key[:2] != mine or key[2] >= below}

    def _key(self, slot: int, epoch: int) -> tuple[JobIdentity, SinkName, int, int]:
        assert self._whose is not None, "open() comes first"
        return (*self._whose, epoch, slot)


class FakeWriteAheadSink(WriteAheadSink):
    """A plain target: rows appear batch by batch, and the committer is told afterwards."""

    def __init__(self, target: MemoryTarget, *, name: str = "plain", committer: bool = True) -> None:
        super().__init__(name=name)
        self.target = target
        self.committer = MemoryCommitter(target) if committer else None

    def send_values(self, values: Iterator[pa.RecordBatch], checkpoint_id: int, timestamp: datetime) -> bool:
        """See `WriteAheadSink`."""
        for batch in values:
            self.target.rows.extend(batch.to_pylist())
        return True
