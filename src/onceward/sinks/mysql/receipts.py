"""Receipts and watermarks: two small tables beside the target, written in the transactions that write the rows.

A receipt of a two-phase transaction has the transaction's full name as its key, so that two attempts of one slot never
wait for each other; one of the write-ahead way has a key made of job, generation, sink, epoch and slot, so that there
can be only one.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceward.connections.mysql import Session, literal, quoted
from onceward.contracts import Receipt
from onceward.identity import Fingerprint, Generation, JobIdentity, SinkName, TransactionName, sink_digest

RECEIPTS = "onceward_receipts"
WATERMARKS = "onceward_watermarks"
RECEIPTS_KEYS = {RECEIPTS: "receipt", WATERMARKS: "scope"}
"""Their primary keys."""

# Exact comparison on every server, whatever the database's own default is.
_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"


@dataclass(frozen=True, slots=True)
class Receipts:
    """The two tables of one database, for one sink. Every method runs in the transaction that the session is in."""

    database: str
    sink: SinkName

    @property
    def receipts_table(self) -> str:
        """As it stands in statements."""
        return f"{quoted(self.database)}.{quoted(RECEIPTS)}"

    @property
    def watermarks_table(self) -> str:
        """As it stands in statements."""
        return f"{quoted(self.database)}.{quoted(WATERMARKS)}"

    def definitions(self) -> dict[str, str]:
        """The statements that make the tables, by the tables' names."""
        return {
            RECEIPTS: f"CREATE TABLE IF NOT EXISTS {self.receipts_table} ("
            f"receipt VARCHAR(80) {_TEXT} PRIMARY KEY, job VARCHAR(200) {_TEXT}, generation VARCHAR(16) {_TEXT}, "
            f"sink VARCHAR(200) {_TEXT}, epoch BIGINT NOT NULL, slot INT NOT NULL, fingerprint VARCHAR(64) {_TEXT}, "
            "written_at DATETIME(6) NOT NULL, KEY by_slot (generation, epoch, slot)) ENGINE=InnoDB",
            WATERMARKS: f"CREATE TABLE IF NOT EXISTS {self.watermarks_table} ("
            f"scope VARCHAR(80) {_TEXT} PRIMARY KEY, job VARCHAR(200) {_TEXT}, generation VARCHAR(16) {_TEXT}, "
            f"sink VARCHAR(200) {_TEXT}, settled BIGINT NOT NULL) ENGINE=InnoDB",
        }

    def write(self, session: Session, receipt: Receipt, *, transaction: TransactionName | None = None) -> None:
        """Add a receipt. Under the write-ahead key there can be one only: a second one fails."""
        key = str(transaction) if transaction is not None else self._write_ahead_key(receipt)
        texts = (key, receipt.job, receipt.generation, receipt.sink)
        numbers = (receipt.epoch, receipt.slot)
        values = [literal(value) for value in (*texts, *numbers, receipt.fingerprint)]
        session.execute(f"INSERT INTO {self.receipts_table} VALUES ({', '.join(values)}, UTC_TIMESTAMP(6))")

    def is_committed(self, session: Session, transaction: TransactionName) -> bool:
        """Whether this transaction left its receipt. Waits for one that is just being committed or rolled back.

        The lock is the point: between the removal of a name from the server's list of prepared transactions and the
        moment at which its rows can be seen, a plain look would find neither.
        """
        found = session.execute(
            f"SELECT 1 FROM {self.receipts_table} WHERE receipt = {literal(str(transaction))} LOCK IN SHARE MODE"
        )
        return bool(found)

    def slots_in(self, session: Session, job: JobIdentity, epoch: int) -> list[tuple[int, Fingerprint]]:
        """The receipts of an epoch, by whichever variant it went in: slot and fingerprint."""
        found = session.execute(
            f"SELECT slot, fingerprint FROM {self.receipts_table} "
            f"WHERE generation = {literal(job.generation)} AND epoch = {epoch} "
            f"AND job = {literal(job.name)} AND sink = {literal(self.sink)}"
        )
        return [(slot, Fingerprint(fingerprint)) for slot, fingerprint in found]

    def all_receipts(self, session: Session, job: JobIdentity) -> list[Receipt]:
        """Of this job's name and this sink, in every generation. None where the table is not there yet."""
        if not exists(session, self.database, RECEIPTS):
            return []
        found = session.execute(
            f"SELECT generation, epoch, slot, fingerprint FROM {self.receipts_table} "
            f"WHERE job = {literal(job.name)} AND sink = {literal(self.sink)}"
        )
        return [
            Receipt(job.name, Generation(generation), self.sink, epoch, slot, Fingerprint(fingerprint))
            for generation, epoch, slot, fingerprint in found
        ]

    def watermark_of(self, session: Session, transaction: TransactionName) -> int:
        """The watermark of the transaction's job, generation and sink; -1 when none was set."""
        scope = f"{transaction.job}_{transaction.generation}_{transaction.sink}"
        found = session.execute(f"SELECT settled FROM {self.watermarks_table} WHERE scope = {literal(scope)}")
        return int(found[0][0]) if found else -1

    def locked_watermark(self, session: Session, job: JobIdentity) -> int:
        """The watermark, locked until the transaction ends: publishers of one sink go one after the other.

        Without the lock a publisher could be paused between its look for a receipt and its own insert, while another
        one publishes the epoch, settles it, and prunes the receipt.
        """
        scope = literal(f"{job.digest}_{job.generation}_{sink_digest(self.sink)}")
        locked = f"SELECT settled FROM {self.watermarks_table} WHERE scope = {scope} FOR UPDATE"
        found = session.execute(locked)
        if not found:
            # Only where there is none: on an existing row two of these would each get half of the lock.
            who = f"{literal(job.name)}, {literal(job.generation)}, {literal(self.sink)}"
            session.execute(f"INSERT IGNORE INTO {self.watermarks_table} VALUES ({scope}, {who}, -1)")
            found = session.execute(locked)
        return int(found[0][0])

    def forget(self, session: Session, job: JobIdentity, below: int) -> None:
        """Raise the watermark, and drop the receipts below it but those of the newest epoch, which tell a later
        checkpoint that this generation existed.

        They are looked for without locks and removed one key at a time: a scan, which the server may choose for a list
        of keys, would wait for the receipts of transactions that are prepared.
        """
        settled = self.locked_watermark(session, job)
        scope = literal(f"{job.digest}_{job.generation}_{sink_digest(self.sink)}")
        if below - 1 > settled:
            session.execute(f"UPDATE {self.watermarks_table} SET settled = {below - 1} WHERE scope = {scope}")
        mine = f"generation = {literal(job.generation)} AND job = {literal(job.name)} AND sink = {literal(self.sink)}"
        newest = session.execute(f"SELECT MAX(epoch) FROM {self.receipts_table} WHERE {mine}")[0][0]
        if newest is None:
            return
        old = session.execute(
            f"SELECT receipt FROM {self.receipts_table} WHERE {mine} AND epoch < {min(below, int(newest))}"
        )
        for (receipt,) in old:
            session.execute(f"DELETE FROM {self.receipts_table} WHERE receipt = {literal(receipt)}")

    def _write_ahead_key(self, receipt: Receipt) -> str:
        job = JobIdentity(receipt.job, receipt.generation)
        return f"wal_{job.digest}_{receipt.generation}_{sink_digest(receipt.sink)}_{receipt.epoch}_{receipt.slot}"


def exists(session: Session, database: str, table: str) -> bool:
    """Whether there is a table of this name that we may look at."""
    return bool(
        session.execute(
            "SELECT 1 FROM information_schema.TABLES "
            f"WHERE TABLE_SCHEMA = {literal(database)} AND TABLE_NAME = {literal(table)}"
        )
    )
