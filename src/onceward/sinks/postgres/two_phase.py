"""Append by two-phase commit: rows and receipt wait in a prepared transaction of the server itself.

What can happen to it, and what is found afterwards:

* the executor dies before PREPARE TRANSACTION: the server rolls back, nothing is left;
* it dies after it, or its answer is lost: the transaction is in `pg_prepared_xacts` under its name, for `pending`;
* the answer of COMMIT PREPARED is lost: the transaction is gone from there, and its receipt is in the table;
* it is neither prepared nor has a receipt: someone rolled it back, and the job stops rather than go on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from onceward.connections.postgres import PostgresError, Session, begun, literal, pooled, reading, release
from onceward.contracts import (
    AlreadyCommitted,
    Committed,
    Finding,
    Handle,
    Lost,
    Outcome,
    Receipt,
    RetryLater,
    SlotContext,
    TwoPhaseCommitSink,
    Workload,
)
from onceward.errors import TargetRefused, TargetUnavailable
from onceward.identity import JobIdentity, JobName, SinkName, TransactionName
from onceward.sinks.obstacles import refusal
from onceward.sinks.postgres.blocked import is_cut_off, staging_failed
from onceward.sinks.postgres.diagnose import diagnose
from onceward.sinks.postgres.facts import TargetFacts
from onceward.sinks.postgres.obstacles import Room
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.preflight import check
from onceward.sinks.postgres.receipts import Receipts
from onceward.sinks.postgres.rows import RowCopier

_NO_SUCH_TRANSACTION = "42704"
_IN_USE = "55000"
_NO_SLOT_LEFT = "53200"
_CANNOT_BE_PREPARED = "0A000"


class SlotTransaction:
    """One attempt's transaction while it is open."""

    def __init__(self, options: Options, facts: TargetFacts, context: SlotContext) -> None:
        self.context = context
        self.session = begun(options.address)
        # Without a reference to this object: one that is let go of must close its session at once, and so its locks.
        self.rows = RowCopier(self.session, options, partial(facts.confirm, self.session, epoch=context.epoch))


