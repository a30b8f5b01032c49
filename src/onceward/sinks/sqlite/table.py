"""A table as the database describes it, and the statements that make one and fix it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from onceward.errors import TargetRefused


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


def create_table(table: str, schema: pa.Schema, keys: Sequence[str]) -> str:
    """The statement that makes a table for this stream."""
    columns = [f"{quoted(field.name)} {_declared(field.type, field.name in keys)}" for field in schema]
    columns += [f"PRIMARY KEY ({columns_as_sql(keys)})"] if keys else []
    return f"CREATE TABLE {quoted(table)} ({', '.join(columns)})"


def create_index(table: str, keys: Sequence[str]) -> str:
    """The statement that makes an existing table fit for upserts."""
    name = "_".join([table, *keys, "key"])
    return f"CREATE UNIQUE INDEX {quoted(name)} ON {quoted(table)} ({columns_as_sql(keys)})"


def _declared(kind: pa.DataType, is_key: bool) -> str:
    if pt.is_boolean(kind) or pt.is_integer(kind):
        # INTEGER PRIMARY KEY would be the row id, which replaces a null key by a number of its own.
        return "BIGINT" if is_key else "INTEGER"
    if pt.is_floating(kind):
        return "REAL"
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return "BLOB"
    return "TEXT"
