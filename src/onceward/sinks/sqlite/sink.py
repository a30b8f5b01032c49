"""A table in SQLite, the database that needs no server.

Write-ahead: an epoch's rows and the receipts of its slots go in together, in one transaction of the database, on the
driver. Append or upsert by key. Booleans are stored as 0 and 1, decimals, dates and timestamps (ISO 8601, UTC) as text,
nested values as JSON text. SQLite has no NaN: a row with one is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Literal

import pyarrow as pa

from onceward.contracts import Receipt, RejectedRow, SlotValues, TransactionalWriteAheadSink
from onceward.errors import ConfigurationError
from onceward.identity import JobIdentity, default_sink_name
from onceward.sinks.output_mode import by_mode
from onceward.sinks.sqlite.encode import DoesNotFit
from onceward.sinks.sqlite.errors import translated
from onceward.sinks.sqlite.facts import TargetFacts
from onceward.sinks.sqlite.options import Options
from onceward.sinks.sqlite.preflight import check
from onceward.sinks.sqlite.receipts import Receipts
from onceward.sinks.sqlite.rejected import find_rejected
from onceward.sinks.sqlite.rows import RowWriter


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
        self.repeated = by_mode(mode)
        try:
            self._options = Options.parse(
                path, table=table, mode=mode, keys=keys, create_table=create_table, lock_timeout_s=lock_timeout_s
            )
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None
        self._receipts = Receipts(self.name)
        self._facts = TargetFacts(table)
        self._rows = RowWriter(self._options, self._facts, self.name)

    # --- before the start -----------------------------------------------------------------------

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare the table with the stream; make it, and the tables for receipts, where they are missing."""
        check(self._options, self._receipts, self._facts, schema, output_mode=output_mode)

    # --- publish --------------------------------------------------------------------------------

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, and the receipts, in one transaction."""
        try:
            with self._options.file.transaction() as database:
                self._receipts.create(database)
                waiting = self._receipts.without_receipt(database, slots, job, checkpoint_id)
                if waiting:
                    self._facts.confirm(database, epoch=checkpoint_id)
                for slot in waiting:
                    self._write_slot(database, slot)
        except (sqlite3.Error, DoesNotFit) as error:
            raise translated(error, self._options.table, epoch=checkpoint_id, sink=self.name) from None
        return True

    def _write_slot(self, database: sqlite3.Connection, slot: SlotValues) -> None:
        try:
            for batch in slot.read():
                self._rows.write(database, batch)
        except (sqlite3.Error, DoesNotFit) as error:
            error.add_note(f"of slot {slot.slot}")
            raise
        if slot.receipt is not None:
            self._receipts.write(database, slot.receipt)

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`."""
        return self._facts.facts or {}

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`."""
        with closing(self._options.file.connect()) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                waiting = self._receipts.without_receipt(database, slots, job, checkpoint_id)
                self._facts.confirm(database, epoch=checkpoint_id)
                return find_rejected(database, waiting, partial(self._rows.write, database))
            finally:
                database.rollback()

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch."""
        if not self._options.file.path.exists():
            return []
        with closing(self._options.file.connect()) as database:
            return self._receipts.all_receipts(database, job)

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark and drop the receipts below it, together."""
        with self._options.file.transaction() as database:
            self._receipts.create(database)
            self._receipts.forget(database, job, below)
