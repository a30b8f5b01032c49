"""The SQLite sink publishes: all slots of an epoch with their receipts in one transaction, and each row once."""

import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from sqlite_slots import MARK, ROWS, Slots, query, ready, send

from onceward.contracts import Receipt, TryAgain
from onceward.errors import CheckpointRolledBack, DamagedFile, RowsRejected
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import SQLiteSink

# --- publishing -----------------------------------------------------------------------------------


def test_rows_and_receipts_of_all_slots_arrive_together(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    assert send(sink, job, slot(sink, slot=0), slot(sink, slot=1))
    assert query(path, "SELECT * FROM pv ORDER BY id") == [(1, "a"), (1, "a"), (2, None), (2, None)]
    assert {(receipt.epoch, receipt.slot) for receipt in sink.receipts(job)} == {(7, 0), (7, 1)}


def test_an_epoch_sent_again_leaves_each_row_once(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    for _ in range(3):
        assert send(pickle.loads(pickle.dumps(sink)), job, slot(sink))
    assert query(path, "SELECT count(*) FROM pv") == [(2,)]


def test_only_the_slots_without_a_receipt_are_written(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    send(sink, job, slot(sink, slot=0))
    send(sink, job, slot(sink, slot=0), slot(sink, slot=1))
    assert query(path, "SELECT count(*) FROM pv") == [(4,)]


def test_a_crash_in_the_middle_of_an_epoch_leaves_nothing_of_it(path: Path, job: JobIdentity, slot: Slots) -> None:
    def torn() -> Iterator[pa.RecordBatch]:
        yield ROWS
        raise DamagedFile("segment is torn")

    sink = ready(SQLiteSink(path, table="pv"))
    bad = replace(slot(sink, slot=1), read=torn)
    with pytest.raises(DamagedFile):
        send(sink, job, slot(sink, slot=0), bad)
    assert query(path, "SELECT count(*) FROM pv") == [(0,)]
    assert list(sink.receipts(job)) == []


def test_slots_that_need_no_receipt_are_written_each_time(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    values = replace(slot(sink), receipt=None)
    send(sink, job, values)
    send(sink, job, values)
    assert query(path, "SELECT count(*) FROM pv") == [(4,)]
    assert list(sink.receipts(job)) == []


def test_a_receipt_of_another_epoch_with_the_same_number_is_refused(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    values = slot(sink)
    send(sink, job, values)
    assert values.receipt is not None
    other = replace(values, receipt=replace(values.receipt, fingerprint=Fingerprint("other")))
    with pytest.raises(CheckpointRolledBack):
        send(sink, job, other)


def test_a_locked_database_raises_and_nothing_is_written(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv", lock_timeout_s=0))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TryAgain, match="locked"):
            send(sink, job, slot(sink))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            ready(sink)
        other.execute("ROLLBACK")
    assert send(sink, job, slot(sink))


def test_a_row_that_the_table_rejects_is_named_with_its_slot(path: Path, job: JobIdentity, slot: Slots) -> None:
    query(path, "CREATE TABLE pv (id INTEGER, app TEXT CHECK (app <> 'a'))")
    sink = ready(SQLiteSink(path, table="pv"))
    with pytest.raises(RowsRejected, match="slot 3") as rejected:
        send(sink, job, slot(sink, slot=3))
    assert rejected.value.epoch == 7
    assert list(sink.receipts(job)) == []


# --- receipts and the watermark -------------------------------------------------------------------


def test_receipts_are_those_of_this_jobs_name_and_sink_in_every_generation(
    path: Path, job: JobIdentity, slot: Slots
) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    older = JobIdentity(job.name, Generation("bbbbbbbb"))
    send(sink, job, slot(sink))
    send(sink, older, slot(sink, epoch=40, job=older), epoch=40)
    stranger = JobIdentity(JobName("page views 2"), job.generation)
    send(sink, stranger, slot(sink, job=stranger))
    second = ready(SQLiteSink(path, table="pv", name="second"))
    send(second, job, slot(second))
    assert set(sink.receipts(job)) == {
        Receipt(job.name, job.generation, sink.name, 7, 0, MARK),
        Receipt(job.name, older.generation, sink.name, 40, 0, MARK),
    }
    assert query(path, "SELECT count(*) FROM pv") == [(8,)]


def test_an_epoch_below_the_watermark_is_not_written_again_though_its_receipt_is_gone(
    path: Path, job: JobIdentity, slot: Slots
) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    for epoch in range(5):
        send(sink, job, slot(sink, epoch=epoch), epoch=epoch)
    sink.forget(job, 3)
    assert {receipt.epoch for receipt in sink.receipts(job)} == {3, 4}
    for epoch in range(5):
        send(sink, job, slot(sink, epoch=epoch), epoch=epoch)
    assert query(path, "SELECT count(*) FROM pv") == [(10,)]
    send(sink, job, slot(sink, epoch=5), epoch=5)
    assert query(path, "SELECT count(*) FROM pv") == [(12,)]


def test_the_watermark_is_never_lowered(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    sink.forget(job, 9)
    sink.forget(job, 2)
    send(sink, job, slot(sink, epoch=8), epoch=8)
    assert query(path, "SELECT count(*) FROM pv") == [(0,)]
    assert query(path, "SELECT settled FROM onceward_watermarks") == [(8,)]


def test_the_watermark_of_one_generation_does_not_hold_for_another(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    sink.forget(job, 9)
    fork = JobIdentity(job.name, Generation("bbbbbbbb"))
    send(sink, fork, slot(sink, job=fork))
    assert query(path, "SELECT count(*) FROM pv") == [(2,)]


def test_the_newest_epochs_receipts_are_kept_so_that_the_generation_stays_known(
    path: Path, job: JobIdentity, slot: Slots
) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    for epoch in (1, 2):
        send(sink, job, slot(sink, epoch=epoch), slot(sink, epoch=epoch, slot=1), epoch=epoch)
    sink.forget(job, 100)
    assert {(receipt.epoch, receipt.slot) for receipt in sink.receipts(job)} == {(2, 0), (2, 1)}


def test_receipts_of_a_database_that_does_not_exist_are_none_and_make_no_file(path: Path, job: JobIdentity) -> None:
    assert list(SQLiteSink(path, table="pv").receipts(job)) == []
    assert not path.exists()
    query(path, "CREATE TABLE pv (id)")
    assert list(SQLiteSink(path, table="pv").receipts(job)) == []
