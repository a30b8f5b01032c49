"""The contracts, each wrapped so that its operations pass through `Faults`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from onceward.contracts import (
    AnySink,
    Barrier,
    CheckpointCommitter,
    Handle,
    Log,
    Outcome,
    Receipt,
    RejectedRow,
    SlotContext,
    SlotValues,
    Storage,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.errors import StorageFailed
from onceward.identity import JobIdentity, JobName, SinkName
from onceward.testing.engine import EngineLogs
from onceward.testing.faults import Faults


class _FaultyFile:
    """A streamed file that a crash cuts short in the middle of a write. What comes after a failure goes nowhere."""

    def __init__(self, file: BinaryIO, path: str, faults: Faults) -> None:
        self._file, self._path, self._faults = file, path, faults
        self._broken = False
        self.closed = False

    def write(self, data: bytes) -> int:
        def torn() -> None:
            self._file.write(bytes(data)[: len(data) // 2])
            self._file.flush()

        if self._broken or self._faults.dead:
            return len(data)
        self._broken = True
        written = self._faults.perform(f"storage write {self._path}", lambda: self._file.write(data), torn=torn)
        self._broken = False
        return written

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._broken:
            raise StorageFailed(f"cannot close {self._path}: an earlier write failed")
        self._faults.perform(f"storage close {self._path}", self._file.close)
        self.closed = True


@dataclass(frozen=True, slots=True)
class FaultyStorage:
    """`Storage` with faults."""

    inner: Storage
    faults: Faults

    def create(self, path: str, data: bytes) -> bool:
        """See `Storage.create`."""
        return self.faults.perform(f"storage create {path}", partial(self.inner.create, path, data))

    def read(self, path: str) -> bytes | None:
        """See `Storage.read`."""
        return self.faults.perform(f"storage read {path}", partial(self.inner.read, path), writes=False)

    def names(self, folder: str) -> list[str]:
        """See `Storage.names`."""
        return self.faults.perform(f"storage names {folder}", partial(self.inner.names, folder), writes=False)

    def open_new(self, path: str) -> BinaryIO:
        """See `Storage.open_new`."""
        file = self.faults.perform(f"storage open_new {path}", partial(self.inner.open_new, path))
        return _FaultyFile(file, path, self.faults)  # type: ignore[return-value]

    def open(self, path: str) -> BinaryIO:
        """See `Storage.open`."""
        return self.faults.perform(f"storage open {path}", partial(self.inner.open, path), writes=False)

    def where(self, path: str) -> str:
        """See `Storage.where`."""
        return self.inner.where(path)

    def delete(self, path: str) -> None:
        """See `Storage.delete`."""
        self.faults.perform(f"storage delete {path}", partial(self.inner.delete, path))

    def sync(self, folder: str) -> None:
        """See `Storage.sync`."""
        self.faults.perform(f"storage sync {folder}", partial(self.inner.sync, folder))


@dataclass(frozen=True, slots=True)
class FaultyLogs:
    """The engine's logs with faults."""

    inner: EngineLogs
    faults: Faults

    def plan(self, epoch: int, text: str) -> None:
        """See `EngineLogs.plan`."""
        self.faults.perform(f"log plan {epoch}", partial(self.inner.plan, epoch, text))

    def commit(self, epoch: int, text: str) -> None:
        """See `EngineLogs.commit`."""
        self.faults.perform(f"log commit {epoch}", partial(self.inner.commit, epoch, text))

    def is_planned(self, epoch: int) -> bool:
        """See `EngineLogs.is_planned`."""
        return self.faults.perform(f"log is_planned {epoch}", partial(self.inner.is_planned, epoch), writes=False)

    def is_committed(self, epoch: int) -> bool:
        """See `EngineLogs.is_committed`."""
        return self.faults.perform(f"log is_committed {epoch}", partial(self.inner.is_committed, epoch), writes=False)

    def forget_commit(self, epoch: int) -> None:
        """See `EngineLogs.forget_commit`."""
        self.inner.forget_commit(epoch)

    def purge(self, below: int) -> None:
        """See `EngineLogs.purge`."""
        self.faults.perform(f"log purge {below}", partial(self.inner.purge, below))

    def decided(self) -> int:
        """See `DecisionLog.decided`."""
        return self.faults.perform("log decided", self.inner.decided, writes=False)

    def planned(self) -> int:
        """See `DecisionLog.planned`."""
        return self.faults.perform("log planned", self.inner.planned, writes=False)

    def barrier(self, epoch: int) -> Barrier | None:
        """See `DecisionLog.barrier`."""
        return self.faults.perform(f"log barrier {epoch}", partial(self.inner.barrier, epoch), writes=False)

    def decision(self, epoch: int) -> str | None:
        """See `DecisionLog.decision`."""
        return self.faults.perform(f"log decision {epoch}", partial(self.inner.decision, epoch), writes=False)

    def is_engine_made(self, epoch: int) -> bool:
        """See `DecisionLog.is_engine_made`."""
        return self.inner.is_engine_made(epoch)

    def sync_barrier(self, epoch: int) -> None:
        """See `DecisionLog.sync_barrier`."""
        self.faults.perform(f"log sync_barrier {epoch}", partial(self.inner.sync_barrier, epoch))

    def sync_decision(self, epoch: int) -> None:
        """See `DecisionLog.sync_decision`."""
        self.faults.perform(f"log sync_decision {epoch}", partial(self.inner.sync_decision, epoch))

    def entries(self, log: Log) -> Mapping[int, str | None]:
        """See `DecisionLog.entries`."""
        return self.faults.perform(f"log entries {log.value}", partial(self.inner.entries, log), writes=False)

    def put_back(self, log: Log, epoch: int, text: str) -> None:
        """See `DecisionLog.put_back`."""
        self.faults.perform(f"log put_back {log.value} {epoch}", partial(self.inner.put_back, log, epoch, text))

    def drop(self, log: Log, epoch: int, seen: str | None) -> None:
        """See `DecisionLog.drop`."""
        self.faults.perform(f"log drop {log.value} {epoch}", partial(self.inner.drop, log, epoch, seen))

    def torn_lists(self) -> Mapping[str, bool]:
        """See `DecisionLog.torn_lists`."""
        return self.inner.torn_lists()

    def drop_list(self, path: str) -> None:
        """See `DecisionLog.drop_list`."""
        self.faults.perform(f"log drop_list {path}", partial(self.inner.drop_list, path))


