"""Upsert: COPY into a temporary table, then one INSERT … ON CONFLICT, so that only the server handles single rows.

Of several rows with one key in an epoch the last one stays: the one with the greatest `order_by`, or else the one that
came last. A key that is null is a key like any other, though to PostgreSQL's unique indexes two nulls differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceward.connections.postgres import PostgresError, Session, columns_as_sql, quoted
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.postgres.encode import Encoder, encoders
from onceward.sinks.postgres.equality import keys_of
from onceward.sinks.postgres.errors import classify
from onceward.sinks.postgres.fast_path import FastPath
from onceward.sinks.postgres.hazards import refuse_kept, triggers_between
from onceward.sinks.postgres.options import DELETED, ROW, STAGE, Options
from onceward.sinks.postgres.rows import converted, in_order_of
from onceward.sinks.postgres.table import Table

_ONE_KEY_TWICE = "21000"
_MANY = 10_000


class Upsert:
    """One epoch, inside a transaction that the caller began."""

    def __init__(self, session: Session, options: Options, table: Table, each_once: FastPath) -> None:
        self._session = session
        self._options = options
        self._table = table
        self._keys = keys_of(table, options)
        self._each_once = each_once
        self._columns: list[str] = []
        self._has_null_keys = False
        self._has_deletes = False
        self._count = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """All rows of the epoch, in their order."""
        self._session.copy_all(STAGE, None, in_order_of(self._keys.columns, self._staged(batches)))
        if self._columns:
            self._merge()
            self._session.run(f"DROP TABLE pg_temp.{STAGE}")

    def _staged(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches as they go into the temporary table: numbered, with their flag, as COPY wants them."""
        columns: list[Encoder] = []
        for batch in batches:
            if not columns:
                columns = encoders(self._table, self._options, batch.schema)
                self._columns = [one.column for one in columns]
                self._make_stage()
            self._has_null_keys |= any(batch.column(key).null_count for key in self._options.keys)
            ready = converted(batch, columns)
            numbers = pa.array(np.arange(self._count, self._count + batch.num_rows))
            ready = ready.append_column(ROW, numbers).append_column(DELETED, self._flags(batch))
            self._count += batch.num_rows
            yield ready

    def _flags(self, batch: pa.RecordBatch) -> pa.Array:
        if self._options.deleted is None:
            return pa.repeat(False, batch.num_rows)
        flags = pc.fill_null(batch.column(self._options.deleted), False)
        self._has_deletes |= bool(pc.any(flags).as_py())
        return flags

    def _make_stage(self) -> None:
        """Of exactly the columns' types, but without what the table demands of its rows: that comes with the INSERT."""
        columns = columns_as_sql(self._columns)
        self._session.run(
            f"CREATE TEMPORARY TABLE {STAGE} ON COMMIT DROP AS SELECT {columns}, 0::bigint AS {ROW}, "
            f"false AS {DELETED} FROM {self._table} WITH NO DATA"
        )

    @property
    def _changed(self) -> list[str]:
        """The columns that a row with a known key writes."""
        kept = frozenset(self._keys.columns) - frozenset(self._keys.rewritten)
        return [column for column in self._columns if column not in kept]

    def _merge(self) -> None:
        """Where every key comes once, which is what aggregations give, nothing needs to be sorted."""
        plain = self._options.order_by is None and not self._has_deletes and not self._has_null_keys
        if plain and self._each_once.is_open():
            self._session.run(f"SAVEPOINT {STAGE}")
            try:
                if self._merge_unsorted():
                    return
            except PostgresError as error:
                # A row that does not fit may be superseded by a later one of its key.
                if error.sqlstate != _ONE_KEY_TWICE and classify(error) is not ErrorClass.ROW:
                    raise
            self._session.run(f"ROLLBACK TO SAVEPOINT {STAGE}")
            self._each_once.back_off()
        self._keep_last()
        if self._has_deletes:
            self._delete(self._keys.same)
        if self._has_deletes and self._has_null_keys:
            self._delete(self._keys.same_with_null)
        rest = f"pg_temp.{STAGE} AS s WHERE NOT s.{DELETED}"
        if self._has_null_keys:
            self._update_null_keys()
            rest += f" AND NOT EXISTS (SELECT FROM {self._table} AS t WHERE {self._keys.same_with_null})"
        self._session.run(f"{self._insert(rest)} {self._on_conflict()}")

    def _merge_unsorted(self) -> bool:
        """False, or an error, if a key came twice.

        ON CONFLICT handles every row by itself. Where all of many keys exist, an UPDATE takes half the time; it changes
        a row once however often its key comes, and then the numbers differ.
        """
        same = self._keys.same
        if self._changed and self._count >= _MANY and self._known(same) == self._count:
            changes = ", ".join(f"{quoted(column)} = s.{quoted(column)}" for column in self._changed)
            update = f"UPDATE {self._table} AS t SET {changes} FROM pg_temp.{STAGE} AS s WHERE {same} RETURNING 1"
            ((changed,),) = self._session.run(f"WITH done AS ({update}) SELECT count(*) FROM done")
            return bool(changed == self._count)
        self._session.run(f"{self._insert(f'pg_temp.{STAGE}')} {self._on_conflict()}")
        return True

    def _known(self, same: str) -> int:
        """How many rows have a key that the table has."""
        exists = f"EXISTS (SELECT FROM {self._table} AS t WHERE {same})"
        ((count,),) = self._session.run(f"SELECT count(*) FROM pg_temp.{STAGE} AS s WHERE {exists}")
        return int(count)

    def _keep_last(self) -> None:
        """Remove every row whose key comes again later."""
        order = [quoted(self._column(self._options.order_by))] if self._options.order_by is not None else []
        latest = ", ".join([*(f"{column} DESC NULLS LAST" for column in order), f"{ROW} DESC"])
        self._session.run(
            f"DELETE FROM pg_temp.{STAGE} WHERE {ROW} IN (SELECT {ROW} FROM (SELECT {ROW}, row_number() OVER "
            f"(PARTITION BY {self._keys.grouping} ORDER BY {latest}) AS place FROM pg_temp.{STAGE}) AS placed "
            "WHERE place > 1)"
        )

    def _delete(self, same: str) -> None:
        which = f"pg_temp.{STAGE} AS s WHERE s.{DELETED} AND {same}"
        self._session.run(f"DELETE FROM {self._table} AS t USING {which}")
        if triggers_between(self._table, self._options, "DELETE"):
            refuse_kept(self._session, f"{self._table} AS t, {which}", self._table)

    def _update_null_keys(self) -> None:
        """What ON CONFLICT does not see, done by hand; columns that the stream does not have keep their values."""
        changes = ", ".join(f"{quoted(column)} = s.{quoted(column)}" for column in self._changed)
        if changes:
            self._session.run(
                f"UPDATE {self._table} AS t SET {changes} FROM pg_temp.{STAGE} AS s "
                f"WHERE NOT s.{DELETED} AND {self._keys.same_with_null}"
            )

    def _insert(self, source: str) -> str:
        columns = columns_as_sql(self._columns)
        return f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {source}"

    def _on_conflict(self) -> str:
        changes = ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in self._changed)
        action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
        return f"ON CONFLICT ({columns_as_sql(self._keys.columns)}) {action}"

    def _column(self, name: str) -> str:
        column = self._table.column(name)
        return column.name if column is not None else name
