"""What becomes of a row in SQLite: upserts, conflicts and triggers, every type, and names of any spelling."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlite_slots import ROWS, Slots, query, ready, send

from onceward.errors import RowsRejected, TargetChanged, TargetRefused
from onceward.identity import JobIdentity
from onceward.sinks import SQLiteSink

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
