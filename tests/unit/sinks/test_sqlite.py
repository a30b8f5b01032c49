"""The SQLite sink, driven through its contract on real database files."""

import math
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceward.contracts import Receipt, SlotValues, TryAgain
from onceward.errors import (
    CheckpointRolledBack,
    ConfigurationError,
    DamagedFile,
    RowsRejected,
    TargetChanged,
    TargetRefused,
)
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import SQLiteSink

NOW = datetime(2024, 5, 1, tzinfo=UTC)
ROWS = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "app": ["a", None]})
MARK = Fingerprint("fffffffffffffff2")

Slots = Callable[..., SlotValues]


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


def query(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(statement, values).fetchall()
        database.commit()
        return rows


def ready(sink: SQLiteSink, schema: pa.Schema = ROWS.schema) -> SQLiteSink:
    sink.check(schema, output_mode="append")
    return sink


def send(sink: SQLiteSink, job: JobIdentity, *slots: SlotValues, epoch: int = 7) -> bool:
    return sink.send_transaction(slots, job, epoch, NOW)


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


# --- upsert ---------------------------------------------------------------------------------------


def test_an_upsert_keeps_the_last_row_of_each_key(path: Path, job: JobIdentity, slot: Slots) -> None:
    batch = pa.record_batch({"app": ["a", "b", "a"], "n": pa.array([1, 2, 3], pa.int64())})
    sink = ready(SQLiteSink(path, table="pv", mode="upsert", keys="app"), batch.schema)
    send(sink, job, slot(sink, batch))
    send(sink, job, slot(sink, batch.slice(1, 1).set_column(1, "n", pa.array([9], pa.int64())), epoch=8), epoch=8)
    assert query(path, "SELECT * FROM pv ORDER BY app") == [("a", 3), ("b", 9)]


def test_null_is_a_key_like_any_other(path: Path, job: JobIdentity, slot: Slots) -> None:
    batch = pa.record_batch(
        {"app": ["a", None, None], "day": pa.array([1, 1, None]), "n": pa.array([1, 2, 3], pa.int64())}
    )
    again = batch.set_column(2, "n", pa.array([4, 5, 6], pa.int64()))
    sink = ready(SQLiteSink(path, table="pv", mode="upsert", keys=["app", "day"]), batch.schema)
    send(sink, job, slot(sink, batch))
    send(sink, job, slot(sink, again, epoch=8), epoch=8)
    assert query(path, "SELECT * FROM pv ORDER BY n") == [("a", 1, 4), (None, 1, 5), (None, None, 6)]


def test_a_null_key_is_refused_where_the_table_would_replace_it(path: Path, job: JobIdentity, slot: Slots) -> None:
    query(path, "CREATE TABLE pv (id INTEGER PRIMARY KEY, app TEXT)")
    sink = ready(SQLiteSink(path, table="pv", mode="upsert", keys="id"))
    with pytest.raises(TargetRefused, match="row id"):
        send(sink, job, slot(sink, pa.record_batch({"id": pa.array([None], pa.int64()), "app": ["a"]})))


def test_an_upsert_of_nothing_but_keys_inserts_once(path: Path, job: JobIdentity, slot: Slots) -> None:
    sink = ready(SQLiteSink(path, table="pv", mode="upsert", keys=["id", "app"]))
    send(sink, job, slot(sink, ROWS, ROWS))
    assert query(path, "SELECT count(*) FROM pv") == [(2,)]


def test_an_upsert_leaves_the_tables_other_columns_alone(path: Path, job: JobIdentity, slot: Slots) -> None:
    query(path, "CREATE TABLE pv (ID INT UNIQUE, app TEXT, note TEXT DEFAULT 'new')")
    query(path, "INSERT INTO pv VALUES (1, 'z', 'kept')")
    sink = ready(SQLiteSink(path, table="PV", mode="upsert", keys=["id"]))
    send(sink, job, slot(sink))
    assert query(path, "SELECT * FROM pv ORDER BY id") == [(1, "a", "kept"), (2, None, "new")]


# --- what the file does with rows ---------------------------------------------------------------


@pytest.mark.parametrize("clause", ["IGNORE", "REPLACE", "ROLLBACK", "FAIL"])
def test_a_row_that_the_table_would_leave_out_or_put_in_anothers_place_is_rejected(
    path: Path, job: JobIdentity, slot: Slots, clause: str
) -> None:
    query(path, f"CREATE TABLE pv (id INTEGER UNIQUE ON CONFLICT {clause}, app TEXT)")
    sink = ready(SQLiteSink(path, table="pv"))
    send(sink, job, slot(sink))
    with pytest.raises(RowsRejected, match="UNIQUE"):
        send(sink, job, slot(sink, epoch=8), epoch=8)
    assert query(path, "SELECT * FROM pv") == [(1, "a"), (2, None)]


@pytest.mark.parametrize("mode", [{}, {"mode": "upsert", "keys": "id"}], ids=["append", "upsert"])
def test_a_row_that_a_trigger_leaves_out_is_named(
    path: Path, job: JobIdentity, slot: Slots, mode: dict[str, Any]
) -> None:
    query(path, "CREATE TABLE pv (id BIGINT PRIMARY KEY, app TEXT)")
    query(path, "CREATE TRIGGER drops BEFORE INSERT ON pv WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END")
    sink = ready(SQLiteSink(path, table="pv", **mode))
    with pytest.raises(RowsRejected, match="a trigger leaves out 1 of 2 rows"):
        send(sink, job, slot(sink))
    assert [row.row for row in sink.find_rejected([slot(sink)], job, 7)] == [1]
    assert query(path, "SELECT * FROM pv") == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE UNIQUE INDEX once ON pv (app) WHERE id > 99",
        "CREATE TRIGGER drops BEFORE INSERT ON pv BEGIN SELECT RAISE(IGNORE); END",
        "ALTER TABLE pv RENAME COLUMN app TO other",
        "DROP TABLE pv",
    ],
)
def test_a_change_in_mid_run_stops_the_next_epoch(path: Path, job: JobIdentity, slot: Slots, statement: str) -> None:
    sink = ready(SQLiteSink(path, table="pv"))
    send(sink, job, slot(sink))
    query(path, "CREATE INDEX harmless ON pv (app)")
    send(sink, job, slot(sink, epoch=8), epoch=8)
    query(path, statement)
    with pytest.raises(TargetChanged) as changed:
        send(sink, job, slot(sink, epoch=9), epoch=9)
    assert changed.value.epoch == 9


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE pv (app TEXT COLLATE NOCASE PRIMARY KEY, id INTEGER)"],
        ["CREATE TABLE pv (app TEXT, id INTEGER)", "CREATE UNIQUE INDEX loose ON pv (app COLLATE NOCASE)"],
    ],
    ids=["column", "index"],
)
def test_keys_are_one_where_the_index_says_so_and_are_spelt_as_they_came_last(
    path: Path, job: JobIdentity, slot: Slots, statements: list[str]
) -> None:
    for statement in statements:
        query(path, statement)
    sink = ready(SQLiteSink(path, table="pv", mode="upsert", keys="app"))
    send(sink, job, slot(sink, pa.record_batch({"id": pa.array([1, 2], pa.int64()), "app": ["a", "A"]})))
    assert query(path, "SELECT app, id FROM pv") == [("A", 2)]


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


