"""Append, upsert and replace from onceward's log: an epoch's rows and the receipts of its slots in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar

import pyarrow as pa

from onceward.connections.postgres import PostgresError, Session, begun, borrowed, reading
from onceward.contracts import Finding, Grade, Needs, Receipt, RejectedRow, SlotValues, TransactionalWriteAheadSink
from onceward.errors import RowsRejected
from onceward.identity import JobIdentity
from onceward.sinks.postgres.all_new import AllNew
from onceward.sinks.postgres.blocked import explained, is_cut_off
from onceward.sinks.postgres.cautions import cautions
from onceward.sinks.postgres.preflight import check
from onceward.sinks.postgres.receipts import Receipts, lock, refuse_another
from onceward.sinks.postgres.rejected import find_rejected, is_rejection
from onceward.sinks.postgres.rows import all_converted, described
from onceward.sinks.postgres.shortcut import Shortcut
from onceward.sinks.postgres.target import Target
from onceward.sinks.postgres.upsert import Upsert

log = logging.getLogger("onceward")


class PostgresWriteAheadSink(TransactionalWriteAheadSink):
    """What `PostgresSink` becomes for upserts and replacements, and for appends that are not prepared: `why` not."""

    means = "write-ahead log, receipt in the same PostgreSQL transaction"
    epoch_at_once: ClassVar[bool] = True

    def __init__(self, target: Target, name: str, why: str, *, is_asked_for: bool) -> None:
        super().__init__(name=name)
        self.target = target
        self._why, self._is_asked_for = why, is_asked_for
        self.takes_empty_epochs = target.mode == "replace"
        self._receipts = Receipts(target.receipts_schema)
        self._all_new, self._each_once = AllNew(target), Shortcut()

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """See `Sink.check`."""
        check(self.target, self._receipts, schema, output_mode=output_mode, sink=self.name)
        if not self._is_asked_for:
            says = "sink %r: appends go through the write-ahead log: %s (with two_phase=False this is not told)"
            log.warning(says, self.name, self._why)

    def cautions(self, needs: Needs) -> Iterable[Finding]:
        """See `Sink.cautions`."""
        yield Finding("way", Grade.FINE, f"through the write-ahead log: {self._why}")
        yield from cautions(self.target.address, None)

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        """The rows of every slot that has no receipt yet, and the receipts, in one transaction.

        The lock is held to its end, so what is read of receipts and watermark stays true until then: a second driver
        that publishes the same epoch waits, and then finds every receipt.
        """
        try:
            self._send(slots, job, checkpoint_id)
        except PostgresError as error:
            if is_cut_off(error):
                raise explained(error, self.target, self._receipts.receipts) from None
            if is_rejection(error):
                # Only COMMIT raises it here, for constraints that wait for it: the server has rolled all of it back.
                raise self._rejected(error, checkpoint_id) from None
            raise
        return True

    def _send(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> None:
        with borrowed(self.target.address) as session:
            self._receipts.create(session)
            with session.transaction():
                lock(session, job, self.name)
                waiting = self._without_receipt(session, slots, job, checkpoint_id)
                if waiting:
                    self._write_or_reject(session, waiting, checkpoint_id)
                    self._receipts.write_slots(session, [slot.receipt for slot in waiting if slot.receipt is not None])

    def _without_receipt(
        self, session: Session, slots: Sequence[SlotValues], job: JobIdentity, epoch: int
    ) -> list[SlotValues]:
        if all(slot.receipt is None for slot in slots):
            return list(slots)
        found = self._receipts.slots_in(session, job, self.name, epoch)
        settled = self._receipts.watermark(session, job, self.name)
        waiting = []
        for slot in slots:
            if slot.receipt is None:
                waiting.append(slot)
                continue
            refuse_another(found.get(slot.slot), slot.receipt)
            if slot.slot not in found and epoch > settled:
                waiting.append(slot)
        return waiting

    def _write_or_reject(self, session: Session, slots: list[SlotValues], epoch: int) -> None:
        try:
            self._write(session, slots)
        except (PostgresError, ValueError) as error:
            if not is_rejection(error):
                raise
            raise self._rejected(error, epoch) from None

    def _rejected(self, error: Exception, epoch: int) -> RowsRejected:
        return RowsRejected(
            f"{self.target.table} does not take a row: {error}",
            epoch=epoch,
            sink=self.name,
            hint="mend the table, or see the rows with `onceward poison show FILE` and take them out with "
            "`onceward poison divert FILE --to FOLDER`; the epoch stays staged",
        )

    def find_rejected(self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int) -> Sequence[RejectedRow]:
        """See `TransactionalWriteAheadSink.find_rejected`."""
        session = begun(self.target.address)
        try:
            waiting = self._without_receipt(session, slots, job, checkpoint_id)
            return find_rejected(session, waiting, lambda part: self._write(session, [part]))
        finally:
            # Which rolls back.
            session.close()

    def _write(self, session: Session, slots: list[SlotValues]) -> None:
        def read() -> Iterator[pa.RecordBatch]:
            return (batch for slot in slots for batch in slot.read())

        if self.target.mode == "upsert":
            if not self._all_new.add(session, read, sum(slot.rows for slot in slots)):
                Upsert(session, self.target, self._each_once).write(read())
            return
        table = described(session, self.target)
        if self.target.mode == "replace":
            # Not TRUNCATE, which empties the table also for readers who began before us.
            session.run(f"DELETE FROM {table}")
        session.copy_all(table.name, table.schema, all_converted(table, self.target, read()))

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """See `Sink.receipts`."""
        with reading(self.target.address) as session:
            return self._receipts.all_of(session, job, self.name)

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        with reading(self.target.address) as session:
            return self._receipts.place(session)

    def forget(self, job: JobIdentity, below: int) -> None:
        """See `Sink.forget`."""
        with borrowed(self.target.address) as session:
            self._receipts.create(session)
            self._receipts.forget(session, job, self.name, below)
