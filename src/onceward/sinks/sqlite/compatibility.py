"""The target table of the SQLite sink: its statements, and whether it fits the stream. Nothing here writes rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from onceward.errors import TargetRefused
from onceward.sinks.spark_types import spark_type


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the table has."""

    name: str
    declared: str
    is_required: bool
    is_generated: bool
    key_position: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the database describes it; column names are folded, because SQLite ignores their case."""

    columns: dict[str, Column]
    unique: list[frozenset[str]]
    is_strict: bool
    has_rowid: bool
    ignores_some: bool
    """Whether a unique index takes texts for equal that differ."""

    @property
    def rowid_alias(self) -> str | None:
        """The column that is the row id: a null in it does not stay null."""
        keys = [column for column in self.columns.values() if column.key_position]
        if self.has_rowid and len(keys) == 1 and keys[0].declared.upper() == "INTEGER":
            return folded(keys[0].name)
        return None


def quoted(identifier: str) -> str:
    """An identifier that is taken for nothing else, whatever is in it."""
    return '"' + identifier.replace('"', '""') + '"'


def folded(name: str) -> str:
    """Two names are one column to SQLite exactly when these are equal: it folds ASCII letters and no others."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def columns_as_sql(names: Sequence[str]) -> str:
    """A list of quoted identifiers."""
    return ", ".join(quoted(name) for name in names)


def create_table(table: str, schema: pa.Schema, keys: Sequence[str]) -> str:
    """The statement that makes a table for this stream."""
    columns = [f"{quoted(field.name)} {_declared(field.type, field.name in keys)}" for field in schema]
    columns += [f"PRIMARY KEY ({columns_as_sql(keys)})"] if keys else []
    return f"CREATE TABLE {quoted(table)} ({', '.join(columns)})"


def create_index(table: str, keys: Sequence[str]) -> str:
    """The statement that makes an existing table fit for upserts."""
    name = "_".join([table, *keys, "key"])
    return f"CREATE UNIQUE INDEX {quoted(name)} ON {quoted(table)} ({columns_as_sql(keys)})"


def insert(table: str, columns: Sequence[str]) -> str:
    """Add rows. OR ABORT overrules a table that says of rows which violate a constraint that they are left out, or take
    another's place."""
    values = ", ".join("?" for _ in columns)
    return f"INSERT OR ABORT INTO {quoted(table)} ({columns_as_sql(columns)}) VALUES ({values})"


def upsert(table: str, columns: Sequence[str], keys: Sequence[str], *, with_keys: bool) -> str:
    """Add rows, or replace what those with the same keys hold in the stream's columns; `with_keys` also the keys, where
    they can be equal and differ."""
    kept = set() if with_keys else {folded(key) for key in keys}
    others = [column for column in columns if folded(column) not in kept]
    changes = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in others)
    action = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
    return f"{insert(table, columns)} ON CONFLICT ({columns_as_sql(keys)}) {action}"


