"""A table in SQLite, the database that needs no server.

Write-ahead: an epoch's rows and the receipts of its slots go in together, in one transaction of the database, on the
driver. Append or upsert by key. Booleans are stored as 0 and 1, decimals, dates and timestamps (ISO 8601, UTC) as text,
nested values as JSON text. SQLite has no NaN: a row with one is refused.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from onceward.connections.sqlite import SQLiteFile
from onceward.contracts import Receipt, RejectedRow, SlotValues, TransactionalWriteAheadSink, refuse_change
from onceward.errors import ConfigurationError, TargetRefused, attributed
from onceward.identity import Fingerprint, Generation, JobIdentity, default_sink_name
from onceward.sinks.bisection import Refusal, rejected_rows
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.output_mode import by_mode, refuse_output_mode
from onceward.sinks.receipts import slots_to_send
from onceward.sinks.spark_types import spark_type
from onceward.sinks.sqlite.compatibility import refuse_unless_fitting
from onceward.sinks.sqlite.encode import DoesNotFit, parameters, refused
from onceward.sinks.sqlite.errors import as_told, classify
from onceward.sinks.sqlite.facts import facts_of
from onceward.sinks.sqlite.rows import insert, update, upsert
from onceward.sinks.sqlite.table import create_table, describe, folded

RECEIPTS = "onceward_receipts"
WATERMARKS = "onceward_watermarks"
_OWN_TABLES = (
    f"""CREATE TABLE IF NOT EXISTS {RECEIPTS} (
        job TEXT NOT NULL, generation TEXT NOT NULL, sink TEXT NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL,
        fingerprint TEXT NOT NULL, committed_at TEXT NOT NULL,
        PRIMARY KEY (job, generation, sink, epoch, slot)) WITHOUT ROWID""",
    f"""CREATE TABLE IF NOT EXISTS {WATERMARKS} (
        job TEXT NOT NULL, generation TEXT NOT NULL, sink TEXT NOT NULL, settled INTEGER NOT NULL,
        PRIMARY KEY (job, generation, sink)) WITHOUT ROWID""",
)

log = logging.getLogger("onceward")


class SQLiteSink(TransactionalWriteAheadSink):
    """Exactly-once rows in the table `table` of the SQLite file `path`.

    `mode="upsert"` needs `keys`; of several rows with one key the last in the slot stays, and null is a key like any
    other. A missing table is made from the stream's columns unless `create_table=False`. A database that another
    process keeps locked for longer than `lock_timeout_s` raises, and the epoch is tried again. `name` is how staged
    work and receipts are found again, so keep it; by default it is made from the table's.
    """

    mechanism = "write-ahead log, receipt in the same SQLite transaction"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        table: str,
        mode: Literal["append", "upsert"] = "append",
        keys: str | Sequence[str] = (),
        name: str | None = None,
        create_table: bool = True,
        lock_timeout_s: float = 30.0,
    ) -> None:
        super().__init__(name=name if name is not None else default_sink_name("sqlite", table))
        self.table = table
        self.mode = mode
        self.repeated = by_mode(mode)
        self.keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self.create_table = create_table
        self._facts: Mapping[str, str] | None = None
        self._loose_keys: bool | None = None
        try:
            self.file = SQLiteFile.parse(path, lock_timeout_s)
            self._check_options()
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None

    def _check_options(self) -> None:
        own = {RECEIPTS, WATERMARKS}
        wrong: tuple[str, str] | None = None
        if not self.table or "\0" in self.table:
            wrong = f"{self.table!r} cannot be a table", "name the table that takes the rows"
        elif folded(self.table) in own or folded(self.table).startswith("sqlite_"):
            wrong = f"table {self.table!r} is reserved", "choose another name"
        elif self.mode not in ("append", "upsert"):
            wrong = f"unknown mode {self.mode!r}", "choose append or upsert"
        elif self.mode == "upsert" and not self.keys:
            wrong = "an upsert needs keys", 'name the columns that tell rows apart: keys=["id"]'
        elif self.mode == "append" and self.keys:
            wrong = "mode append has no use for keys", 'say mode="upsert", or leave keys out'
        elif len({folded(key) for key in self.keys}) < len(self.keys):
            wrong = f"keys names a column twice: {', '.join(self.keys)}", "name each column once"
        if wrong is not None:
            raise ConfigurationError(wrong[0], hint=wrong[1])

    # --- before the start -----------------------------------------------------------------------

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare the table with the stream; make it, and the tables for receipts, where they are missing."""
        try:
            with attributed(sink=self.name):
                self._check_schema(schema, output_mode)
                with self.file.transaction() as database:
                    for statement in _OWN_TABLES:
                        database.execute(statement)
                    self._check_table(database, schema)
                    self._facts = facts_of(database, self.table)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            raise TargetRefused(
                f"cannot write to the database {self.file.path}: {error}",
                hint="give an SQLite file that this user may write, in a folder that exists",
                sink=self.name,
            ) from error

    def _check_schema(self, schema: pa.Schema, output_mode: str) -> None:
        refuse_output_mode(output_mode, self.mode, modes=("append", "upsert"))
        names = [folded(name) for name in schema.names]
        doubled = [name for name in schema.names if names.count(folded(name)) > 1]
        if doubled or not schema.names:
            raise TargetRefused(
                f"the stream's columns {', '.join(doubled)} are one column to SQLite, which ignores case"
                if doubled
                else "the stream has no columns",
                hint="rename or add columns in the query",
                sink=self.name,
            )
        missing = [key for key in self.keys if folded(key) not in names]
        if missing:
            raise TargetRefused(
                f"the stream has no key column {', '.join(missing)}",
                hint=f"its columns are {', '.join(schema.names)}",
                sink=self.name,
            )
        for field in schema:
            hint = refused(field.type)
            if hint is not None:
                raise TargetRefused(
                    f"column {field.name!r} ({spark_type(field.type)}) cannot be stored", hint=hint, sink=self.name
                )

    def _check_table(self, database: sqlite3.Connection, schema: pa.Schema) -> None:
        found = describe(database, self.table)
        if found is not None:
            refuse_unless_fitting(found, self.table, schema, self.keys)
            return
        names = {folded(name): name for name in schema.names}
        statement = create_table(self.table, schema, [names[folded(key)] for key in self.keys])
        if not self.create_table:
            raise TargetRefused(f"there is no table {self.table!r} in {self.file.path}", hint=f"run: {statement};")
        database.execute(statement)
        log.info("made the table %r in %s", self.table, self.file.path)

    # --- publish --------------------------------------------------------------------------------

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, and the receipts, in one transaction."""
        try:
            with self.file.transaction() as database:
                for statement in _OWN_TABLES:
                    database.execute(statement)
                waiting = self._without_receipt(database, slots, job, checkpoint_id)
                if waiting:
                    self._refuse_change(database, checkpoint_id)
                for slot in waiting:
                    self._write_slot(database, slot)
        except (sqlite3.Error, DoesNotFit) as error:
            raise as_told(error, self.table, epoch=checkpoint_id, sink=self.name) from None
        return True

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`."""
        return self._facts or {}

    def _refuse_change(self, database: sqlite3.Connection, epoch: int) -> None:
        now = facts_of(database, self.table)
        if self._facts is None:
            self._facts = now
        if self._loose_keys is None:
            found = describe(database, self.table)
            self._loose_keys = found is not None and found.ignores_some
        refuse_change(self._facts, now, epoch=epoch)

    def _without_receipt(
        self, database: sqlite3.Connection, slots: Sequence[SlotValues], job: JobIdentity, epoch: int
    ) -> list[SlotValues]:
        scope = (job.name, job.generation, self.name)
        found = database.execute(
            f"SELECT slot, fingerprint FROM {RECEIPTS} WHERE job = ? AND generation = ? AND sink = ? AND epoch = ?",
            (*scope, epoch),
        ).fetchall()
        settled = database.execute(
            f"SELECT settled FROM {WATERMARKS} WHERE job = ? AND generation = ? AND sink = ?", scope
        ).fetchone()
        return slots_to_send(slots, found, settled=-1 if settled is None else settled[0])

    def _write_slot(self, database: sqlite3.Connection, slot: SlotValues) -> None:
        try:
            for batch in slot.read():
                self._write(database, batch)
        except (sqlite3.Error, DoesNotFit) as error:
            error.add_note(f"of slot {slot.slot}")
            raise
        receipt = slot.receipt
        if receipt is not None:
            scope = (receipt.job, receipt.generation, receipt.sink, receipt.epoch, receipt.slot)
            now = datetime.now(UTC).isoformat()
            database.execute(f"INSERT INTO {RECEIPTS} VALUES (?, ?, ?, ?, ?, ?, ?)", (*scope, receipt.fingerprint, now))

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`."""
        with closing(self.file.connect()) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                waiting = self._without_receipt(database, slots, job, checkpoint_id)
                self._refuse_change(database, checkpoint_id)
                for batch in (batch for slot in waiting[:1] for batch in slot.read()):
                    # What fails even without rows is raised: no row is to blame then.
                    self._write(database, batch.slice(0, 0))
                return rejected_rows(waiting, partial(self._attempt, database))
            finally:
                database.rollback()

    def _attempt(self, database: sqlite3.Connection, part: SlotValues) -> Refusal | None:
        database.execute("SAVEPOINT part")
        try:
            for batch in part.read():
                self._write(database, batch)
        except (sqlite3.Error, DoesNotFit) as error:
            meaning = classify(error)
            if meaning is ErrorClass.RETRY:
                raise
            database.execute("ROLLBACK TO part")
            return Refusal(str(error), is_certain=meaning is ErrorClass.ROW)
        finally:
            database.execute("RELEASE part")
        return None

    def _write(self, database: sqlite3.Connection, batch: pa.RecordBatch) -> None:
        columns = batch.schema.names
        if self.mode == "append":
            self._run(database, insert(self.table, columns), batch)
            return
        without_key = self._without_key(batch)
        if without_key is not None:
            self._write_null_keys(database, batch.filter(without_key))
            batch = batch.filter(pc.invert(without_key))
        self._run(database, upsert(self.table, columns, self.keys, with_keys=self._keys_may_differ(batch)), batch)

    def _run(self, database: sqlite3.Connection, statement: str, batch: pa.RecordBatch) -> None:
        """For every row, and see that each has been written: a trigger can leave one out without an error."""
        written = database.executemany(statement, parameters(batch)).rowcount
        if written < batch.num_rows and not statement.endswith("DO NOTHING"):
            raise DoesNotFit(f"a trigger leaves out {batch.num_rows - max(written, 0)} of {batch.num_rows} rows")

    def _keys_may_differ(self, batch: pa.RecordBatch) -> bool:
        """Whether two keys can be equal to the table and be spelt differently, by a collation or as 0.0 and -0.0."""
        keys = {folded(key) for key in self.keys}
        has_floats = any(pa.types.is_floating(field.type) for field in batch.schema if folded(field.name) in keys)
        return has_floats or bool(self._loose_keys)

    def _without_key(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Which rows have a null among their keys; None when no row has."""
        keys = {folded(key) for key in self.keys}
        columns = [batch.column(i) for i, name in enumerate(batch.schema.names) if folded(name) in keys]
        nulls = [column.is_null() for column in columns if column.null_count]
        mask = nulls[0] if nulls else None
        for more in nulls[1:]:
            mask = pc.or_(mask, more)
        return mask

    def _write_null_keys(self, database: sqlite3.Connection, batch: pa.RecordBatch) -> None:
        """Row by row, since to a unique index two nulls are never the same. Such rows are few."""
        columns = batch.schema.names
        found = describe(database, self.table)
        if found is not None and found.rowid_alias in {folded(key) for key in self.keys}:
            raise TargetRefused(
                f"a row has no key, and the key of table {self.table!r} is its row id, which cannot be null",
                hint="filter such rows out in the query",
                sink=self.name,
            )
        names = [folded(name) for name in columns]
        at = [names.index(folded(key)) for key in self.keys]
        change, add = update(self.table, columns, self.keys), insert(self.table, columns)
        for row in parameters(batch):
            if database.execute(change, (*row, *(row[i] for i in at))).rowcount == 0:
                database.execute(add, row)

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch."""
        if not self.file.path.exists():
            return []
        with closing(self.file.connect()) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (RECEIPTS,)).fetchone():
                return []
            rows = database.execute(
                f"SELECT generation, epoch, slot, fingerprint FROM {RECEIPTS} WHERE job = ? AND sink = ?",
                (job.name, self.name),
            ).fetchall()
        return [
            Receipt(job.name, Generation(generation), self.name, epoch, slot, Fingerprint(fingerprint))
            for generation, epoch, slot, fingerprint in rows
        ]

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark and drop the receipts below it, together.

        Those of the newest epoch stay in any case: they tell a later checkpoint that this generation existed.
        """
        scope = (job.name, job.generation, self.name)
        where = "job = ? AND generation = ? AND sink = ?"
        with self.file.transaction() as database:
            for statement in _OWN_TABLES:
                database.execute(statement)
            database.execute(
                f"INSERT INTO {WATERMARKS} VALUES (?, ?, ?, ?) ON CONFLICT (job, generation, sink) "
                "DO UPDATE SET settled = max(settled, excluded.settled)",
                (*scope, below - 1),
            )
            database.execute(
                f"DELETE FROM {RECEIPTS} WHERE {where} AND epoch < ? "
                f"AND epoch < (SELECT max(epoch) FROM {RECEIPTS} WHERE {where})",
                (*scope, below, *scope),
            )
