"""Receipts and watermarks: two small tables in the target, written in the same transactions as the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from onceward.contracts import Receipt, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, SinkName
from onceward.sinks.receipts import slots_to_send

RECEIPTS = "onceward_receipts"
WATERMARKS = "onceward_watermarks"
_TABLES = (
    f"""CREATE TABLE IF NOT EXISTS {RECEIPTS} (
        job TEXT NOT NULL, generation TEXT NOT NULL, sink TEXT NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL,
        fingerprint TEXT NOT NULL, committed_at TEXT NOT NULL,
        PRIMARY KEY (job, generation, sink, epoch, slot)) WITHOUT ROWID""",
    f"""CREATE TABLE IF NOT EXISTS {WATERMARKS} (
        job TEXT NOT NULL, generation TEXT NOT NULL, sink TEXT NOT NULL, settled INTEGER NOT NULL,
        PRIMARY KEY (job, generation, sink)) WITHOUT ROWID""",
)


@dataclass(frozen=True, slots=True)
class Receipts:
    """One sink's, in the file that its rows go to."""

    sink: SinkName

    def create(self, database: sqlite3.Connection) -> None:
        """Make the tables where they are missing."""
        for statement in _TABLES:
            database.execute(statement)

    def write(self, database: sqlite3.Connection, receipt: Receipt) -> None:
        """Add the receipt of a slot, inside the transaction that writes its rows."""
        scope = (receipt.job, receipt.generation, receipt.sink, receipt.epoch, receipt.slot)
        now = datetime.now(UTC).isoformat()
        database.execute(f"INSERT INTO {RECEIPTS} VALUES (?, ?, ?, ?, ?, ?, ?)", (*scope, receipt.fingerprint, now))

    def without_receipt(
        self, database: sqlite3.Connection, slots: Sequence[SlotValues], job: JobIdentity, epoch: int
    ) -> list[SlotValues]:
        """The slots of an epoch that still have to be sent."""
        found = self.slots_in(database, job, epoch)
        return slots_to_send(slots, found, settled=self.watermark(database, job))

    def slots_in(self, database: sqlite3.Connection, job: JobIdentity, epoch: int) -> list[tuple[int, Fingerprint]]:
        """The receipts of an epoch: slot and fingerprint."""
        return database.execute(
            f"SELECT slot, fingerprint FROM {RECEIPTS} WHERE job = ? AND generation = ? AND sink = ? AND epoch = ?",
            (job.name, job.generation, self.sink, epoch),
        ).fetchall()

    def watermark(self, database: sqlite3.Connection, job: JobIdentity) -> int:
        """The epoch up to which receipts may be gone; -1 when none is."""
        settled = database.execute(
            f"SELECT settled FROM {WATERMARKS} WHERE job = ? AND generation = ? AND sink = ?",
            (job.name, job.generation, self.sink),
        ).fetchone()
        return -1 if settled is None else int(settled[0])

    def all_receipts(self, database: sqlite3.Connection, job: JobIdentity) -> list[Receipt]:
        """Of this job's name and this sink, in every generation. None where the table is not there yet."""
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (RECEIPTS,)).fetchone():
            return []
        rows = database.execute(
            f"SELECT generation, epoch, slot, fingerprint FROM {RECEIPTS} WHERE job = ? AND sink = ?",
            (job.name, self.sink),
        ).fetchall()
        return [
            Receipt(job.name, Generation(generation), self.sink, epoch, slot, Fingerprint(fingerprint))
            for generation, epoch, slot, fingerprint in rows
        ]

    def forget(self, database: sqlite3.Connection, job: JobIdentity, below: int) -> None:
        """Raise the watermark and drop the receipts below it, in the caller's transaction.

        Those of the newest epoch stay in any case: they tell a later checkpoint that this generation existed.
        """
        scope = (job.name, job.generation, self.sink)
        where = "job = ? AND generation = ? AND sink = ?"
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
