"""Before anything moves: the server answers, the table fits, and this user may do all that a run will ask for."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from onceward.connections.postgres import Address, PostgresError, Session, acquire, quoted, release
from onceward.errors import TargetRefused, TargetUnavailable
from onceward.sinks.blocked import start_cut_off
from onceward.sinks.postgres.blocked import explained, is_cut_off
from onceward.sinks.postgres.compatibility import refuse_stream, refuse_table
from onceward.sinks.postgres.facts import TargetFacts
from onceward.sinks.postgres.hazards import operations, refuse_hazards, triggers_between
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.receipts import Receipts
from onceward.sinks.postgres.table import Table, create_table, describe

log = logging.getLogger("onceward")

_CREATED_MEANWHILE = ("23505", "42P07")
_NO_SCHEMA = "3F000"
_ALIKE = (
    "SELECT CASE WHEN $2::text IS NULL THEN '' ELSE quote_ident(nspname) || '.' END || quote_ident(relname) "
    "FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE lower(relname) = lower($1::text) AND relkind IN ('r', 'p') "
    "AND nspname = COALESCE($2::text, current_schema())"
)
# A login that is refused has no SQLSTATE. In another language than English it passes for a server that is away.
_LOGIN_REFUSED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|not permitted to log in"
    r'|permission denied|(role|database) ".*" does not exist|no such (user|database)|does not support SSL'
    r"|certificate verify failed|invalid (URI|connection option|sslmode)"
)


@contextmanager
def connected(address: Address, sink: str) -> Iterator[Session]:
    """A session, or an error that says what to look at."""
    try:
        session = acquire(address)
    except PostgresError as error:
        if _LOGIN_REFUSED.search(str(error)):
            raise TargetRefused(
                f"{address} does not let us in: {error}", sink=sink, hint="check user, password and database in the URL"
            ) from None
        raise TargetUnavailable(
            f"cannot connect to {address}: {error}",
            sink=sink,
            hint="see that the server runs and takes connections from here",
        ) from None
    try:
        yield session
    except BaseException:
        session.close()
        raise
    release(session)


def check(
    options: Options, receipts: Receipts, facts: TargetFacts, schema: pa.Schema, *, output_mode: str, sink: str
) -> None:
    """Compare the table with the stream; make it, and the tables for receipts, where they are missing; then remember
    how it all stands."""
    try:
        refuse_stream(schema, options, output_mode=output_mode)
        with connected(options.address, sink) as session:
            table = _check_table(session, options, schema)
            _check_receipts(session, receipts)
            fields = [table.column(field.name) for field in schema if field.name != options.deleted]
            facts.take(session, (column.name for column in fields if column is not None))
    except TargetRefused as refused:
        raise TargetRefused(refused.message, hint=refused.hint, sink=sink) from None
    except PostgresError as error:
        if is_cut_off(error):
            raise start_cut_off(str(explained(error, options, receipts.receipts_table)), sink=sink) from None
        raise TargetRefused(
            f"{options.address} refuses: {error}", sink=sink, hint="grant what is missing, then start again"
        ) from None


def _check_table(session: Session, options: Options, schema: pa.Schema) -> Table:
    (table,) = describe(session.run, str(options.table))
    statement = create_table(options, schema)
    if table is None and not options.create_table:
        raise TargetRefused(f"there is no table {options.table} in {options.address}", hint=f"run: {statement}")
    if table is None:
        _create(session, options, statement)
        (table,) = describe(session.run, str(options.table))
    if table is None:
        raise TargetRefused(f"the table {options.table} was made and is not found", hint="check the search path")
    refuse_hazards(table, options)
    refuse_table(table, options, schema)
    _check_privileges(session, table, options)
    return table


def _create(session: Session, options: Options, statement: str) -> None:
    wanted = options.table
    alike = session.run(_ALIKE, wanted.table, wanted.schema)
    if alike:
        raise TargetRefused(
            f"there is no table {wanted}, but there is {alike[0][0]}: names that differ in case are different tables",
            hint=f"say table={alike[0][0]!r}; or, if another one is wanted, run: {statement}",
        )
    try:
        with session.transaction():
            session.limit()
            session.run(statement)
    except PostgresError as error:
        if is_cut_off(error):
            raise
        if error.sqlstate == _NO_SCHEMA and wanted.schema is not None:
            raise TargetRefused(
                f"there is no schema {quoted(wanted.schema)} in {options.address}",
                hint=f"run: CREATE SCHEMA {quoted(wanted.schema)};",
            ) from None
        if error.sqlstate not in _CREATED_MEANWHILE:
            raise TargetRefused(
                f"the table {wanted} does not exist and cannot be made: {error}",
                hint=f"run as someone who may: {statement}",
            ) from None
        return
    log.info("made the table %s in %s", wanted, options.address)


def _check_privileges(session: Session, table: Table, options: Options) -> None:
    # To see that a trigger has let all rows be deleted takes a look.
    looks = options.mode == "upsert" or triggers_between(table, options, "DELETE")
    wanted = sorted(operations(options) | ({"SELECT"} if looks else set()))
    for privilege in wanted:
        if not session.run("SELECT has_table_privilege(to_regclass($1), $2)", str(options.table), privilege)[0][0]:
            user = session.run("SELECT quote_ident(current_user)")[0][0]
            raise TargetRefused(
                f"this user may not {privilege} on {options.table}",
                hint=f"run: GRANT {', '.join(wanted)} ON {options.table} TO {user}",
            )
    if options.mode == "upsert":
        row = session.run(
            "SELECT has_database_privilege(current_database(), 'TEMP'), quote_ident(current_database()), "
            "quote_ident(current_user)"
        )
        allowed, database, user = row[0]
        if not allowed:
            raise TargetRefused(
                "this user may not make temporary tables, which an upsert needs",
                hint=f"run: GRANT TEMP ON DATABASE {database} TO {user}",
            )


def _check_receipts(session: Session, receipts: Receipts) -> None:
    try:
        receipts.create(session)
    except PostgresError as error:
        if is_cut_off(error):
            raise
        statements = "; ".join(receipts.statements())
        raise TargetRefused(
            f"the tables for receipts do not exist and cannot be made: {error}",
            hint=f"run as someone who may, and grant this user SELECT, INSERT, UPDATE and DELETE on them: {statements}",
        ) from None
    for table in (receipts.receipts_table, receipts.watermarks_table):
        for privilege in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            if not session.run("SELECT has_table_privilege(to_regclass($1), $2)", table, privilege)[0][0]:
                user = session.run("SELECT quote_ident(current_user)")[0][0]
                raise TargetRefused(
                    f"this user may not {privilege} on {table}",
                    hint=f"run: GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {user}",
                )
