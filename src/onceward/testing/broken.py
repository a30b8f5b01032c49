"""Sinks that are wrong on purpose: each must be caught by the audit or by the conformance suite.

A checker that cannot fail proves nothing. Every class names the one thing that it does wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from onceward.contracts import (
    Committed,
    Handle,
    Outcome,
    Receipt,
    SlotContext,
    SlotValues,
    TwoPhaseCommitSink,
)
from onceward.identity import JobIdentity, TransactionName
from onceward.testing.fake_sinks import FakeTransactionalSink, FakeTwoPhaseSink, MemoryTarget, Prepared


class CommitsBeforeDecision(FakeTwoPhaseSink):
    """Rows are visible as soon as they are pre-committed."""

    verify = TwoPhaseCommitSink.verify

    def pre_commit(self, transaction: tuple[SlotContext, Prepared]) -> Handle:
        """Publish at once."""
        handle = super().pre_commit(transaction)
        super().commit({**handle, "transaction": str(transaction[0].transaction)})
        return handle


class KeepsNoReceipt(FakeTransactionalSink):
    """Sends without leaving a receipt, so that a lost reply sends again."""

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """Send as if no proof were needed."""
        bare = [replace(slot, receipt=None) for slot in slots]
        return super().send_transaction(bare, job, checkpoint_id, timestamp)


class TakesAnyReceipt(FakeTransactionalSink):
    """Holds a slot for sent if there is a receipt of it, be it of other rows."""

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """Leave out what has a receipt."""
        found = {(r.epoch, r.slot) for r in self.receipts(job) if r.generation == job.generation}
        missing = [slot for slot in slots if slot.receipt is None or (checkpoint_id, slot.slot) not in found]
        return super().send_transaction(missing, job, checkpoint_id, timestamp)


class ForgetsItsReceipts(FakeTwoPhaseSink):
    """A commit that is repeated finds neither transaction nor receipt, and claims success anyway after staging anew."""

    def commit(self, handle: Handle) -> Outcome:
        """Commit, but keep what was staged."""
        prepared = self.target.transactions.get(str(handle["transaction"]))
        if prepared is not None:
            self.target.rows.extend(prepared.rows)
        return Committed()


class SkipsAbort(FakeTwoPhaseSink):
    """What was staged and never published stays for ever."""

    def abort(self, handle: Handle) -> None:
        """Do nothing."""

    def discard(self, transaction: tuple[SlotContext, Prepared]) -> None:
        """Do nothing."""


class AbortRemovesCommitted(FakeTwoPhaseSink):
    """An abort that comes late takes back what was committed."""

    def __init__(self, target: MemoryTarget, *, name: str = "two-phase") -> None:
        super().__init__(target, name=name)
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def commit(self, handle: Handle) -> Outcome:
        """Commit, and remember what."""
        prepared = self.target.transactions.get(str(handle["transaction"]))
        if prepared is not None:
            self._rows[str(handle["transaction"])] = prepared.rows
        return super().commit(handle)

    def abort(self, handle: Handle) -> None:
        """Remove rows of the transaction wherever they are."""
        gone = self._rows.pop(str(handle["transaction"]), [])
        self.target.rows[:] = [row for row in self.target.rows if row not in gone]
        super().abort(handle)


class SwapsEpochs(FakeTransactionalSink):
    """Holds every second epoch back until the next one has gone out."""

    def __init__(self, target: MemoryTarget, *, name: str = "transactional") -> None:
        super().__init__(target, name=name)
        self._held: list[tuple[Sequence[SlotValues], JobIdentity, int, datetime]] = []

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """Send this one now and the one before afterwards."""
        if checkpoint_id % 2 == 0:
            batches = [list(slot.read()) for slot in slots]
            kept = [replace(s, read=lambda b=b: iter(b)) for s, b in zip(slots, batches, strict=True)]  # type: ignore[misc]
            self._held.append((kept, job, checkpoint_id, timestamp))
            return True
        super().send_transaction(slots, job, checkpoint_id, timestamp)
        while self._held:
            super().send_transaction(*self._held.pop(0))
        return True


class DuplicatesABatch(FakeTwoPhaseSink):
    """Writes each slot's first batch twice."""

    def invoke(self, transaction: tuple[SlotContext, Prepared], batch: pa.RecordBatch) -> None:
        """Write it, and once more if it is the first."""
        if not transaction[1].rows:
            super().invoke(transaction, batch)
        super().invoke(transaction, batch)


class DropsASlot(FakeTransactionalSink):
    """Sends all slots but the last, and reports success."""

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """Leave the last one out."""
        return super().send_transaction(slots[:-1], job, checkpoint_id, timestamp)


class ClaimsSuccess(FakeTwoPhaseSink):
    """Answers "committed" for a transaction that it does not have."""

    def commit(self, handle: Handle) -> Outcome:
        """Never say that something is lost."""
        super().commit(handle)
        return Committed()


class PrunesWithoutWatermark(FakeTransactionalSink):
    """Drops old receipts and does not remember that it did."""

    def forget(self, job: JobIdentity, below: int) -> None:
        """Drop them, and leave no mark."""
        self.target.receipts = {key: r for key, r in self.target.receipts.items() if r.epoch >= below}


class TouchesOthers(FakeTwoPhaseSink):
    """Lists the transactions of every job whose name begins like ours, in every generation."""

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """List too much."""
        for text in list(self.target.transactions):
            name = TransactionName.parse(text)
            if name is not None:
                yield {"transaction": text, "job": job.name}


class ReceiptsOfNobody(FakeTransactionalSink):
    """Its receipts do not say which generation wrote them."""

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """Claim them all for the one who asks."""
        return [replace(r, generation=job.generation) for r in super().receipts(job)]


class MixesAttempts(FakeTwoPhaseSink):
    """Names its transactions without the attempt, so that a zombie's rows join those of the winner."""

    verify = TwoPhaseCommitSink.verify

    def begin_transaction(self, context: SlotContext) -> tuple[SlotContext, Prepared]:
        """Join whatever is open for the slot."""
        context = replace(context, attempt=0)
        return context, self.target.transactions.setdefault(str(context.transaction), Prepared())

    def pre_commit(self, transaction: tuple[SlotContext, Prepared]) -> Handle:
        """Name it."""
        return super().pre_commit(transaction)

    def commit(self, handle: Handle) -> Outcome:
        """By the name without the attempt."""
        return super().commit(self._plain(handle))

    def _plain(self, handle: Handle) -> Handle:
        name = TransactionName.parse(str(handle["transaction"]))
        assert name is not None
        return {**handle, "transaction": str(replace(name, attempt=0))}
