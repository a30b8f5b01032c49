"""`PostgresSink`: the options, and which of the two templates serves them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa

from onceward.connections.postgres import LOCK_TIMEOUT_S, TIMEOUT_S, Address, PostgresError, require_driver
from onceward.contracts import AnySink, Receipt, TemplateChoice
from onceward.errors import ConfigurationError, TargetRefused
from onceward.identity import JobIdentity, default_sink_name
from onceward.sinks.names import as_names
from onceward.sinks.obstacles import asked_for_log, refusal, refuse_mode
from onceward.sinks.postgres.obstacles import Room, ask
from onceward.sinks.postgres.options import Options, TableName
from onceward.sinks.postgres.preflight import connected
from onceward.sinks.postgres.two_phase import PostgresTwoPhaseSink
from onceward.sinks.postgres.write_ahead import PostgresWriteAheadSink


class PostgresSink(TemplateChoice):
    """Exactly-once rows in the table `table`, or `schema.table`, of the PostgreSQL at `url` (postgresql://...).

    `mode="append"` adds rows: by two-phase commit where the server has prepared transactions and nothing in the table
    would make them hold each other up (a unique index, a foreign key, a trigger), else from the write-ahead log;
    `two_phase=True` refuses to start then, `two_phase=False` never uses it.
    `mode="upsert"` writes by `keys`: of several rows with one key in an epoch the one with the greatest `order_by`
    stays, or else the last; a row whose boolean column `deleted` is true removes its key. `mode="replace"`, for output
    mode complete, exchanges the table's whole content in one transaction. A missing table is made from the stream's
    columns unless `create_table=False`. Receipts are kept in the table `onceward_receipts` of `receipts_schema`, or of
    the first schema in the search path. A table with a trigger that fires before a row is written, and so may change it
    or leave it out, is refused unless `triggers` names it. Nothing waits for a lock of others for longer than
    `lock_timeout_s`, and no statement takes longer than `timeout_s`: then the task, or the publishing of the epoch, is
    tried again. `name` is how staged work and receipts are found again, so keep it; by default it is made from the
    table's.
    """

    mechanism = "two-phase commit, or write-ahead log; receipt in the same PostgreSQL transaction"

    def __init__(
        self,
        url: str,
        *,
        table: str,
        mode: Literal["append", "upsert", "replace"] = "append",
        keys: str | Sequence[str] = (),
        order_by: str | None = None,
        deleted: str | None = None,
        name: str | None = None,
        create_table: bool = True,
        receipts_schema: str | None = None,
        triggers: str | Sequence[str] = (),
        two_phase: bool | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(name=name if name is not None else default_sink_name("postgres", table))
        require_driver()
        self.two_phase = two_phase
        try:
            self._options = Options(
                address=Address.parse(url, lock_timeout_s=lock_timeout_s, timeout_s=timeout_s),
                table=TableName.parse(table),
                mode=mode,
                keys=as_names(keys),
                order_by=order_by,
                deleted=deleted,
                create_table=create_table,
                receipts_schema=receipts_schema,
                triggers=as_names(triggers),
            )
            if two_phase:
                refuse_mode(mode)
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None

    def choose(self) -> AnySink:
        """See `TemplateChoice.choose`."""
        is_asked_for = self._options.mode != "append" or self.two_phase is False
        room, why = Room(0, ()), asked_for_log(self._options.mode)
        if not is_asked_for:
            room = self._ask()
            why = room.why_not() or ""
        prepared = PostgresTwoPhaseSink(self._options, self.name, room)
        logged = PostgresWriteAheadSink(self._options, self.name, why, is_asked_for=is_asked_for)
        if not why:
            prepared.alternate = logged
            return prepared
        if self.two_phase:
            raise self._refused(room, why)
        logged.alternate = prepared
        return logged

    def _ask(self) -> Room:
        try:
            with connected(self._options.address, self.name) as session:
                return ask(session, self._options.table)
        except PostgresError as error:
            raise TargetRefused(
                f"{self._options.address} refuses: {error}",
                sink=self.name,
                hint="grant what is missing, then start again",
            ) from None

    def _refused(self, room: Room, why: str) -> ConfigurationError:
        if not room.prepared:
            return ConfigurationError(
                f"{self._options.address} has max_prepared_transactions = 0",
                hint="ALTER SYSTEM SET max_prepared_transactions = 100, restart it, or leave two_phase out",
                sink=self.name,
            )
        return refusal(str(self._options.table), why, sink=self.name)

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """See `Sink.check`."""
        self.choose().check(schema, output_mode=output_mode)

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """See `Sink.receipts`."""
        return self.choose().receipts(job)

    def __repr__(self) -> str:
        """Without the password."""
        options = self._options
        return f"PostgresSink({str(options.address)!r}, table={str(options.table)!r}, mode={options.mode!r})"
