"""*Stage*: one task attempt hands each batch to every sink, in one pass, and names what it left behind.

Runs on executors (or on the driver, for small epochs). A crash anywhere here leaves only things that carry a
transaction name and that no manifest accounts for; the takeover or the reaper removes them.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, Self

import pyarrow as pa

from onceward.contracts import AnySink, Handle, SlotContext, Storage, TwoPhaseCommitSink
from onceward.contracts.events import StagedSlot
from onceward.identity import IMMEDIATE, Fingerprint, JobIdentity, RunId, SinkName
from onceward.wal import WAL, SegmentStore, SegmentWriter


@dataclass(frozen=True, slots=True)
class EpochAssignment:
    """What the driver tells every task of an epoch. Picklable.

    `immediate`: what is staged will go to the target before the decision, so it must not bear the epoch's fingerprint.
    """

    job: JobIdentity
    epoch: int
    takeover: int
    run: RunId
    timestamp: datetime
    fingerprint: Fingerprint
    sinks: tuple[AnySink, ...]
    storage: Storage
    immediate: bool = False

    def context(self, sink: SinkName, slot: int, attempt: int) -> SlotContext:
        """The context of one attempt in one sink."""
        return SlotContext(
            job=self.job,
            sink=sink,
            epoch=self.epoch,
            takeover=self.takeover,
            slot=slot,
            attempt=attempt,
            run=self.run,
            timestamp=self.timestamp,
            fingerprint=IMMEDIATE if self.immediate else self.fingerprint,
        )


@dataclass(frozen=True, slots=True)
class SinkAck:
    """What a slot staged for some sinks: one for a two-phase sink, all of them for the shared segment."""

    sinks: tuple[SinkName, ...]
    handle: Handle

    @classmethod
    def of(cls, handle: Handle, context: SlotContext, *sinks: SinkName) -> Self:
        """With the attempt's transaction in the handle, by which all of it is found again."""
        return cls(sinks, {**handle, "transaction": str(context.transaction)})


@dataclass(frozen=True, slots=True)
class SlotAck:
    """A task attempt's answer to the driver. Only the winning attempt's answer arrives.

    `host` is where it ran, for messages; empty when several did. `bytes` is what the rows took in memory, and
    `acked_at` when it was done, in seconds since 1970 by its host's clock: 0 where nobody knows.
    """

    slot: int
    rows: int
    staged: tuple[SinkAck, ...]
    host: str = ""
    bytes: int = 0
    acked_at: float = 0.0

    def to_json(self) -> str:
        """As it travels."""
        staged = [[ack.sinks, ack.handle] for ack in self.staged]
        return json.dumps([self.slot, self.rows, staged, self.host, self.bytes, self.acked_at], allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """As it arrives."""
        slot, rows, staged, host, size, acked_at = json.loads(text)
        return cls(
            slot,
            rows,
            tuple(SinkAck(tuple(SinkName(name) for name in sinks), handle) for sinks, handle in staged),
            host,
            size,
            acked_at,
        )

    def as_event(self) -> StagedSlot:
        """What listeners are told of it."""
        acked_at = datetime.fromtimestamp(self.acked_at, UTC) if self.acked_at else None
        return StagedSlot(self.slot, self.rows, self.bytes, self.host, acked_at)


class _Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> SinkAck: ...
    def discard(self) -> None: ...


class _TransactionWriter:
    """One attempt's transaction in a two-phase sink."""

    def __init__(self, sink: TwoPhaseCommitSink[object], context: SlotContext) -> None:
        self._sink = sink
        self._context = context
        self._transaction = sink.begin_transaction(context)

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.invoke(self._transaction, batch)

    def finish(self) -> SinkAck:
        handle = self._sink.pre_commit(self._transaction)
        return SinkAck.of(handle, self._context, self._sink.name)

    def discard(self) -> None:
        self._sink.discard(self._transaction)


class _SegmentAttempt:
    """One attempt's segment, shared by all write-ahead sinks."""

    def __init__(
        self, assignment: EpochAssignment, sinks: tuple[SinkName, ...], context: SlotContext, schema: pa.Schema
    ) -> None:
        self._sinks = sinks
        self._context = context
        self._path = SegmentStore(assignment.storage).path(context)
        self._storage = assignment.storage
        self._segment = SegmentWriter(assignment.storage, self._path, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._segment.write(batch)

    def finish(self) -> SinkAck:
        return SinkAck.of(self._segment.finish(), self._context, *self._sinks)

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._segment.abandon()
        self._storage.delete(self._path)


def stage_slot(assignment: EpochAssignment, *, slot: int, attempt: int, batches: Iterable[pa.RecordBatch]) -> SlotAck:
    """Stage one slot in all sinks. An empty slot begins no transaction and writes no segment."""
    writers: list[_Writer] = []
    rows = size = 0
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if not writers:
                _open_writers(writers, assignment, slot=slot, attempt=attempt, schema=batch.schema)
            for writer in writers:
                writer.write(batch)
            rows += batch.num_rows
            size += batch.nbytes
        staged = tuple(writer.finish() for writer in writers)
        return SlotAck(slot, rows, staged, platform.node(), size, time.time())
    except BaseException:
        for writer in writers:
            # The first failure is the one to report; what cannot be discarded now has a name and is found later.
            with contextlib.suppress(Exception):
                writer.discard()
        raise


def _open_writers(
    writers: list[_Writer], assignment: EpochAssignment, *, slot: int, attempt: int, schema: pa.Schema
) -> None:
    """Append writers one by one to the caller's list, so that a failing one leaves the others to be discarded."""
    logged: list[SinkName] = []
    for sink in assignment.sinks:
        if isinstance(sink, TwoPhaseCommitSink):
            writers.append(_TransactionWriter(sink, assignment.context(sink.name, slot, attempt)))
        else:
            logged.append(sink.name)
    if logged:
        writers.append(_SegmentAttempt(assignment, tuple(logged), assignment.context(WAL, slot, attempt), schema))
