"""The sink that users make. Which template serves it follows from its mode, and from what the server can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa

from onceward.connections.mysql import require_driver
from onceward.contracts import AnySink, Receipt, TemplateChoice
from onceward.errors import ConfigurationError
from onceward.identity import JobIdentity, default_sink_name
from onceward.sinks.mysql.facts import TargetFacts
from onceward.sinks.mysql.look import look
from onceward.sinks.mysql.obstacles import obstacles
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.preflight import Readiness
from onceward.sinks.mysql.receipts import Receipts
from onceward.sinks.mysql.table import ask_server
from onceward.sinks.mysql.two_phase import MySQLTwoPhaseSink
from onceward.sinks.mysql.write_ahead import MySQLWriteAheadSink
from onceward.sinks.obstacles import Obstacle, asked_for_log, refusal, refuse_mode, standing


class MySQLSink(TemplateChoice):
    """Exactly-once rows in the table `table`, or `database.table`, of MySQL 8 or MariaDB 10.6 and newer at `url`.

    `mode="append"` adds rows by two-phase commit (XA) where the server has it and nothing in the table would make
    prepared transactions hold each other up (a unique index, a foreign key, a trigger), else from the write-ahead log;
    `two_phase=True` refuses to start then, `two_phase=False` never uses it. `mode="upsert"` writes by `keys`, from the
    write-ahead log: of several rows with one key in an epoch the one with the greatest `order_by` stays, or else the
    last; a row whose boolean column `deleted` is true removes its key. `mode="replace"`, for output mode complete,
    exchanges the table's whole content in one transaction. A missing table is made from the stream's columns unless
    `create_table=False`. MySQL has no NaN and no infinity: `non_finite` says whether such a row is refused or stored
    as NULL. A trigger that runs before each insert may change values: `before_triggers` says whether such a table is
    refused or wished. A server that does not answer for `timeout_s` is taken for gone, and asked again; so is one where
    others hold a lock for longer than `lock_timeout_s`. `name` is how staged work and receipts are found again, so keep
    it; by default it is made from the table's.
    """

    mechanism = "two-phase commit by XA, or write-ahead log; receipt in the same MySQL transaction"

    def __init__(
        self,
        url: str,
        *,
        table: str,
        mode: Literal["append", "upsert", "replace"] = "append",
        keys: str | Sequence[str] = (),
        name: str | None = None,
        create_table: bool = True,
        order_by: str | None = None,
        deleted: str | None = None,
        non_finite: Literal["refuse", "null"] = "refuse",
        before_triggers: Literal["refuse", "allow"] = "refuse",
        two_phase: bool | None = None,
        lock_timeout_s: float = 30.0,
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(name=name if name is not None else default_sink_name("mysql", table))
        require_driver()
        self.two_phase = two_phase
        try:
            self._options = Options.parse(
                url,
                table=table,
                mode=mode,
                keys=keys,
                order_by=order_by,
                deleted=deleted,
                create_table=create_table,
                non_finite=non_finite,
                before_triggers=before_triggers,
                timeout_s=timeout_s,
                lock_timeout_s=lock_timeout_s,
            )
            if two_phase:
                refuse_mode(mode)
        except ConfigurationError as error:
            raise ConfigurationError(error.message, hint=error.hint, sink=self.name) from None

    def choose(self) -> AnySink:
        """See `TemplateChoice.choose`."""
        is_asked_for = self._options.mode != "append" or self.two_phase is False
        found: tuple[Obstacle, ...] = ()
        why: str | None = asked_for_log(self._options.mode)
        if not is_asked_for:
            found = self._obstacles()
            why = standing(found)
        facts = TargetFacts(self._options)
        two_phase = MySQLTwoPhaseSink(self._options, facts, name=self.name, obstacles=found)
        write_ahead = MySQLWriteAheadSink(
            self._options, facts, name=self.name, why=why or "", is_asked_for=is_asked_for
        )
        if why is None:
            two_phase.alternate = write_ahead
            return two_phase
        if self.two_phase:
            raise refusal(repr(self._options.table), why, sink=self.name)
        write_ahead.alternate = two_phase
        return write_ahead

    def _obstacles(self) -> tuple[Obstacle, ...]:
        options = self._options
        with Readiness(options, Receipts(options.database, self.name)).session() as session:
            server = ask_server(session)
            if server.is_galera:
                return (Obstacle("the server is a Galera cluster, which has no XA"),)
            table = look(session, options.database, options.table, server).target
            return tuple(obstacles(table)) if table is not None else ()

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """See `Sink.check`."""
        self.choose().check(schema, output_mode=output_mode)

    def receipts(self, job: JobIdentity) -> Iterable[Receipt]:
        """See `Sink.receipts`."""
        return self.choose().receipts(job)

    def __repr__(self) -> str:
        """Without the password."""
        return f"MySQLSink({str(self._options.address)!r}, table={self._options.table!r}, name={self.name!r})"
