"""Rows on their way into the table: the statements."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.sinks.sqlite.table import columns_as_sql, folded, quoted


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