class PostgresTwoPhaseSink(TwoPhaseCommitSink[SlotTransaction]):
    """What `PostgresSink` becomes where the server has prepared transactions and rows are only added."""

    mechanism = "two-phase commit, receipt in the prepared transaction"

    def __init__(self, options: Options, name: str, room: Room) -> None:
        super().__init__(name=name)
        self._options = options
        self._room = room
        self._receipts = Receipts(options.receipts_schema)
        self._facts = TargetFacts(options, self._receipts)

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """See `Sink.check`. The first time that the columns are known which the stream leaves to the table."""
        if (why := self._room.why_not((*schema.names, *map(str.lower, schema.names)))) is not None:
            raise refusal(str(self._options.table), f"{why}, and the stream fills it", sink=self.name)
        check(self._options, self._receipts, self._facts, schema, output_mode=output_mode, sink=self.name)

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """See `Sink.diagnose`."""
        return diagnose(self._options.address, workload)

    # --- executor -------------------------------------------------------------------------------

    def begin_transaction(self, context: SlotContext) -> SlotTransaction:
        """A session of its own; the server rolls it back when this process dies."""
        return SlotTransaction(self._options, self._facts, context)

    def invoke(self, transaction: SlotTransaction, batch: pa.RecordBatch) -> None:
        """COPY, some batches at a time."""
        with self._naming_lock_holders(transaction.context):
            transaction.rows.add(batch)

    def pre_commit(self, transaction: SlotTransaction) -> Handle:
        """The rows that are left, the receipt, PREPARE TRANSACTION."""
        context, session = transaction.context, transaction.session
        with self._naming_lock_holders(context):
            transaction.rows.flush()
            self._receipts.write_transaction(session, context)
            try:
                session.run(f"PREPARE TRANSACTION {literal(str(context.transaction))}")
            except PostgresError as error:
                session.close()
                raise self._why_not_prepared(error, context) from None
        release(session)
        return {"job": context.job.name, "sink": self.name, "rows": transaction.rows.count}

    def discard(self, transaction: SlotTransaction) -> None:
        """The server rolls back what its session leaves."""
        transaction.session.close()

    @contextmanager
    def _naming_lock_holders(self, context: SlotContext) -> Iterator[None]:
        """A wait that was cut off is told with those who were in the way."""
        try:
            yield
        except PostgresError as error:
            if not is_cut_off(error):
                raise
            where = self._receipts.receipts_table
            raise staging_failed(error, self._options, where, epoch=context.epoch, sink=self.name) from None

    def _why_not_prepared(self, error: PostgresError, context: SlotContext) -> Exception:
        if error.sqlstate == _CANNOT_BE_PREPARED:
            return TargetRefused(
                f"{self._options.table} does something that cannot wait in a prepared transaction: {error}",
                epoch=context.epoch,
                sink=self.name,
                hint="say two_phase=False, and its rows go through the write-ahead log",
            )
        if error.sqlstate != _NO_SLOT_LEFT:
            return error
        return TargetUnavailable(
            f"PostgreSQL has no room for another prepared transaction: {error}",
            epoch=context.epoch,
            sink=self.name,
            hint="raise max_prepared_transactions (a restart of the server) above the job's partitions times "
            "max_unpublished_epochs + 1, or use fewer partitions; nothing is lost, start again afterwards",
        )

    # --- driver ---------------------------------------------------------------------------------

    def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
        """One look at `pg_prepared_xacts`."""
        names = [str(self._name_of(handle)) for handle in handles]
        listed = ", ".join(literal(name) for name in names)
        with pooled(self._options.address) as session:
            rows = session.run(
                "SELECT gid::text FROM pg_prepared_xacts "
                f"WHERE database = current_database() AND gid IN ({listed or 'NULL'})"
            )
        prepared = {gid for (gid,) in rows}
        return [None if name in prepared else f"{name} is not prepared in {self._options.address}" for name in names]

    def commit(self, handle: Handle) -> Outcome:
        """See `TwoPhaseCommitSink.commit`."""
        return self.commit_all([handle])[0]

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """All slots of an epoch over one connection."""
        if not handles:
            return []
        with pooled(self._options.address) as session:
            return [self._commit(session, handle) for handle in handles]

    def _commit(self, session: Session, handle: Handle) -> Outcome:
        name = self._name_of(handle)
        try:
            session.run(f"COMMIT PREPARED {literal(str(name))}")
        except PostgresError as error:
            if error.sqlstate == _IN_USE:
                return RetryLater(f"another session is at work on {name}", after_s=0.1)
            if error.sqlstate != _NO_SUCH_TRANSACTION:
                raise
        else:
            return Committed()
        job, sink = JobName(str(handle.get("job"))), SinkName(str(handle.get("sink")))
        with session.transaction():
            session.limit()
            if self._receipts.is_committed(session, name, job, sink):
                return AlreadyCommitted()
        return Lost(f"slot {name.slot}: {name} is not prepared in {self._options.address}, and it has no receipt")

    def abort(self, handle: Handle) -> None:
        """ROLLBACK PREPARED; that there is nothing is fine."""
        name = self._name_of(handle)
        with pooled(self._options.address) as session:
            try:
                session.run(f"ROLLBACK PREPARED {literal(str(name))}")
            except PostgresError as error:
                if error.sqlstate != _NO_SUCH_TRANSACTION:
                    raise

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """What `pg_prepared_xacts` lists for this database under our name."""
        for handle in self.pending_of_job(job.name):
            name = TransactionName.parse(str(handle["transaction"]))
            if name is not None and name.belongs_to(job, self.name):
                yield {**handle, "sink": self.name}

    def pending_of_job(self, name: JobName) -> Iterable[Handle]:
        """The same, of every generation and sink of the job in this database."""
        with pooled(self._options.address) as session:
            rows = session.run("SELECT gid::text, prepared FROM pg_prepared_xacts WHERE database = current_database()")
        for gid, prepared in rows:
            found = TransactionName.parse(gid)
            if found is not None and found.is_of_job(name):
                yield {"transaction": gid, "job": name, "since": prepared.isoformat()}

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

    def _name_of(self, handle: Handle) -> TransactionName:
        """Only what is ours goes into a statement."""
        name = TransactionName.parse(str(handle.get("transaction")))
        if name is None:
            raise TargetRefused(
                f"{handle.get('transaction')!r} is no transaction of onceward",
                sink=self.name,
                hint="the manifest was not written by onceward",
            )
        return name
