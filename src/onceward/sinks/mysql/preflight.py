"""Before the start: does the server allow all that staging, publishing and recovery will need?

What can be tried is tried, with no row and in a transaction that is rolled back; what is missing is named with the
statement that fixes it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from onceward.connections.mysql import LOST_CONNECTION, MySQLError, Session, literal, quoted
from onceward.contracts import Receipt
from onceward.errors import TargetRefused, TargetUnavailable
from onceward.identity import Fingerprint, JobIdentity, JobName, RunId, TransactionName, new_generation
from onceward.sinks.blocked import start_cut_off
from onceward.sinks.mysql.blocked import explained, is_cut_off
from onceward.sinks.mysql.compatibility import refuse_stream, refuse_table
from onceward.sinks.mysql.facts import TargetFacts
from onceward.sinks.mysql.look import look
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.receipts import RECEIPTS, WATERMARKS, Receipts, exists
from onceward.sinks.mysql.session import connect
from onceward.sinks.mysql.table import Server, ask_server, create_table

log = logging.getLogger("onceward")

_OLDEST = {True: (10, 6), False: (8, 0)}
_DENIED = frozenset({1044, 1142, 1143, 1227, 1370})
_NO_DATABASE = 1044
_NO_ENTRY = frozenset({1045, 1049, 1130, 1698, 2059})


@dataclass(frozen=True, slots=True)
class Readiness:
    """One check of one sink."""

    options: Options
    receipts: Receipts

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session whose failures are told in the words of a start that did not happen."""
        try:
            with connect(self.options) as session:
                yield session
        except MySQLError as error:
            raise self._explained(error) from error
        except TargetRefused as error:
            raise TargetRefused(error.message, hint=error.hint, sink=self.receipts.sink) from None

    def check(self, session: Session, schema: pa.Schema, facts: TargetFacts, *, output_mode: str) -> None:
        """Refuse what does not fit; make the tables that are missing; remember what the sink relies on."""
        refuse_stream(schema, self.options, output_mode=output_mode)
        server = ask_server(session)
        self._refuse_server(server)
        stored = pa.schema([field for field in schema if self.options.is_stored(field.name)])
        found = look(session, self.options.database, self.options.table, server).target
        if found is not None and "VIEW" not in found.kind and not found.columns:
            # The server hides columns from those who may do nothing with them.
            raise self.lacking(session, "SELECT, INSERT", self.options.target, why="it sees no column of the table")
        if found is not None:
            refuse_table(found, self.options, stored, server)
        else:
            self._create_target(session, stored, server)
        for name, statement in self.receipts.definitions().items():
            if not exists(session, self.options.database, name):
                with self.needing(session, "CREATE", f"{quoted(self.options.database)}.*"):
                    session.execute(statement)
        self._refuse_hidden(session)
        facts.take(session, schema, server)

    def _refuse_hidden(self, session: Session) -> None:
        """Columns and indexes are shown to those who may read."""
        ours = "SELECT, INSERT, UPDATE, DELETE"
        wanted = {self.options.target: "SELECT"}
        for table in (self.options.target, self.receipts.receipts_table, self.receipts.watermarks_table):
            with self.needing(session, wanted.get(table, ours), table):
                session.execute(f"SELECT 1 FROM {table} WHERE FALSE")

    def try_receipts(self, session: Session) -> None:
        """Everything that receipts and watermarks will need. The caller rolls it back."""
        tables = (self.receipts.receipts_table, self.receipts.watermarks_table)
        job = JobIdentity(JobName("onceward check"), new_generation())
        with self.needing(session, "SELECT, INSERT, UPDATE, DELETE", *tables):
            for epoch in (0, 1):
                receipt = Receipt(job.name, job.generation, self.receipts.sink, epoch, 0, Fingerprint("check"))
                name = rehearsal(job, self.receipts, epoch)
                self.receipts.write(session, receipt, transaction=name)
                self.receipts.is_committed(session, name)
            self.receipts.forget(session, job, 1)

    @contextmanager
    def needing(self, session: Session, privileges: str, *objects: str) -> Iterator[None]:
        """Tell what to grant when the server says that we may not."""
        try:
            yield
        except MySQLError as error:
            if error.code not in _DENIED:
                raise
            raise self.lacking(session, privileges, *objects, why=error.text) from error

    def lacking(self, session: Session, privileges: str, *objects: str, why: str) -> TargetRefused:
        """The refusal for a missing privilege, with what to grant."""
        user = "@".join(f"'{part}'" for part in session.execute("SELECT CURRENT_USER()")[0][0].rsplit("@", 1))
        grants = " ".join(f"GRANT {privileges} ON {thing} TO {user};" for thing in objects)
        return TargetRefused(f"this user lacks a privilege: {why}", hint=f"run: {grants}")

    def _refuse_server(self, server: Server) -> None:
        oldest = _OLDEST[server.is_mariadb]
        if server.version < oldest:
            raise TargetRefused(
                f"{server.name} is too old: prepared transactions do not survive there",
                hint="use MySQL 8.0 or MariaDB 10.6, or a newer one",
            )
        if not server.has_local_infile:
            raise TargetRefused(
                "the server does not take rows from its clients: local_infile is off",
                hint="run: SET GLOBAL local_infile = 1; and put local_infile=1 under [mysqld] in its configuration",
            )

    def _create_target(self, session: Session, schema: pa.Schema, server: Server) -> None:
        names = {name.lower(): name for name in schema.names}
        keys = [names[key.lower()] for key in self.options.keys]
        statement = create_table(self.options.target, schema, keys, server)
        if not self.options.create_table:
            raise TargetRefused(
                f"there is no table {self.options.table!r} in {self.options.database!r}", hint=f"run: {statement};"
            )
        alike = session.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = "
            f"{literal(self.options.database)} AND LOWER(table_name) = LOWER({literal(self.options.table)})"
        )
        if alike:
            raise TargetRefused(
                f"there is no table {self.options.table!r} in {self.options.database!r}, but {alike[0][0]!r}: on this "
                "server names that differ in case are different tables",
                hint=f"say table={alike[0][0]!r}; or, if another one is wanted, run: {statement};",
            )
        with self.needing(session, "CREATE", f"{quoted(self.options.database)}.*"):
            session.execute(statement)
        log.info("made the table %s in %s", self.options.target, self.options.address)

    def _explained(self, error: MySQLError) -> TargetRefused | TargetUnavailable:
        where = str(self.options.address)
        if error.code in LOST_CONNECTION:
            return TargetUnavailable(
                f"{where} does not answer: {error}", hint="see that the server runs", sink=self.receipts.sink
            )
        if is_cut_off(error):
            return start_cut_off(str(explained(error, self.options)), sink=self.receipts.sink)
        hint = "check the user, its password, and that the database exists"
        if error.code == _NO_DATABASE:
            wanted = "SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE TEMPORARY TABLES"
            user = re.search(r"'[^']*'@'[^']*'", error.text)
            who = user[0] if user is not None else f"'{self.options.address.user}'"
            hint = f"run: GRANT {wanted} ON {quoted(self.options.address.database)}.* TO {who};"
        elif error.code not in _NO_ENTRY:
            hint = f"see what the server says; the tables are {self.options.target}, {RECEIPTS} and {WATERMARKS}"
        return TargetRefused(f"{where} refuses: {error}", hint=hint, sink=self.receipts.sink)


def rehearsal(job: JobIdentity, receipts: Receipts, epoch: int = 0) -> TransactionName:
    """The name of a transaction that will never be prepared."""
    return TransactionName.of(job, receipts.sink, epoch=epoch, takeover=0, slot=0, attempt=0, run=RunId("aaaaaa"))
