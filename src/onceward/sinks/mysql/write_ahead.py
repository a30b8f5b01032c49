"""Upserts and replacements, and appends where the server knows no XA: an epoch goes in by one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from onceward.connections.mysql import MySQLError, Session, quoted
from onceward.contracts import (
    AnySink,
    Finding,
    Receipt,
    RejectedRow,
    SlotValues,
    TransactionalWriteAheadSink,
    TryAgain,
    Workload,
)
from onceward.identity import JobIdentity
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.mysql.blocked import explained
from onceward.sinks.mysql.diagnose import diagnose
from onceward.sinks.mysql.errors import DUPLICATE, RowRefused, changed, classify, translated
from onceward.sinks.mysql.facts import TargetFacts
from onceward.sinks.mysql.loader import Loader, load_statement
from onceward.sinks.mysql.merge import Merge
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.preflight import Readiness
from onceward.sinks.mysql.receipts import Receipts
from onceward.sinks.mysql.rejected import find_rejected
from onceward.sinks.mysql.session import connect
from onceward.sinks.mysql.table import Table
from onceward.sinks.obstacles import log_finding, warn_of_log
from onceward.sinks.output_mode import by_mode
from onceward.sinks.receipts import slots_to_send

_PRIVILEGES = {"append": "INSERT", "replace": "INSERT, DELETE", "upsert": "SELECT, INSERT, UPDATE, DELETE"}


class MySQLWriteAheadSink(TransactionalWriteAheadSink):
    """Made by `MySQLSink`, `why` not by XA. An epoch becomes visible at once."""

    mechanism = "write-ahead log, receipt in the same MySQL transaction"

    def __init__(self, options: Options, facts: TargetFacts, *, name: str, why: str, is_asked_for: bool) -> None:
        super().__init__(name=name)
        self._options, self._facts = options, facts
        self._why, self._is_asked_for = why, is_asked_for
        self._receipts = Receipts(options.database, self.name)
        self.takes_empty_epochs = options.mode == "replace"
        self.repeated = by_mode(options.mode)
        self.alternate: AnySink | None = None

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare table and stream, make what is missing, and go through an empty epoch that is rolled back."""
        ready, options = Readiness(self._options, self._receipts), self._options
        with ready.session() as session:
            ready.check(session, schema, self._facts, output_mode=output_mode)
            session.execute("START TRANSACTION")
            with ready.needing(session, "SELECT", options.target):
                table = self._facts.confirm(session, schema, epoch=0)
            merge = Merge(options, tuple(schema.names), table) if options.mode == "upsert" else None
            if merge is not None:
                with ready.needing(session, "CREATE TEMPORARY TABLES", f"{quoted(options.database)}.*"):
                    session.execute(merge.create())
            with ready.needing(session, _PRIVILEGES[options.mode], options.target):
                session.load(load_statement(options.incoming if merge else options.target, schema), ())
                for statement in merge.apply() if merge is not None else ():
                    session.execute(statement)
                if options.mode == "replace":
                    session.execute(f"DELETE FROM {options.target} WHERE FALSE")
            ready.try_receipts(session)
            session.execute("ROLLBACK")
        if not self._is_asked_for:
            warn_of_log(self.name, self._why)

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """See `Sink.diagnose`."""
        with Readiness(self._options, self._receipts).session() as session:
            way = log_finding(self._why)
            return [way, *diagnose(session, is_two_phase=False)]

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
            if classify(error) in (ErrorClass.RETRY, ErrorClass.TARGET):
                told = explained(error, self._options)
                raise translated(told, self._options.table, epoch=checkpoint_id, sink=self.name) from error
            error.add_note(f"in epoch {checkpoint_id}, on its way into table {self._options.table!r}")
            raise
        except _MetAnother as met:
            if self.find_rejected(slots, job, checkpoint_id):
                raise translated(met.error, self._options.table, epoch=checkpoint_id, sink=self.name) from None
            raise TryAgain(f"another session added the same key in the same moment: {met}") from None
        return True

    def _send(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> None:
        with connect(self._options) as session:
            session.execute("START TRANSACTION")
            waiting = self._without_receipt(session, slots, job, checkpoint_id)
            if waiting:
                table = self._facts.confirm(session, self._schema(waiting), epoch=checkpoint_id)
                self._clear(session, checkpoint_id)
                self._write_or_reject(session, waiting, table, checkpoint_id)
            for slot in waiting:
                if slot.receipt is not None:
                    self._receipts.write(session, slot.receipt)
            session.execute("COMMIT")

    def _schema(self, slots: Sequence[SlotValues]) -> pa.Schema:
        """Of the rows; only a sink that was never checked has to look."""
        if not self._facts.is_taken:
            for slot in slots:
                for batch in slot.read():
                    return batch.schema
        return pa.schema([])

    def _without_receipt(
        self, session: Session, slots: Sequence[SlotValues], job: JobIdentity, epoch: int
    ) -> list[SlotValues]:
        if all(slot.receipt is None for slot in slots):
            return list(slots)
        settled = self._receipts.locked_watermark(session, job)
        found = self._receipts.slots_in(session, job, epoch)
        return slots_to_send(slots, found, settled=settled)

    def _clear(self, session: Session, epoch: int) -> None:
        """For a replacement. Not TRUNCATE, which would commit what is not whole yet."""
        if self._options.mode == "replace":
            try:
                session.execute(f"DELETE FROM {self._options.target}")
            except MySQLError as error:
                if classify(error) is not ErrorClass.ROW:
                    raise
                # A row of the table, not of the epoch: a foreign key refers to it, or a trigger keeps it.
                raise changed(error, self._options.table, epoch=epoch, sink=self.name) from error

    def _write_or_reject(self, session: Session, slots: Sequence[SlotValues], table: Table, epoch: int) -> None:
        try:
            self._write(session, slots, table)
        except (MySQLError, RowRefused) as error:
            if classify(error) is not ErrorClass.ROW:
                raise
            if self._options.mode == "upsert" and isinstance(error, MySQLError) and error.code == DUPLICATE:
                raise _MetAnother(error) from error
            raise translated(error, self._options.table, epoch=epoch, sink=self.name) from None

    def _write(self, session: Session, slots: Sequence[SlotValues], table: Table) -> None:
        """Into the table, or into the temporary one, which is made when the first rows tell its columns."""
        options, merge = self._options, None
        upserts = options.mode == "upsert"
        for slot in slots:
            loader = Loader(options.incoming if upserts else options.target, options, slot=slot.slot)
            for batch in slot.read():
                if upserts and merge is None:
                    merge = Merge(options, tuple(batch.schema.names), table)
                    session.execute(merge.create())
                if loader.add(batch):
                    loader.flush(session, table)
            loader.flush(session, table)
        for statement in merge.apply() if merge is not None else ():
            session.execute(statement)

    # --- rows that the table does not take ------------------------------------------------------

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`."""
        with connect(self._options) as session:
            session.execute("START TRANSACTION")
            waiting = self._without_receipt(session, slots, job, checkpoint_id)
            table = self._facts.confirm(session, self._schema(waiting), epoch=checkpoint_id)
            self._clear(session, checkpoint_id)
            return find_rejected(session, self._options, waiting, lambda part: self._write(session, [part], table))

    # --- receipts -------------------------------------------------------------------------------

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch."""
        with connect(self._options) as session:
            return self._receipts.all_receipts(session, job)

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        return f"database {self._receipts.database}"

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`. Looked at again in every transaction, before it writes its first row."""
        return self._facts.facts or {}

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark and drop the receipts below it, together."""
        with connect(self._options) as session, session.transaction():
            self._receipts.forget(session, job, below)


class _MetAnother(Exception):
    """An upsert met a row with a key that is not its own, or one that came in the same moment."""

    def __init__(self, error: MySQLError) -> None:
        super().__init__(str(error))
        self.error = error
