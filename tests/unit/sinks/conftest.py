"""What the tests of every sink need: a job, and contexts of its task attempts. For SQLite also a file and slots."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from sqlite_slots import MARK, ROWS, Slots

from onceward.contracts import Receipt, SlotContext, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId, SinkName, fingerprint_of
from onceward.sinks import SQLiteSink

Contexts = Callable[..., SlotContext]


@pytest.fixture
def job() -> JobIdentity:
    return JobIdentity(JobName("page views"), Generation("aaaaaaaa"))


@pytest.fixture
def fingerprint() -> Fingerprint:
    return fingerprint_of(b"offsets of the epoch")


@pytest.fixture
def context(job: JobIdentity, fingerprint: Fingerprint) -> Contexts:
    def make(sink: SinkName, *, epoch: int = 7, slot: int = 0, attempt: int = 1, job: JobIdentity = job) -> SlotContext:
        return SlotContext(
            job=job,
            sink=sink,
            epoch=epoch,
            takeover=0,
            slot=slot,
            attempt=attempt,
            run=RunId("rrrrrr"),
            timestamp=datetime(2024, 5, 1, tzinfo=UTC),
            fingerprint=fingerprint,
        )

    return make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "target.db"


@pytest.fixture
def slot(job: JobIdentity) -> Slots:
    def make(
        sink: SQLiteSink, *batches: pa.RecordBatch, epoch: int = 7, slot: int = 0, job: JobIdentity = job
    ) -> SlotValues:
        receipt = Receipt(job.name, job.generation, sink.name, epoch, slot, MARK)
        batches = batches or (ROWS,)
        return SlotValues(slot, sum(b.num_rows for b in batches), receipt, lambda: iter(batches))

    return make