def with_faults(sink: AnySink, faults: Faults) -> AnySink:
    """The same sink as the protocol sees it, with faults in between."""
    match sink:
        case TwoPhaseCommitSink():
            return FaultyTwoPhaseSink(sink, faults)
        case TransactionalWriteAheadSink():
            return FaultyTransactionalSink(sink, faults)
        case WriteAheadSink():
            return FaultyWriteAheadSink(sink, faults)


class _Reads:
    """What the three wrappers have in common."""

    inner: AnySink
    faults: Faults
    takes_empty_epochs: bool
    receipts_are_output: bool
    alternate: AnySink | None

    def _wrap(self, inner: AnySink, faults: Faults) -> None:
        self.inner, self.faults = inner, faults
        self._label = f"sink {inner.name.replace(' ', '-')}"
        self.takes_empty_epochs = inner.takes_empty_epochs
        self.receipts_are_output = inner.receipts_are_output
        self.alternate = with_faults(inner.alternate, faults) if inner.alternate is not None else None

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """See `Sink.check`."""
        self.inner.check(schema, output_mode=output_mode)

    @property
    def keeps_receipts(self) -> bool:
        """See `Sink.keeps_receipts`."""
        return self.inner.keeps_receipts

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        return self.faults.perform(f"{self._label} receipts_at", self.inner.receipts_at, writes=False)

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`."""
        return self.inner.target_facts()

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """See `Sink.receipts`."""
        return self.faults.perform(f"{self._label} receipts", lambda: list(self.inner.receipts(job)), writes=False)

    def forget(self, job: JobIdentity, below: int) -> None:
        """See `Sink.forget`."""
        self.faults.perform(f"{self._label} forget {below}", lambda: self.inner.forget(job, below))


class FaultyTwoPhaseSink(_Reads, TwoPhaseCommitSink[Any]):
    """A two-phase sink with faults."""

    inner: TwoPhaseCommitSink[Any]

    def __init__(self, inner: TwoPhaseCommitSink[Any], faults: Faults) -> None:
        super().__init__(name=inner.name)
        self.transaction_timeout_s = inner.transaction_timeout_s
        self.transaction_timeout_warning = inner.transaction_timeout_warning
        self._wrap(inner, faults)

    def begin_transaction(self, context: SlotContext) -> Any:
        """See `TwoPhaseCommitSink`."""
        return self.faults.perform(
            f"{self._label} begin {context.transaction}", lambda: self.inner.begin_transaction(context)
        )

    def invoke(self, transaction: Any, batch: pa.RecordBatch) -> None:
        """See `TwoPhaseCommitSink`."""
        self.faults.perform(f"{self._label} invoke", lambda: self.inner.invoke(transaction, batch))

    def pre_commit(self, transaction: Any) -> Handle:
        """See `TwoPhaseCommitSink`."""
        return self.faults.perform(f"{self._label} pre_commit", lambda: self.inner.pre_commit(transaction))

    def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
        """See `TwoPhaseCommitSink`."""
        return self.faults.perform(f"{self._label} verify", lambda: self.inner.verify(handles), writes=False)

    def commit(self, handle: Handle) -> Outcome:
        """See `TwoPhaseCommitSink`."""
        what = f"{self._label} commit {handle.get('transaction')}"
        outcome = self.faults.perform(what, lambda: self.inner.commit(handle))
        if self.faults.repeats(what):
            self.faults.later(what, lambda: self.inner.commit(handle))
        return outcome

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """See `TwoPhaseCommitSink`. One operation where the sink makes it one, else one for each slot."""
        if type(self.inner).commit_all is TwoPhaseCommitSink.commit_all:
            return super().commit_all(handles)
        return self.faults.perform(f"{self._label} commit_all", lambda: self.inner.commit_all(handles))

    def abort(self, handle: Handle) -> None:
        """See `TwoPhaseCommitSink`."""
        self.faults.perform(f"{self._label} abort {handle.get('transaction')}", lambda: self.inner.abort(handle))

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """See `TwoPhaseCommitSink`."""
        return self.faults.perform(f"{self._label} pending", lambda: list(self.inner.pending(job)), writes=False)

    def pending_of_job(self, name: JobName) -> Iterable[Handle]:
        """See `TwoPhaseCommitSink`."""
        what = f"{self._label} pending_of_job"
        return self.faults.perform(what, lambda: list(self.inner.pending_of_job(name)), writes=False)

    def discard(self, transaction: Any) -> None:
        """See `TwoPhaseCommitSink`."""
        self.faults.perform(f"{self._label} discard", lambda: self.inner.discard(transaction))


class FaultyTransactionalSink(_Reads, TransactionalWriteAheadSink):
    """A transactional write-ahead sink with faults, also after each slot that it has read."""

    inner: TransactionalWriteAheadSink

    def __init__(self, inner: TransactionalWriteAheadSink, faults: Faults) -> None:
        super().__init__(name=inner.name)
        self._wrap(inner, faults)

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """See `TransactionalWriteAheadSink`."""
        what = f"{self._label} send {checkpoint_id}"
        if self.faults.repeats(what):
            # What arrives late was read now: the segment will be gone by then.
            kept = [replace(slot, read=partial(iter, list(slot.read()))) for slot in slots]
            self.faults.later(what, partial(self.inner.send_transaction, kept, job, checkpoint_id, timestamp))
        watched = [replace(slot, read=partial(self._read, slot, checkpoint_id)) for slot in slots]
        return self.faults.perform(what, lambda: self.inner.send_transaction(watched, job, checkpoint_id, timestamp))

    def _read(self, slot: SlotValues, epoch: int) -> Iterator[pa.RecordBatch]:
        yield from slot.read()
        self.faults.perform(f"{self._label} has-read {epoch}.{slot.slot}", lambda: None)

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink`."""
        return self.inner.find_rejected(slots, job, checkpoint_id)


class FaultyWriteAheadSink(_Reads, WriteAheadSink):
    """A plain write-ahead sink with faults, also between two batches of one `send_values`."""

    inner: WriteAheadSink

    def __init__(self, inner: WriteAheadSink, faults: Faults) -> None:
        super().__init__(name=inner.name)
        self.committer = FaultyCommitter(inner.committer, faults) if inner.committer is not None else None
        self._wrap(inner, faults)

    def send_values(self, values: Iterator[pa.RecordBatch], checkpoint_id: int, timestamp: datetime) -> bool:
        """See `WriteAheadSink`."""

        def watched() -> Iterator[pa.RecordBatch]:
            for batch in values:
                yield batch
                self.faults.perform(f"{self._label} sent-batch {checkpoint_id}", lambda: None)

        what = f"{self._label} send_values {checkpoint_id}"
        return self.faults.perform(what, lambda: self.inner.send_values(watched(), checkpoint_id, timestamp))


class FaultyCommitter(CheckpointCommitter):
    """A committer with faults."""

    def __init__(self, inner: CheckpointCommitter, faults: Faults) -> None:
        self.inner, self.faults = inner, faults

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """See `CheckpointCommitter`."""
        self.inner.open(job, sink)

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """See `CheckpointCommitter`."""
        return self.faults.perform(
            f"committer asked {checkpoint_id}.{slot}",
            lambda: self.inner.is_checkpoint_committed(slot, checkpoint_id),
            writes=False,
        )

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """See `CheckpointCommitter`."""
        self.faults.perform(
            f"committer told {checkpoint_id}.{slot}", lambda: self.inner.commit_checkpoint(slot, checkpoint_id)
        )

    def forget(self, below: int) -> None:
        """See `CheckpointCommitter`."""
        self.faults.perform(f"committer forget {below}", lambda: self.inner.forget(below))
