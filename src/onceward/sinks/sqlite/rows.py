"""Rows on their way into the table: the statements, and which of them takes which row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from onceward.errors import TargetRefused
from onceward.sinks.sqlite.encode import DoesNotFit, parameters
from onceward.sinks.sqlite.facts import TargetFacts
from onceward.sinks.sqlite.options import Options
from onceward.sinks.sqlite.table import columns_as_sql, describe, folded, quoted


@dataclass(frozen=True, slots=True)
class RowWriter:
    """One sink's. It writes inside a transaction that the caller began."""

    options: Options
    facts: TargetFacts
    sink: str

    def write(self, database: sqlite3.Connection, batch: pa.RecordBatch) -> None:
        """Add the rows, or in an upsert replace those that have their keys."""
        table, keys, columns = self.options.table, self.options.keys, batch.schema.names
        if self.options.mode == "append":
            _run(database, insert(table, columns), batch)
            return
        without_key = self._without_key(batch)
        if without_key is not None:
            self._write_null_keys(database, batch.filter(without_key))
            batch = batch.filter(pc.invert(without_key))
        _run(database, upsert(table, columns, keys, with_keys=self._keys_may_differ(batch)), batch)

    def _keys_may_differ(self, batch: pa.RecordBatch) -> bool:
        """Whether two keys can be equal to the table and be spelt differently, by a collation or as 0.0 and -0.0."""
        keys = {folded(key) for key in self.options.keys}
        has_floats = any(pa.types.is_floating(field.type) for field in batch.schema if folded(field.name) in keys)
        return has_floats or bool(self.facts.has_loose_keys)

    def _without_key(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Which rows have a null among their keys; None when no row has."""
        keys = {folded(key) for key in self.options.keys}
        columns = [batch.column(i) for i, name in enumerate(batch.schema.names) if folded(name) in keys]
        nulls = [column.is_null() for column in columns if column.null_count]
        mask = nulls[0] if nulls else None
        for more in nulls[1:]:
            mask = pc.or_(mask, more)
        return mask

    def _write_null_keys(self, database: sqlite3.Connection, batch: pa.RecordBatch) -> None:
        """Row by row, since to a unique index two nulls are never the same. Such rows are few."""
        table, keys, columns = self.options.table, self.options.keys, batch.schema.names
        found = describe(database, table)
        if found is not None and found.rowid_alias in {folded(key) for key in keys}:
            raise TargetRefused(
                f"a row has no key, and the key of table {table!r} is its row id, which cannot be null",
                hint="filter such rows out in the query",
                sink=self.sink,
            )
        names = [folded(name) for name in columns]
        at = [names.index(folded(key)) for key in keys]
        change, add = update(table, columns, keys), insert(table, columns)
        for row in parameters(batch):
            if database.execute(change, (*row, *(row[i] for i in at))).rowcount == 0:
                database.execute(add, row)


def _run(database: sqlite3.Connection, statement: str, batch: pa.RecordBatch) -> None:
    """For every row, and see that each has been written: a trigger can leave one out without an error."""
    written = database.executemany(statement, parameters(batch)).rowcount
    if written < batch.num_rows and not statement.endswith("DO NOTHING"):
        raise DoesNotFit(f"a trigger leaves out {batch.num_rows - max(written, 0)} of {batch.num_rows} rows")


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
