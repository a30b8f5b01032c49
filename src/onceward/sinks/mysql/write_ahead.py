"""Upserts, and appends where the server knows no XA: rows and receipts of an epoch go in by one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import pyarrow as pa

from onceward.contracts import AnySink, Receipt, SlotValues, TransactionalWriteAheadSink
from onceward.errors import CheckpointRolledBack, TargetRefused
from onceward.identity import JobIdentity
from onceward.sinks.mysql.ledger import Ledger
from onceward.sinks.mysql.loader import Loader
from onceward.sinks.mysql.merge import Merge
from onceward.sinks.mysql.readiness import Readiness
from onceward.sinks.mysql.session import ServerError, Session, quoted
from onceward.sinks.mysql.settings import Settings
from onceward.sinks.mysql.text import load_statement


class MySQLWriteAheadSink(TransactionalWriteAheadSink):
    """Made by `MySQLSink`. An epoch becomes visible at once."""

    means = "write-ahead log, receipt in the same MySQL transaction"
    epoch_at_once = True

    def __init__(self, settings: Settings, *, name: str) -> None:
        super().__init__(name=name)
        self._settings = settings
        self._ledger = Ledger(settings.database, self.name)
        self._replaces = False
        self.other_way: AnySink | None = None

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare table and stream, make what is missing, and go through an empty epoch that is rolled back."""
        ready, settings = Readiness(self._settings, self._ledger), self._settings
        self._replaces = output_mode == "complete"
        with ready.session() as session:
            ready.prepare(session, schema, output_mode=output_mode)
            merge = Merge(settings, tuple(schema.names)) if settings.mode == "upsert" else None
            if merge is not None:
                with ready.needing(session, "CREATE TEMPORARY TABLES", f"{quoted(settings.database)}.*"):
                    session.execute(merge.create())
            session.execute("START TRANSACTION")
            with ready.needing(session, _PRIVILEGES[settings.mode], settings.target):
                session.load(load_statement(settings.incoming if merge else settings.target, schema), ())
                for statement in merge.apply() if merge is not None else ():
                    session.execute(statement)
            ready.try_ledger(session)
            session.execute("ROLLBACK")

    # --- publish --------------------------------------------------------------------------------

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, and the receipts, in one transaction."""
        if not slots:
            return True
        with self._settings.connect() as session:
            merge: Merge | None = None
            session.execute("START TRANSACTION")
            missing = self._missing(session, slots, job)
            for slot in missing:
                merge = self._load(session, slot, checkpoint_id, merge)
            if merge is not None:
                self._apply(session, merge, checkpoint_id, replaces=self._replaces and len(missing) == len(slots))
            for slot in missing:
                if slot.receipt is not None:
                    self._ledger.write(session, slot.receipt)
            session.execute("COMMIT")
        return True

    def _missing(self, session: Session, slots: Sequence[SlotValues], job: JobIdentity) -> list[SlotValues]:
        if all(slot.receipt is None for slot in slots):
            return list(slots)
        settled = self._ledger.locked_watermark(session, job)
        return [slot for slot in slots if slot.receipt is None or not self._is_in(session, slot.receipt, settled)]

    def _is_in(self, session: Session, receipt: Receipt, settled: int) -> bool:
        """Whether the target has this slot: by its receipt, or because its epoch is not above the watermark."""
        found = self._ledger.fingerprints(session, receipt)
        if any(fingerprint != receipt.fingerprint for fingerprint in found):
            raise CheckpointRolledBack(
                f"the table's receipt of slot {receipt.slot} is that of another epoch {receipt.epoch}: "
                "this checkpoint was rolled back",
                hint="start from the checkpoint that wrote it, or from a savepoint",
                epoch=receipt.epoch,
                sink=self.name,
            )
        return bool(found) or receipt.epoch <= settled

    def _load(self, session: Session, slot: SlotValues, epoch: int, merge: Merge | None) -> Merge | None:
        """Into the table, or into the temporary one, which is made when the first rows tell its columns."""
        upserts = self._settings.mode == "upsert"
        loader = Loader(self._settings.incoming if upserts else self._settings.target, self._settings, slot=slot.slot)
        try:
            for batch in slot.read():
                if upserts and merge is None:
                    merge = Merge(self._settings, tuple(batch.schema.names))
                    session.execute(merge.create())
                if loader.add(batch):
                    loader.flush(session)
            loader.flush(session)
        except ServerError as error:
            error.add_note(f"in slot {slot.slot} of epoch {epoch}, on its way into table {self._settings.table!r}")
            raise
        except TargetRefused as error:
            raise TargetRefused(error.message, hint=error.hint, epoch=epoch, sink=self.name) from None
        return merge

    def _apply(self, session: Session, merge: Merge, epoch: int, *, replaces: bool) -> None:
        try:
            if replaces:
                session.execute(f"DELETE FROM {self._settings.target}")
            for statement in merge.apply():
                session.execute(statement)
        except ServerError as error:
            error.add_note(f"in epoch {epoch}, on its way into table {self._settings.table!r}")
            raise

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch."""
        with self._settings.connect() as session:
            return self._ledger.all_receipts(session, job)

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark and drop the receipts below it, together."""
        with self._settings.connect() as session, session.transaction():
            self._ledger.forget(session, job, below)


_PRIVILEGES = {"append": "INSERT", "upsert": "SELECT, INSERT, UPDATE, DELETE"}