# --- values ---------------------------------------------------------------------------------------


def test_every_type_is_stored_as_said(path: Path, job: JobIdentity, slot: Slots) -> None:
    table = pa.table(
        {
            "i8": pa.array([1, None, -1], pa.int8()),
            "i64": pa.array([2**63 - 1, None, -(2**63)], pa.int64()),
            "f": pa.array([1.5, None, math.inf]),
            "zero": pa.array([-0.0, None, 0.0]),
            "t": pa.array([True, None, False]),
            "s": pa.array(["ü☃'\"\0x", None, ""]),
            "b": pa.array([b"\x00\xff", None, b""]),
            "dec": pa.array(["0.0000000001", None, "12345678901234567890.5"]).cast(pa.decimal128(38, 10)),
            "d": pa.array([19723, None, 0], pa.date32()),
            "ts": pa.array([1_714_557_600_250_001, None, -1], pa.timestamp("us", "Europe/Berlin")),
            "ntz": pa.array([1_714_557_600_250_001, None, -1], pa.timestamp("us")),
            "l": pa.array([[1, None], None, []], pa.list_(pa.int64())),
            "st": pa.array([{"a": "x"}, None, {"a": None}], pa.struct([("a", pa.string())])),
            "n": pa.nulls(3),
            "dic": pa.array(["x", None, "x"]).dictionary_encode(),
        }
    )
    sink = ready(SQLiteSink(path, table="every"), table.schema)
    send(sink, job, slot(sink, *table.to_batches(max_chunksize=2), *table.slice(1, 1).to_batches()))
    nothing = (None,) * len(table.columns)
    stamps = "2024-05-01T10:00:00.250001", "1969-12-31T23:59:59.999999"
    assert query(path, "SELECT * FROM every ORDER BY rowid") == [
        (
            *(1, 2**63 - 1, 1.5, 0.0, 1, "ü☃'\"\0x", b"\x00\xff", "0.0000000001", "2024-01-01"),
            *(stamps[0] + "Z", stamps[0], "[1,null]", '{"a":"x"}', None, "x"),
        ),
        nothing,
        (
            *(-1, -(2**63), math.inf, 0.0, 0, "", b"", "12345678901234567890.5000000000", "1970-01-01"),
            *(stamps[1] + "Z", stamps[1], "[]", "{}", None, "x"),
        ),
        nothing,
    ]


