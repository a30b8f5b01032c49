"""Receipts and watermarks: two small tables in the target, written in the same transactions as the rows.

A two-phase receipt is keyed by its transaction's full name, so that two attempts of one slot never wait for each other;
a write-ahead receipt has no transaction and is therefore unique for its slot. docs/targets/postgres.md has the format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from onceward.connections.postgres import PostgresError, Session, quoted
from onceward.contracts import Receipt, SlotContext
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, SinkName, TransactionName

RECEIPTS = "onceward_receipts"
WATERMARKS = "onceward_watermarks"

# Two sessions that create a table at the same moment disturb each other even with IF NOT EXISTS.
_CREATED_MEANWHILE = ("23505", "42P07", "42710")
_LOCK_TIMED_OUT = "55P03"
_NO_TABLE = "42P01"


@dataclass(frozen=True, slots=True)
class Receipts:
    """The two tables, in the schema that the user chose or the first of the search path."""

    schema: str | None

    def _table(self, name: str) -> str:
        return name if self.schema is None else f"{quoted(self.schema)}.{name}"

    @property
    def receipts_table(self) -> str:
        """The receipts, as SQL."""
        return self._table(RECEIPTS)

    @property
    def watermarks_table(self) -> str:
        """The watermarks, as SQL."""
        return self._table(WATERMARKS)

    def statements(self) -> tuple[str, str]:
        """What makes the tables."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.receipts_table} (job text NOT NULL, generation text NOT NULL, "
            "sink text NOT NULL, epoch bigint NOT NULL, slot integer NOT NULL, transaction text NOT NULL, "
            "fingerprint text NOT NULL, written_at timestamptz NOT NULL DEFAULT now(), "
            "PRIMARY KEY (job, sink, generation, epoch, slot, transaction))",
            f"CREATE TABLE IF NOT EXISTS {self.watermarks_table} (job text NOT NULL, generation text NOT NULL, "
            "sink text NOT NULL, settled bigint NOT NULL, PRIMARY KEY (job, sink, generation))",
        )

    def exist(self, session: Session) -> bool:
        """Whether both tables are there."""
        found = session.run(
            "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL",
            self.receipts_table,
            self.watermarks_table,
        )
        return bool(found[0][0])

    def place(self, session: Session) -> str:
        """The schema in which they stand or, where they are not made yet, would be made."""
        found = session.run(
            "SELECT coalesce((SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)), "
            "quote_ident(current_schema()), '')",
            self.receipts_table,
        )
        return f"schema {found[0][0]}"

    def create(self, session: Session) -> None:
        """Make the tables where they are missing."""
        if self.exist(session):
            return
        for statement in self.statements():
            try:
                with session.transaction():
                    session.limit()
                    session.run(statement)
            except PostgresError as error:
                if error.sqlstate not in _CREATED_MEANWHILE:
                    raise

    def write_transaction(self, session: Session, context: SlotContext) -> None:
        """The receipt of a two-phase transaction, inside it."""
        session.run(
            f"INSERT INTO {self.receipts_table} (job, generation, sink, epoch, slot, transaction, fingerprint) "
            "VALUES ($1, $2, $3, $4, $5, $6, $7)",
            context.job.name,
            context.job.generation,
            context.sink,
            context.epoch,
            context.slot,
            str(context.transaction),
            context.fingerprint,
        )

    def write_slots(self, session: Session, receipts: Iterable[Receipt]) -> None:
        """The receipts of write-ahead slots, inside the transaction that writes their rows."""
        for receipt in receipts:
            session.run(
                f"INSERT INTO {self.receipts_table} (job, generation, sink, epoch, slot, transaction, fingerprint) "
                "VALUES ($1, $2, $3, $4, $5, '', $6)",
                receipt.job,
                receipt.generation,
                receipt.sink,
                receipt.epoch,
                receipt.slot,
                receipt.fingerprint,
            )

    def is_committed(self, session: Session, name: TransactionName, job: JobName, sink: SinkName) -> bool:
        """Whether this very transaction was committed: it has its receipt, or its epoch is settled for good."""
        found = session.run(
            f"SELECT 1 FROM {self.receipts_table} WHERE job = $1 AND sink = $2 AND generation = $3 AND epoch = $4 "
            "AND slot = $5 AND transaction = $6",
            job,
            sink,
            name.generation,
            name.epoch,
            name.slot,
            str(name),
        )
        return bool(found) or name.epoch <= self.watermark(session, JobIdentity(job, name.generation), sink)

    def slots_in(self, session: Session, job: JobIdentity, sink: SinkName, epoch: int) -> list[tuple[int, Fingerprint]]:
        """The receipts of a write-ahead epoch: slot and fingerprint."""
        rows = session.run(
            f"SELECT slot, fingerprint FROM {self.receipts_table} WHERE job = $1 AND generation = $2 AND sink = $3 "
            "AND epoch = $4 AND transaction = ''",
            job.name,
            job.generation,
            sink,
            epoch,
        )
        return [(slot, Fingerprint(fingerprint)) for slot, fingerprint in rows]

    def watermark(self, session: Session, job: JobIdentity, sink: SinkName) -> int:
        """The epoch up to which receipts may be gone; -1 when none is."""
        rows = session.run(
            f"SELECT settled FROM {self.watermarks_table} WHERE job = $1 AND generation = $2 AND sink = $3",
            job.name,
            job.generation,
            sink,
        )
        return int(rows[0][0]) if rows else -1

    def all_receipts(self, session: Session, job: JobIdentity, sink: SinkName) -> list[Receipt]:
        """Of this job's name and this sink, in every generation. None where the table is not there yet.

        Inside a transaction."""
        try:
            rows = session.run(
                "SELECT DISTINCT generation, epoch, slot, fingerprint "
                f"FROM {self.receipts_table} WHERE job = $1 AND sink = $2",
                job.name,
                sink,
            )
        except PostgresError as error:
            if error.sqlstate != _NO_TABLE:
                raise
            return []
        return [
            Receipt(job.name, Generation(generation), sink, epoch, slot, Fingerprint(fingerprint))
            for generation, epoch, slot, fingerprint in rows
        ]

    def forget(self, session: Session, job: JobIdentity, sink: SinkName, below: int) -> None:
        """Raise the watermark and drop the receipts below it, together.

        Those of the newest epoch stay in any case: they tell a later checkpoint that this generation existed.
        """
        scope = (job.name, job.generation, sink)
        where = "job = $1 AND generation = $2 AND sink = $3"
        with session.transaction():
            lock(session, job, sink)
            session.run(
                f"INSERT INTO {self.watermarks_table} AS w (job, generation, sink, settled) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (job, sink, generation) DO UPDATE SET settled = greatest(w.settled, excluded.settled)",
                *scope,
                below - 1,
            )
            session.run(
                f"DELETE FROM {self.receipts_table} WHERE {where} AND epoch < $4 "
                f"AND epoch < (SELECT max(epoch) FROM {self.receipts_table} WHERE {where})",
                *scope,
                below,
            )


def lock(session: Session, job: JobIdentity, sink: SinkName) -> None:
    """Until the transaction ends, no other session publishes for this job and sink, or forgets its receipts.

    A driver that was stopped in the middle holds it until the server ends its transaction: whoever waits is told so.
    And what follows is settled when the server confirms it, so a server that confirms before it has written must not.
    The same statement bounds every wait of the transaction.
    """
    name = "\0".join((job.name, job.generation, sink))
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
    try:
        session.limit(
            "pg_advisory_xact_lock($1)::text",
            "CASE WHEN current_setting('synchronous_commit') = 'off' "
            "THEN set_config('synchronous_commit', 'local', true) END",
            parameters=[number],
            gives_up_idle=True,
        )
    except PostgresError as error:
        if error.sqlstate != _LOCK_TIMED_OUT:
            raise
        raise PostgresError("another driver is publishing for this job and sink", error.sqlstate) from None
