"""One epoch brought to a sink by hand, through either template, without the protocol around it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from onceward.contracts import (
    AlreadyCommitted,
    AnySink,
    Committed,
    Handle,
    Receipt,
    SlotContext,
    SlotValues,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
)
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId

JOB = JobIdentity(JobName("job"), Generation("aaaaaaaa"))
AT = datetime(2026, 1, 1, tzinfo=UTC)
PRINT = Fingerprint("abcdefghijklmnop")
Slot = Sequence[pa.RecordBatch]


def context(sink: AnySink, *, epoch: int = 0, slot: int = 0, job: JobIdentity = JOB) -> SlotContext:
    return SlotContext(
        job=job,
        sink=sink.name,
        epoch=epoch,
        takeover=0,
        slot=slot,
        attempt=1,
        run=RunId("bbbbbb"),
        timestamp=AT,
        fingerprint=PRINT,
    )


def staged(sink: TwoPhaseCommitSink[Any], where: SlotContext, batches: Slot) -> Handle:
    transaction = sink.begin_transaction(where)
    try:
        for batch in batches:
            sink.invoke(transaction, batch)
        handle = sink.pre_commit(transaction)
    except BaseException:
        sink.discard(transaction)
        raise
    return {**handle, "transaction": str(where.transaction)}


def values(sink: AnySink, slot: int, batches: Slot, *, epoch: int = 0, job: JobIdentity = JOB) -> SlotValues:
    receipt = Receipt(job.name, job.generation, sink.name, epoch, slot, PRINT)
    return SlotValues(slot, sum(batch.num_rows for batch in batches), receipt, partial(iter, batches))


def deliver(sink: AnySink, *slots: Slot, epoch: int = 0, job: JobIdentity = JOB) -> None:
    """Stage and publish: afterwards the rows are visible, or an exception says why not."""
    if isinstance(sink, TwoPhaseCommitSink):
        handles = [
            staged(sink, context(sink, epoch=epoch, slot=n, job=job), batches) for n, batches in enumerate(slots)
        ]
        outcomes = sink.commit_all(handles)
        assert all(isinstance(outcome, Committed | AlreadyCommitted) for outcome in outcomes), outcomes
        return
    assert isinstance(sink, TransactionalWriteAheadSink)
    waiting = [values(sink, n, batches, epoch=epoch, job=job) for n, batches in enumerate(slots)]
    assert sink.send_transaction(waiting, job, epoch, AT)


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)
