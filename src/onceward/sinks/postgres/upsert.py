"""Upsert: COPY into a temporary table, then one INSERT … ON CONFLICT, so that only the server handles single rows.

Of several rows with one key in an epoch the last one stays: the one with the greatest `order_by`, or else the one that
came last. A key that is null is a key like any other, though to PostgreSQL's unique indexes two nulls differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceward.connections.postgres import PostgresError, Session, listed, quoted
from onceward.sinks.postgres.rows import converted, described, in_pieces
from onceward.sinks.postgres.schema import DELETED, ROW, Table, wires
from onceward.sinks.postgres.target import Target
from onceward.sinks.postgres.values import Wire

STAGE = "onceward_stage"
_ONE_KEY_TWICE = "21000"


class Upsert:
    """One epoch, inside a transaction that the caller began."""

    def __init__(self, session: Session, target: Target) -> None:
        self._session = session
        self._target = target
        self._table: Table = described(session, target)
        self._columns: list[str] = []
        self._has_null_keys = False
        self._has_deletes = False

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """All rows of the epoch, in their order."""
        for piece in in_pieces(self._staged(batches)):
            self._session.copy(STAGE, None, piece)
        if self._columns:
            self._merge()
            self._session.run(f"DROP TABLE pg_temp.{STAGE}")

    def _staged(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches as they go into the temporary table: numbered, with their flag, as COPY wants them."""
        ways: list[Wire] = []
        first = 0
        for batch in batches:
            if not ways:
                ways = wires(self._table, self._target, batch.schema)
                self._columns = [wire.column for wire in ways]
                self._make_stage()
            self._has_null_keys |= any(batch.column(key).null_count for key in self._target.keys)
            ready = converted(batch, ways)
            numbers = pa.array(np.arange(first, first + batch.num_rows))
            ready = ready.append_column(ROW, numbers).append_column(DELETED, self._flags(batch))
            first += batch.num_rows
            yield ready

    def _flags(self, batch: pa.RecordBatch) -> pa.Array:
        if self._target.deleted is None:
            return pa.repeat(False, batch.num_rows)
        flags = pc.fill_null(batch.column(self._target.deleted), False)
        self._has_deletes |= bool(pc.any(flags).as_py())
        return flags

    def _make_stage(self) -> None:
        """Of exactly the columns' types, but without what the table demands of its rows: that comes with the INSERT."""
        self._session.run(
            f"CREATE TEMPORARY TABLE {STAGE} ON COMMIT DROP AS SELECT {listed(self._columns)}, 0::bigint AS {ROW}, "
            f"false AS {DELETED} FROM {self._target.table} WITH NO DATA"
        )

    @property
    def _keys(self) -> list[str]:
        found = (self._table.column(key) for key in self._target.keys)
        return [column.name for column in found if column is not None]

    def _merge(self) -> None:
        """Where every key comes once, which is what aggregations give, nothing needs to be sorted."""
        if self._target.order_by is None and not self._has_deletes and not self._has_null_keys:
            self._session.run(f"SAVEPOINT {STAGE}")
            try:
                self._session.run(f"{self._insert(f'pg_temp.{STAGE}')} {self._on_conflict()}")
            except PostgresError as error:
                if error.sqlstate != _ONE_KEY_TWICE:
                    raise
                self._session.run(f"ROLLBACK TO SAVEPOINT {STAGE}")
            else:
                return
        self._keep_last()
        if self._has_deletes:
            self._delete(f"s.{DELETED}")
        if self._has_null_keys:
            self._delete(self._some_key_is_null("s"))
        rest = f"(SELECT * FROM pg_temp.{STAGE} WHERE NOT {DELETED}) AS s"
        self._session.run(f"{self._insert(rest)} {self._on_conflict()}")

    def _keep_last(self) -> None:
        """Remove every row whose key comes again later."""
        order = [quoted(self._column(self._target.order_by))] if self._target.order_by is not None else []
        latest = ", ".join([*(f"{column} DESC NULLS LAST" for column in order), f"{ROW} DESC"])
        self._session.run(
            f"DELETE FROM pg_temp.{STAGE} WHERE {ROW} IN (SELECT {ROW} FROM (SELECT {ROW}, row_number() OVER "
            f"(PARTITION BY {listed(self._keys)} ORDER BY {latest}) AS place FROM pg_temp.{STAGE}) AS placed "
            "WHERE place > 1)"
        )

    def _delete(self, which: str) -> None:
        same = " AND ".join(f"t.{quoted(key)} IS NOT DISTINCT FROM s.{quoted(key)}" for key in self._keys)
        if not self._has_null_keys:
            same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in self._keys)
        self._session.run(f"DELETE FROM {self._target.table} AS t USING pg_temp.{STAGE} AS s WHERE {which} AND {same}")

    def _some_key_is_null(self, alias: str) -> str:
        return "(" + " OR ".join(f"{alias}.{quoted(key)} IS NULL" for key in self._keys) + ")"

    def _insert(self, source: str) -> str:
        columns = listed(self._columns)
        return f"INSERT INTO {self._target.table} ({columns}) SELECT {columns} FROM {source}"

    def _on_conflict(self) -> str:
        others = [column for column in self._columns if column not in self._keys]
        changes = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in others)
        action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
        return f"ON CONFLICT ({listed(self._keys)}) {action}"

    def _column(self, name: str) -> str:
        column = self._table.column(name)
        return column.name if column is not None else name
