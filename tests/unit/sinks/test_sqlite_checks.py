"""What the SQLite sink takes and what it refuses before a job starts: tables, columns, keys, files and options."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlite_slots import ROWS, Slots, query, ready, send

from onceward.errors import ConfigurationError, TargetRefused
from onceward.identity import JobIdentity
from onceward.sinks import SQLiteSink


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