def test_a_nan_is_refused_as_sqlite_has_none(path: Path, job: JobIdentity, slot: Slots) -> None:
    batch = pa.record_batch({"f": [1.0, math.nan, None]})
    sink = ready(SQLiteSink(path, table="pv"), batch.schema)
    with pytest.raises(RowsRejected, match="NaN"):
        send(sink, job, slot(sink, batch))
    assert [row.row for row in sink.find_rejected([slot(sink, batch)], job, 7)] == [1]


HOSTILE = ['a"b', "a.b", "x'); DROP TABLE pv; --", "ünï☃", "select", "a b", "[x]", "`y`", "?", "a/b", "new\nline"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_hostile_identifiers_are_nothing_but_names(
    path: Path, job: JobIdentity, slot: Slots, name: str, mode: str
) -> None:
    batch = pa.record_batch({name: ["k", None], "n": pa.array([1, 2], pa.int64())})
    sink = SQLiteSink(path, table=name, mode=mode, keys=[name] if mode == "upsert" else [])
    for epoch in (1, 2):
        ready(sink, batch.schema)
        send(sink, job, slot(sink, batch, epoch=epoch), epoch=epoch)
    tables = {row[0] for row in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {name, "onceward_receipts", "onceward_watermarks"}
    quoted = '"' + name.replace('"', '""') + '"'
    assert query(path, f"SELECT count(*) FROM {quoted}") == [(4 if mode == "append" else 2,)]


# --- checks ---------------------------------------------------------------------------------------


def test_a_missing_table_is_made_only_if_that_is_wished(path: Path) -> None:
    sink = SQLiteSink(path, table="pv", create_table=False, mode="upsert", keys="id")
    with pytest.raises(TargetRefused, match="no table 'pv'") as refused:
        ready(sink)
    assert refused.value.sink == "sqlite:pv"
    statement = (refused.value.hint or "").removeprefix("run: ")
    assert statement == 'CREATE TABLE "pv" ("id" BIGINT, "app" TEXT, PRIMARY KEY ("id"));'
    query(path, statement)
    ready(sink)


def test_an_upsert_without_a_unique_index_is_refused_with_the_statement_that_makes_it(path: Path) -> None:
    query(path, "CREATE TABLE pv (id INTEGER, app TEXT)")
    query(path, "CREATE UNIQUE INDEX part ON pv (id) WHERE id > 0")
    sink = SQLiteSink(path, table="pv", mode="upsert", keys=["id"])
    with pytest.raises(TargetRefused, match="no unique index") as refused:
        ready(sink)
    query(path, (refused.value.hint or "").removeprefix("run: "))
    ready(sink)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE pv (id INTEGER)", "no column app"),
        ("CREATE TABLE pv (id INTEGER, app TEXT, must TEXT NOT NULL)", "needs a value for must"),
        ("CREATE TABLE pv (id INTEGER, app INTEGER)", "'app' is declared INTEGER"),
        ("CREATE TABLE pv (id INTEGER, app DOUBLE PRECISION)", "'app' is declared DOUBLE PRECISION"),
        ("CREATE TABLE pv (id INTEGER, app BLOB) STRICT", "'app' is declared BLOB"),
        ("CREATE TABLE pv (id REAL, app TEXT)", "'id' is declared REAL .* digits of large numbers would be lost"),
        ("CREATE TABLE pv (id TEXT, app TEXT)", "'id' is declared TEXT .* a number would become text"),
        ("CREATE TABLE pv (id INTEGER, app DATE)", "'app' is declared DATE .* looks like a number"),
        ("CREATE TABLE pv (id INTEGER, app TEXT AS (id || 'x'))", "'app' is computed"),
        ("CREATE VIEW pv AS SELECT 1 AS id, 'a' AS app", "is a view"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_left_alone(path: Path, statement: str, said: str) -> None:
    query(path, statement)
    with pytest.raises(TargetRefused, match=said) as refused:
        ready(SQLiteSink(path, table="pv"))
    assert refused.value.hint
    assert query(path, "SELECT count(*) FROM sqlite_master") == [(1,)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE pv (id INTEGER, app TEXT, note TEXT NOT NULL DEFAULT '', key INTEGER PRIMARY KEY NOT NULL)",
        "CREATE TABLE pv (ID, APP)",
        "CREATE TABLE pv (id NUMERIC, app VARCHAR(20))",
        "CREATE TABLE pv (id ANY, app ANY) STRICT",
    ],
)
def test_a_table_that_fits_is_taken(path: Path, job: JobIdentity, slot: Slots, statement: str) -> None:
    query(path, statement)
    sink = ready(SQLiteSink(path, table="pv"))
    send(sink, job, slot(sink))
    assert query(path, "SELECT id, app FROM pv") == [(1, "a"), (2, None)]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"id": pa.uint64()}, "cannot be stored"),
        ({"id": pa.duration("us")}, "cannot be stored"),
        ({"id": pa.list_(pa.duration("us"))}, "cannot be stored"),
        ({"id": pa.int64(), "ID": pa.int64()}, "ignores case"),
        ({}, "no columns"),
    ],
)
def test_columns_that_sqlite_cannot_hold_are_refused(path: Path, schema: dict[str, pa.DataType], said: str) -> None:
    with pytest.raises(TargetRefused, match=said):
        ready(SQLiteSink(path, table="pv"), pa.schema(schema))


