"""Sinks that look on: what they were given, where they ran, and when they are to refuse."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from onceward.contracts import (
    Committed,
    Finding,
    Handle,
    Outcome,
    RetryLater,
    Severity,
    SlotContext,
    SlotValues,
    TwoPhaseCommitSink,
    Workload,
)
from onceward.identity import JobIdentity
from onceward.sinks import FileSink, SQLiteSink


@dataclass
class Given:
    """One slot's batches, in memory until its pre-commit."""

    context: SlotContext
    batches: list[pa.RecordBatch] = field(default_factory=list)


class RecordingSink(TwoPhaseCommitSink[Given]):
    """Keeps every batch exactly as it was given, with the process that was given it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="recording")
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def begin_transaction(self, context: SlotContext) -> Given:
        """Begin."""
        return Given(context)

    def invoke(self, transaction: Given, batch: pa.RecordBatch) -> None:
        """Keep."""
        transaction.batches.append(batch)

    def pre_commit(self, transaction: Given) -> Handle:
        """Write down."""
        context = transaction.context
        path = self.folder / f"{context.epoch}-{context.slot}-{os.getpid()}.arrow"
        table = pa.Table.from_batches(transaction.batches)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return {"path": str(path)}

    def commit(self, handle: Handle) -> Outcome:
        """It is there already."""
        return Committed()

    def abort(self, handle: Handle) -> None:
        """Nothing is ever pending."""

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """Nothing is ever pending."""
        return ()

    def tables(self, epoch: int) -> list[pa.Table]:
        """What was recorded of an epoch, slot by slot."""
        paths = sorted(self.folder.glob(f"{epoch}-*.arrow"))
        return [pa.ipc.open_file(pa.OSFile(str(path), "rb")).read_all() for path in paths]

    def processes(self, epoch: int) -> set[int]:
        """Where the slots of an epoch were staged."""
        return {int(path.stem.split("-")[2]) for path in self.folder.glob(f"{epoch}-*.arrow")}


class ClosedFiles(FileSink):
    """A target that is down until the file `open` is there."""

    def __init__(self, path: Path, opening: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.opening = opening

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Not now, or the real thing."""
        if not self.opening.exists():
            return [RetryLater("the target is down", after_s=0.05)] * len(handles)
        return super().commit_all(handles)


class ClosedTable(SQLiteSink):
    """A table that takes nothing from `first_epoch` on until the file `open` is there."""

    def __init__(self, path: Path, opening: Path, *, first_epoch: int, **options: Any) -> None:
        super().__init__(path, **options)
        self.opening = opening
        self.first_epoch = first_epoch

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """Not now, or the real thing."""
        if checkpoint_id >= self.first_epoch and not self.opening.exists():
            return False
        return super().send_transaction(slots, job, checkpoint_id, timestamp)


class WorriedTable(SQLiteSink):
    """A table that finds too little room for what a job asks of it."""

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """What the job asks, as a warning."""
        yield Finding("server", Severity.OK, "up")
        detail = f"for {workload.slots} slots of {workload.unpublished_epochs} epochs"
        yield Finding("room", Severity.WARNING, detail, "make some")
