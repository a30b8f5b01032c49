"""Appended rows by two-phase commit: each slot is one prepared XA transaction until its epoch is decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from onceward.connections.mysql import MySQLError, Session
from onceward.contracts import AnySink, Finding, Handle, Outcome, Receipt, SlotContext, TwoPhaseCommitSink, Workload
from onceward.errors import TargetRefused
from onceward.identity import JobIdentity, JobName, TransactionName, new_generation
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.mysql import xa
from onceward.sinks.mysql.background_load import BackgroundLoad
from onceward.sinks.mysql.blocked import is_cut_off, staging_failed
from onceward.sinks.mysql.diagnose import diagnose
from onceward.sinks.mysql.errors import classify, translated
from onceward.sinks.mysql.facts import TargetFacts
from onceward.sinks.mysql.loader import Loader, load_statement
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.preflight import Readiness, rehearsal
from onceward.sinks.mysql.receipts import Receipts
from onceward.sinks.mysql.session import connect
from onceward.sinks.mysql.table import Table
from onceward.sinks.obstacles import Obstacle, refusal, standing

# A look for a receipt that someone holds locked is repeated soon enough.
_LOCK_WAIT_S = 1
_MAY_NOT_RECOVER = frozenset({1227, 1401})


class SlotTransaction:
    """One attempt's share of an epoch. The connection is made when the first rows go out, and ends with the attempt.

    A slot with more rows than one load takes has a thread that loads them while the next ones come in: the server has
    more to do with a row than we.
    """

    def __init__(self, context: SlotContext, options: Options, receipts: Receipts, facts: TargetFacts) -> None:
        self.context = context
        self.loader = Loader(options.target, options, slot=context.slot)
        self._options, self._receipts, self._facts = options, receipts, facts
        self._session: Session | None = None
        self._table: Table | None = None
        self._schema = pa.schema([])
        self._connection: int | None = None
        self._background = BackgroundLoad()
        self.may_be_prepared = False

    def add(self, batch: pa.RecordBatch) -> None:
        """Gather the rows, and have them loaded when there are enough, after those before."""
        self._schema = batch.schema
        if self.loader.add(batch):
            self._background.do(self.loader.loading(*self._begun()))

    def prepare(self) -> None:
        """Load the rest, write the receipt, prepare, and let go of the connection: only then may others commit it."""
        self._background.wait()
        context = self.context
        session, table = self._begun()
        self.loader.flush(session, table)
        receipt = Receipt(
            job=context.job.name,
            generation=context.job.generation,
            sink=context.sink,
            epoch=context.epoch,
            slot=context.slot,
            fingerprint=context.fingerprint,
        )
        self._receipts.write(session, receipt, transaction=context.transaction)
        session.execute(f"XA END {xa.xid(context.transaction)}")
        self.may_be_prepared = True
        session.execute(f"XA PREPARE {xa.xid(context.transaction)}")
        self.let_go()

    def let_go(self) -> None:
        """End the connection, and wait until the server has taken the transaction from it."""
        self.close()
        if self._connection is not None:
            with connect(self._options) as session:
                xa.await_end(session, self._connection)

    def close(self) -> None:
        """End the connection: what is not prepared is rolled back. A load on its way is not torn from its thread."""
        self._background.close()
        if self._session is not None:
            self._session.close()
            self._session = None

    def _begun(self) -> tuple[Session, Table]:
        """In the transaction, with the target as it stays until that ends: its lock outlives the connection."""
        if self._session is None or self._table is None:
            self._session = connect(self._options, gives_up_idle=False)
            self._connection = int(self._session.execute("SELECT CONNECTION_ID()")[0][0])
            self._session.execute(f"XA START {xa.xid(self.context.transaction)}")
            self._table = self._facts.confirm(self._session, self._schema, epoch=self.context.epoch)
        return self._session, self._table


class MySQLTwoPhaseSink(TwoPhaseCommitSink[SlotTransaction]):
    """Made by `MySQLSink`. A slot's rows become visible together; slots one after the other."""

    mechanism = "two-phase commit: LOAD DATA and receipt in one prepared XA transaction"

    def __init__(
        self, options: Options, facts: TargetFacts, *, name: str, obstacles: tuple[Obstacle, ...] = ()
    ) -> None:
        super().__init__(name=name)
        self._options, self._facts, self._obstacles = options, facts, obstacles
        self._receipts = Receipts(options.database, self.name)
        self.alternate: AnySink | None = None

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Compare table and stream, make what is missing, and go through a transaction that is rolled back."""
        if (why := standing(self._obstacles, map(str.lower, schema.names))) is not None:
            raise refusal(repr(self._options.table), f"{why}, and the stream fills it", sink=self.name)
        ready = Readiness(self._options, self._receipts)
        with ready.session() as session:
            ready.check(session, schema, self._facts, output_mode=output_mode)
            self._try_recovery(ready, session)
            name = xa.xid(rehearsal(JobIdentity(JobName("onceward check"), new_generation()), self._receipts))
            session.execute(f"XA START {name}")
            with ready.needing(session, "INSERT", self._options.target):
                session.load(load_statement(self._options.target, schema), ())
            ready.try_receipts(session)
            session.execute(f"XA END {name}")
            session.execute(f"XA ROLLBACK {name}")

    def diagnose(self, workload: Workload) -> Iterable[Finding]:
        """See `Sink.diagnose`."""
        with Readiness(self._options, self._receipts).session() as session:
            return list(diagnose(session, is_two_phase=True))

    def _try_recovery(self, ready: Readiness, session: Session) -> None:
        """MySQL 8 wants a privilege for it, and says so with an error that could mean anything."""
        try:
            list(xa.prepared(session))
        except MySQLError as error:
            if error.code not in _MAY_NOT_RECOVER:
                raise
            why = f"it may not list prepared transactions, which recovery needs: {error.text}"
            raise ready.lacking(session, "XA_RECOVER_ADMIN", "*.*", why=why) from error

    # --- stage, on executors --------------------------------------------------------------------

    def begin_transaction(self, context: SlotContext) -> SlotTransaction:
        """Nothing reaches the server before the first megabytes of rows, or the pre-commit."""
        return SlotTransaction(context, self._options, self._receipts, self._facts)

    def invoke(self, transaction: SlotTransaction, batch: pa.RecordBatch) -> None:
        """Gather the rows, and load them when there are enough."""
        with self._naming_lock_holders(transaction.context):
            transaction.add(batch)

    def pre_commit(self, transaction: SlotTransaction) -> Handle:
        """Load, write the receipt, prepare, disconnect."""
        with self._naming_lock_holders(transaction.context):
            transaction.prepare()
        return {"rows": transaction.loader.rows}

    @contextmanager
    def _naming_lock_holders(self, context: SlotContext) -> Iterator[None]:
        """A wait that was cut off is told with those who may have been in the way, and what is gone as such."""
        try:
            yield
        except MySQLError as error:
            if is_cut_off(error):
                raise staging_failed(error, self._options, epoch=context.epoch, sink=self.name) from None
            if classify(error) is ErrorClass.TARGET:
                raise translated(error, self._options.table, epoch=context.epoch, sink=self.name) from error
            raise

    def discard(self, transaction: SlotTransaction) -> None:
        """Disconnect, which rolls back; and roll back what was prepared although nobody said so."""
        if not transaction.may_be_prepared:
            transaction.close()
            return
        transaction.let_go()
        with connect(self._options, lock_wait_s=_LOCK_WAIT_S) as session:
            xa.roll_back(session, transaction.context.transaction)

    # --- publish, on the driver -----------------------------------------------------------------

    def verify(self, handles: Sequence[Handle]) -> Sequence[str | None]:
        """XA RECOVER, once."""
        with connect(self._options) as session:
            prepared = set(xa.prepared(session))
        names = [_name(handle) for handle in handles]
        return [None if name in prepared else f"XA RECOVER of the target does not list {name}" for name in names]

    def commit(self, handle: Handle) -> Outcome:
        """See `commit_all`."""
        return self.commit_all([handle])[0]

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """XA COMMIT for one after the other, over one connection."""
        names = [_name(handle) for handle in handles]
        if not names:
            return []
        with connect(self._options, lock_wait_s=_LOCK_WAIT_S) as session:
            return [xa.commit(session, name, self._receipts) for name in names]

    def abort(self, handle: Handle) -> None:
        """XA ROLLBACK, if it is prepared."""
        with connect(self._options, lock_wait_s=_LOCK_WAIT_S) as session:
            xa.roll_back(session, _name(handle))

    # --- recover, on the driver -----------------------------------------------------------------

    def pending(self, job: JobIdentity) -> Iterable[Handle]:
        """Those of XA RECOVER that are ours. One that is not prepared yet is gone with its connection, or comes up
        later and is found then."""
        with connect(self._options) as session:
            found = [name for name in xa.prepared(session) if name.belongs_to(job, self.name)]
        return [{"transaction": str(name)} for name in found]

    def pending_of_job(self, name: JobName) -> Iterable[Handle]:
        """The same, of every generation and sink of the job on this server."""
        with connect(self._options) as session:
            found = [one for one in xa.prepared(session) if one.is_of_job(name)]
        return [{"transaction": str(one)} for one in found]

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """All of this job's name and this sink; below the watermark only those of each generation's last epoch."""
        with connect(self._options) as session:
            return self._receipts.all_receipts(session, job)

    def receipts_at(self) -> str:
        """See `Sink.receipts_at`."""
        return f"database {self._receipts.database}"

    def target_facts(self) -> Mapping[str, str]:
        """See `Sink.target_facts`. Looked at again by every task, in its transaction, before it loads its first row."""
        return self._facts.facts or {}

    def forget(self, job: JobIdentity, below: int) -> None:
        """Raise the watermark and drop the receipts below it, together."""
        with connect(self._options) as session, session.transaction():
            self._receipts.forget(session, job, below)


def _name(handle: Handle) -> TransactionName:
    """Only a name of ours ever gets into a statement, whoever wrote the manifest."""
    name = TransactionName.parse(str(handle.get("transaction")))
    if name is None:
        raise TargetRefused("a handle names no transaction of onceward", hint="the manifest was not written by it")
    return name