def test_a_key_that_the_stream_lacks_is_refused(path: Path) -> None:
    with pytest.raises(TargetRefused, match="no key column day"):
        ready(SQLiteSink(path, table="pv", mode="upsert", keys=["id", "day"]))


def test_output_mode_complete_needs_an_upsert(path: Path) -> None:
    with pytest.raises(TargetRefused, match="complete") as refused:
        SQLiteSink(path, table="pv").check(ROWS.schema, output_mode="complete")
    assert "upsert" in (refused.value.hint or "")
    SQLiteSink(path, table="pv", mode="upsert", keys="id").check(ROWS.schema, output_mode="complete")


def test_a_file_that_is_no_database_is_refused(path: Path, tmp_path: Path) -> None:
    path.write_text("no database, but long enough to be read as one " * 10)
    with pytest.raises(TargetRefused, match="not a database"):
        ready(SQLiteSink(path, table="pv"))
    with pytest.raises(TargetRefused, match="unable to open"):
        ready(SQLiteSink(tmp_path / "missing" / "x.db", table="pv"))


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        (":memory:", {}, "plain path"),
        ("sqlite:///x.db", {}, "plain path"),
        ("x.db", {"table": ""}, "name the table"),
        ("x.db", {"table": "onceward_receipts"}, "another name"),
        ("x.db", {"table": "sqlite_x"}, "another name"),
        ("x.db", {"mode": "merge"}, "append or upsert"),
        ("x.db", {"mode": "upsert"}, "keys="),
        ("x.db", {"keys": ["id"]}, "upsert"),
        ("x.db", {"mode": "upsert", "keys": ["id", "ID"]}, "each column once"),
        ("x.db", {"lock_timeout_s": -1}, "seconds"),
    ],
)
def test_wrong_options_are_refused_with_a_hint(path: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SQLiteSink(path, **{"table": "pv"} | options)
    assert said in (refused.value.hint or "")