def update(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Change the row with these keys, nulls among them; parameters are all columns, then the keys."""
    changes = ", ".join(f"{quoted(column)} = ?" for column in columns)
    where = " AND ".join(f"{quoted(key)} IS ?" for key in keys)
    return f"UPDATE OR ABORT {quoted(table)} SET {changes} WHERE {where}"


def describe(database: sqlite3.Connection, table: str) -> Table | None:
    """The table, or None when there is none. A view is refused."""
    found = database.execute(
        "SELECT type, wr, strict FROM pragma_table_list(?) WHERE schema = 'main'", (table,)
    ).fetchone()
    if found is None:
        return None
    kind, without_rowid, strict = found
    if kind == "view":
        raise TargetRefused(f"{table!r} is a view", hint="name the table behind it")
    rows = database.execute('SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)', (table,))
    columns = {
        folded(name): Column(name, declared, bool(required) and default is None, hidden in (2, 3), position)
        for name, declared, required, default, position, hidden in rows
    }
    keys = frozenset(name for name, column in columns.items() if column.key_position)
    unique = [keys] if keys else []
    loose = database.execute(
        "SELECT count(*) FROM pragma_index_list(?) AS i JOIN pragma_index_xinfo(i.name) AS c "
        "WHERE i.\"unique\" AND c.key AND c.coll <> 'BINARY'",
        (table,),
    ).fetchone()
    indexes = unique + _unique_indexes(database, table)
    return Table(columns, indexes, bool(strict), not without_rowid, bool(loose[0]))


def _unique_indexes(database: sqlite3.Connection, table: str) -> list[frozenset[str]]:
    indexes = database.execute(
        'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial', (table,)
    ).fetchall()
    columns = [
        [row[0] for row in database.execute("SELECT name FROM pragma_index_info(?)", index)] for index in indexes
    ]
    # An expression in an index has no name.
    return [frozenset(folded(name) for name in names) for names in columns if None not in names]


def refuse_unless_fitting(table: Table, name: str, schema: pa.Schema, keys: Sequence[str]) -> None:
    """Raise `TargetRefused`, naming the columns, when rows of this schema cannot go into the table."""
    stream = {folded(field.name): field for field in schema}
    missing = [field.name for key, field in stream.items() if key not in table.columns]
    if missing:
        raise TargetRefused(
            f"table {name!r} has no column {', '.join(missing)}",
            hint=f"its columns are {', '.join(column.name for column in table.columns.values())}; "
            "add the missing ones, or select others in the query",
        )
    required = [column.name for key, column in table.columns.items() if column.is_required and key not in stream]
    required = [column for column in required if folded(column) != table.rowid_alias]
    if required:
        raise TargetRefused(
            f"table {name!r} needs a value for {', '.join(required)}, which the stream does not have",
            hint="add the column to the query, or give it a default in the table",
        )
    for key, field in stream.items():
        _refuse_unless_storable(table.columns[key], field, is_strict=table.is_strict)
    if keys and frozenset(folded(key) for key in keys) not in table.unique:
        raise TargetRefused(
            f"table {name!r} has no unique index on {', '.join(keys)}, which an upsert needs",
            hint=f"run: {create_index(name, keys)};",
        )


_EXACT_DIGITS = 15
_EXACT_BITS = 32


def _refuse_unless_storable(column: Column, field: pa.Field, *, is_strict: bool) -> None:
    why = _why_not(_affinity(column.declared), field.type, is_strict=is_strict, declared=column.declared)
    if column.is_generated or why is not None:
        declared = "is computed by the table" if column.is_generated else f"is declared {column.declared}"
        raise TargetRefused(
            f"column {column.name!r} {declared} and cannot take {spark_type(field.type)}{why or ''}",
            hint="cast it in the query, or change the table",
        )


def _why_not(affinity: str, kind: pa.DataType, *, is_strict: bool, declared: str) -> str | None:
    """Why a value would not be read as it was written, as the end of a sentence; None when it is."""
    is_bytes = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)
    is_number = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind)
    is_text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_dictionary(kind)
    if affinity == "BLOB" or pt.is_null(kind):
        wrong = is_strict and declared.upper() == "BLOB" and not (is_bytes or pt.is_null(kind))
        return "" if wrong else None
    if affinity == "TEXT":
        return ": a number would become text" if is_number else "" if is_bytes else None
    if pt.is_decimal(kind):
        # It is sent as text, and becomes a number here: a double keeps fifteen digits.
        exact = kind.precision <= _EXACT_DIGITS and not (is_strict and affinity == "INTEGER")
        return None if exact else ": digits would be lost"
    if affinity == "REAL" and pt.is_integer(kind) and kind.bit_width > _EXACT_BITS:
        return ": digits of large numbers would be lost"
    if affinity in ("INTEGER", "REAL"):
        is_cut = is_strict and affinity == "INTEGER" and pt.is_floating(kind)
        return None if is_number and not is_cut else ""
    return ": a text that looks like a number would become one" if is_text else "" if is_bytes else None


def _affinity(declared: str) -> str:
    """How SQLite itself reads a declared type (https://www.sqlite.org/datatype3.html, 3.1)."""
    text = declared.upper()
    if "INT" in text:
        return "INTEGER"
    if "CHAR" in text or "CLOB" in text or "TEXT" in text:
        return "TEXT"
    if "BLOB" in text or not text:
        return "BLOB"
    if "REAL" in text or "FLOA" in text or "DOUB" in text:
        return "REAL"
    return "BLOB" if text == "ANY" else "NUMERIC"


def _declared(kind: pa.DataType, is_key: bool) -> str:
    if pt.is_boolean(kind) or pt.is_integer(kind):
        # INTEGER PRIMARY KEY would be the row id, which replaces a null key by a number of its own.
        return "BIGINT" if is_key else "INTEGER"
    if pt.is_floating(kind):
        return "REAL"
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return "BLOB"
    return "TEXT"
