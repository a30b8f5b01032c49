"""Upserts and replacements, and appends where the server knows no XA: an epoch goes in by one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

import pyarrow as pa

from onceward.connections.mysql import MySQLError, Session, quoted
from onceward.contracts import (
    AnySink,
    Finding,
    Grade,
    Needs,
    Receipt,
    RejectedRow,
    SlotValues,
    TransactionalWriteAheadSink,
)
from onceward.errors import CheckpointRolledBack, RowsRejected, TargetRefused
from onceward.identity import JobIdentity
from onceward.sinks.bisection import Refusal, rejected_rows
from onceward.sinks.mysql.blocked import explained, is_cut_off
from onceward.sinks.mysql.cautions import cautions
from onceward.sinks.mysql.ledger import Ledger
from onceward.sinks.mysql.loader import Loader
from onceward.sinks.mysql.merge import Merge
from onceward.sinks.mysql.readiness import Readiness
from onceward.sinks.mysql.settings import Settings
from onceward.sinks.mysql.text import load_statement

log = logging.getLogger("onceward")

_PRIVILEGES = {"append": "INSERT", "replace": "INSERT, DELETE", "upsert": "SELECT, INSERT, UPDATE, DELETE"}
# Values that do not fit, violated constraints, and what a trigger signals: the same row would fail again.
_REJECTIONS = frozenset({1048, 1062, 1264, 1265, 1292, 1366, 1406, 1451, 1452, 1586, 1644, 1690, 3140, 3819, 4025})


class MySQLWriteAheadSink(TransactionalWriteAheadSink):
    """Made by `MySQLSink`, `why` not by XA. An epoch becomes visible at once."""

    means = "write-ahead log, receipt in the same MySQL transaction"
    epoch_at_once = True

    def __init__(self, settings: Settings, *, name: str, why: str, is_asked_for: bool) -> None:
        super().__init__(name=name)
        self._settings = settings
        self._why, self._is_asked_for = why, is_asked_for
        self._ledger = Ledger(settings.database, self.name)
        self.takes_empty_epochs = settings.mode == "replace"
        self.other_way: AnySink | None = None

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare table and stream, make what is missing, and go through an empty epoch that is rolled back."""
        ready, settings = Readiness(self._settings, self._ledger), self._settings
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
                if settings.mode == "replace":
                    session.execute(f"DELETE FROM {settings.target} WHERE FALSE")
            ready.try_ledger(session)
            session.execute("ROLLBACK")
        if not self._is_asked_for:
            says = "sink %r: appends go through the write-ahead log: %s (with two_phase=False this is not told)"
            log.warning(says, self.name, self._why)

    def cautions(self, needs: Needs) -> Iterable[Finding]:
        """See `Sink.cautions`."""
        with Readiness(self._settings, self._ledger).session() as session:
            way = Finding("way", Grade.FINE, f"through the write-ahead log: {self._why}")
            return [way, *cautions(session, is_two_phase=False)]

    # --- publish --------------------------------------------------------------------------------

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, and the receipts, in one transaction."""
        if not slots:
            return True
        try:
            self._send(slots, job, checkpoint_id)
        except MySQLError as error:
            if not is_cut_off(error):
                raise
            raise explained(error, self._settings) from None
        return True

    def _send(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> None:
        with self._settings.connect() as session:
            session.execute("START TRANSACTION")
            missing = self._missing(session, slots, job)
            if missing:
                self._write_or_reject(session, missing, checkpoint_id)
            for slot in missing:
                if slot.receipt is not None:
                    self._ledger.write(session, slot.receipt)
            session.execute("COMMIT")

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

    def _write_or_reject(self, session: Session, slots: Sequence[SlotValues], epoch: int) -> None:
        try:
            if self._settings.mode == "replace":
                # Not TRUNCATE, which would commit what is not whole yet.
                session.execute(f"DELETE FROM {self._settings.target}")
            self._write(session, slots)
        except (MySQLError, TargetRefused) as error:
            why = _rejection(error)
            if why is None:
                error.add_note(f"in epoch {epoch}, on its way into table {self._settings.table!r}")
                raise
            raise RowsRejected(
                f"table {self._settings.table!r} does not take a row: {why}",
                epoch=epoch,
                sink=self.name,
                hint="mend the table, or see the rows with `onceward poison show FILE` and take them out with "
                "`onceward poison divert FILE --to FOLDER`; the epoch stays staged",
            ) from None

    def _write(self, session: Session, slots: Sequence[SlotValues]) -> None:
        """Into the table, or into the temporary one, which is made when the first rows tell its columns."""
        settings, merge = self._settings, None
        upserts = settings.mode == "upsert"
        for slot in slots:
            loader = Loader(settings.incoming if upserts else settings.target, settings, slot=slot.slot)
            for batch in slot.read():
                if upserts and merge is None:
                    merge = Merge(settings, tuple(batch.schema.names))
                    session.execute(merge.create())
                if loader.add(batch):
                    loader.flush(session)
            loader.flush(session)
        for statement in merge.apply() if merge is not None else ():
            session.execute(statement)

    # --- rows that the table does not take ------------------------------------------------------

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`."""
        with self._settings.connect() as session:
            session.execute("START TRANSACTION")
            waiting = self._missing(session, slots, job)
            if self._settings.mode == "replace":
                session.execute(f"DELETE FROM {self._settings.target}")
            return rejected_rows(waiting, partial(self._attempt, session))

    def _attempt(self, session: Session, part: SlotValues) -> Refusal | None:
        session.execute("SAVEPOINT part")
        try:
            self._write(session, [part])
        except (MySQLError, TargetRefused) as error:
            why = _rejection(error)
            if why is None:
                raise
            session.execute("ROLLBACK TO SAVEPOINT part")
            return Refusal(why)
        finally:
            if self._settings.mode == "upsert":
                session.execute(f"DROP TEMPORARY TABLE IF EXISTS {self._settings.incoming}")
        return None

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch."""
        with self._settings.connect() as session:
            return self._ledger.all_receipts(session, job)

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        return f"database {self._ledger.database}"

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark and drop the receipts below it, together."""
        with self._settings.connect() as session, session.transaction():
            self._ledger.forget(session, job, below)


def _rejection(error: MySQLError | TargetRefused) -> str | None:
    """What the table has against a row; None when no row is to blame."""
    if isinstance(error, TargetRefused):
        return error.message
    return str(error) if error.code in _REJECTIONS else None
