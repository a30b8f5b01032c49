"""Append, upsert and replace from onceward's log: an epoch's rows and the receipts of its slots in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from onceward.connections.postgres import PostgresError, Session, begun, pooled, reading
from onceward.contracts import (
    Finding,
    Receipt,
    RejectedRow,
    SlotValues,
    TransactionalWriteAheadSink,
    Workload,
)
from onceward.identity import JobIdentity
from onceward.sinks.obstacles import log_finding, warn_of_log
from onceward.sinks.output_mode import by_mode
from onceward.sinks.postgres.blocked import explained, is_cut_off
from onceward.sinks.postgres.diagnose import diagnose
from onceward.sinks.postgres.encode import DoesNotFit
from onceward.sinks.postgres.errors import translated
from onceward.sinks.postgres.facts import TargetFacts
from onceward.sinks.postgres.fast_path import FastPath
from onceward.sinks.postgres.hazards import refuse_kept, triggers_between
from onceward.sinks.postgres.insert_only import InsertOnlyPath
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.preflight import check
from onceward.sinks.postgres.receipts import Receipts, lock
from onceward.sinks.postgres.rejected import find_rejected
from onceward.sinks.postgres.rows import all_converted
from onceward.sinks.postgres.table import Table
from onceward.sinks.postgres.upsert import Upsert
from onceward.sinks.receipts import slots_to_send


class PostgresWriteAheadSink(TransactionalWriteAheadSink):
    """What `PostgresSink` becomes for upserts and replacements, and for appends that are not prepared: `why` not."""

    mechanism = "write-ahead log, receipt in the same PostgreSQL transaction"

    def __init__(self, options: Options, name: str, why: str, *, is_asked_for: bool) -> None:
        super().__init__(name=name)
        self._options = options
        self._why, self._is_asked_for = why, is_asked_for
        self.takes_empty_epochs = options.mode == "replace"
        self.repeated = by_mode(options.mode)
        self._receipts = Receipts(options.receipts_schema)
        self._facts = TargetFacts(options, self._receipts)
        self._insert_only, self._each_once = InsertOnlyPath(options), FastPath()

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """See `Sink.check`."""
        check(self._options, self._receipts, self._facts, schema, output_mode=output_mode, sink=self.name)
        if not self._is_asked_for:
            warn_of_log(self.name, self._why)

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """See `Sink.diagnose`."""
        yield log_finding(self._why)
        yield from diagnose(self._options.address, None)

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, and the receipts, in one transaction.

        The lock is held to its end, so what is read of receipts and watermark stays true until then: a second driver
        that publishes the same epoch waits, and then finds every receipt.
        """
        try:
            self._send(slots, job, checkpoint_id)
        except (PostgresError, DoesNotFit) as error:
            # Also of COMMIT, for constraints that wait for it: the server has rolled all of it back.
            told = explained(error, self._options, self._receipts.receipts_table) if is_cut_off(error) else error
            raise translated(told, str(self._options.table), epoch=checkpoint_id, sink=self.name) from None
        return True

    def _send(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> None:
        with pooled(self._options.address) as session:
            self._receipts.create(session)
            with session.transaction():
                lock(session, job, self.name)
                waiting = self._without_receipt(session, slots, job, checkpoint_id)
                if waiting:
                    table = self._facts.confirm(session, epoch=checkpoint_id)
                    self._clear(session, table)
                    self._add(session, table, waiting)
                    self._receipts.write_slots(session, [slot.receipt for slot in waiting if slot.receipt is not None])

    def _without_receipt(
        self, session: Session, slots: Sequence[SlotValues], job: JobIdentity, epoch: int
    ) -> list[SlotValues]:
        if all(slot.receipt is None for slot in slots):
            return list(slots)
        found = self._receipts.slots_in(session, job, self.name, epoch)
        settled = self._receipts.watermark(session, job, self.name)
        return slots_to_send(slots, found, settled=settled)

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`."""
        session = begun(self._options.address)
        try:
            waiting = self._without_receipt(session, slots, job, checkpoint_id)
            table = self._facts.confirm(session, epoch=checkpoint_id)
            self._clear(session, table)
            return find_rejected(session, waiting, lambda part: self._add(session, table, [part]))
        finally:
            # Which rolls back.
            session.close()

    def _clear(self, session: Session, table: Table) -> None:
        """Before a replacement. Not TRUNCATE, which empties the table also for readers who began before us."""
        if self._options.mode == "replace":
            session.run(f"DELETE FROM {table}")
            if triggers_between(table, self._options, "DELETE"):
                refuse_kept(session, str(table), table)

    def _add(self, session: Session, table: Table, slots: list[SlotValues]) -> None:
        def read() -> Iterator[pa.RecordBatch]:
            return (batch for slot in slots for batch in slot.read())

        if self._options.mode != "upsert":
            session.copy_all(table.name, table.schema, all_converted(table, self._options, read()))
        elif not self._insert_only.add(session, table, read, sum(slot.rows for slot in slots)):
            Upsert(session, self._options, table, self._each_once).write(read())

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """See `Sink.receipts`."""
        with reading(self._options.address) as session:
            return self._receipts.all_receipts(session, job, self.name)

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        with reading(self._options.address) as session:
            return self._receipts.place(session)

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`."""
        return self._facts.facts or {}

    def forget(self, job: JobIdentity, below: int) -> None:
        """See `Sink.forget`."""
        with pooled(self._options.address) as session:
            self._receipts.create(session)
            self._receipts.forget(session, job, self.name, below)
