"""A session with the server: one ADBC connection whose transactions are begun and ended by statements of our own.

ADBC's own transactions know nothing of PREPARE TRANSACTION; so the connection is left in autocommit and told BEGIN.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, unquote

import pyarrow as pa

from onceward.errors import ConfigurationError

# As libpq reads it, with no room for doubt: what is special must be percent-encoded. A password with a bare slash or
# question mark would else be taken for host and path, and shown to everyone.
_URL = re.compile(r"postgres(?:ql)?://(?:([^@/?#]*)@)?([^@/?#]*)(/[^@?#]*)?(?:\?([^@#]*))?")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_LONGEST_S = 2_000_000.0
_SECRETS = ("password", "sslpassword")
_DEFAULTS = {
    "application_name": "onceward",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    # A server that vanished is noticed within two minutes, not after two hours.
    "keepalives_idle": "60",
    "keepalives_interval": "15",
    "keepalives_count": "4",
    # Neither is one that does not acknowledge what was sent to it.
    "tcp_user_timeout": "120000",
    # Receipts are read where they are written, never from a standby that is behind.
    "target_session_attrs": "read-write",
}


LOCK_TIMEOUT_S = 30.0
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and how long to wait there. Prints without the password, and takes it out of any text."""

    url: str = field(repr=False)
    lock_timeout_s: float = LOCK_TIMEOUT_S
    timeout_s: float = TIMEOUT_S

    @classmethod
    def parse(cls, url: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S, timeout_s: float = TIMEOUT_S) -> Self:
        """The address, if libpq can make sense of it."""
        for option, seconds in (("lock_timeout_s", lock_timeout_s), ("timeout_s", timeout_s)):
            # Of less than a millisecond the server would make 0, which is no limit.
            if not 0.001 <= seconds <= _LONGEST_S:
                raise ConfigurationError(f"{option} is {seconds}", hint="give seconds, more than 0")
        if not url.startswith(("postgresql://", "postgres://")):
            raise ConfigurationError(
                "a PostgreSQL address begins with postgresql://",
                hint="give postgresql://user@host:5432/database; the password may come from PGPASSWORD or ~/.pgpass",
            )
        parts = _URL.fullmatch(url)
        options = parts[4].split("&") if parts and parts[4] else []
        if not parts or _BAD_PERCENT.search(url) or "\0" in url or not all("=" in option for option in options):
            # Without the address: what is wrong with it may be the password.
            raise ConfigurationError(
                "this PostgreSQL address cannot be read",
                hint="give postgresql://user@host:5432/database?option=value, and percent-encode what is special in "
                "user, password and options: @ is %40, / is %2F, ? is %3F, # is %23, % is %25",
            )
        # `+` stands for a blank only on web pages; libpq takes it for itself.
        given = {unquote(key): unquote(value) for key, _, value in (option.partition("=") for option in options)}
        query = "&".join(f"{quote(key, '')}={quote(value, '')}" for key, value in {**_DEFAULTS, **given}.items())
        user = f"{parts[1]}@" if parts[1] is not None else ""
        return cls(f"postgresql://{user}{parts[2]}{parts[3] or ''}?{query}", lock_timeout_s, timeout_s)

    def __str__(self) -> str:
        """Server and database."""
        _, host, path, _ = self._parts()
        return f"postgresql://{host}{path}"

    def without_secrets(self, text: str) -> str:
        """The text with the password, in either spelling, taken out."""
        user, _, _, query = self._parts()
        options = dict(option.split("=", 1) for option in query.split("&"))
        written = [user.partition(":")[2], *(options.get(name, "") for name in _SECRETS)]
        for secret in sorted({*written, *map(unquote, written)} - {""}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _parts(self) -> tuple[str, str, str, str]:
        parts = _URL.fullmatch(self.url)
        return (parts[1] or "", parts[2], parts[3] or "", parts[4]) if parts else ("", "", "", "")


class PostgresError(Exception):
    """What the server said. `sqlstate` is its code, empty when the connection failed before it could say anything."""

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def require_driver() -> None:
    """Refuse at once where the extra is not installed."""
    if importlib.util.find_spec("adbc_driver_postgresql") is None:
        raise ConfigurationError("the PostgreSQL driver is not installed", hint="run: pip install 'onceward[postgres]'")


class Session:
    """One connection. Not shared between threads."""

    def __init__(self, address: Address) -> None:
        from adbc_driver_postgresql import dbapi

        self.address = address
        # What the server process of this transaction has prepared, once it was asked.
        self._prepared: set[str] | None = None
        with self._as_postgres_error():
            self._connection = dbapi.connect(address.url, autocommit=True)

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """One statement; its rows, if it has any."""
        with self._as_postgres_error(), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    def run_prepared(self, statement: str, *parameters: str | None) -> list[tuple[Any, ...]]:
        """The same for a query that each transaction runs: the server plans it once. Its parameters are text.

        Only inside a transaction: a pooler stays with one server process that long, and no longer.
        """
        name = f"onceward_{hashlib.sha256(statement.encode()).hexdigest()[:16]}"
        if self._prepared is None:
            self._prepared = self.limit()
        if name not in self._prepared:
            self.run(f"PREPARE {name} ({', '.join('text' for _ in parameters)}) AS {statement}")
            self._prepared.add(name)
        given = ", ".join("NULL" if value is None else literal(value) for value in parameters)
        with self._as_postgres_error(), self._connection.cursor() as cursor:
            # The driver would else put it into a COPY, which takes no EXECUTE.
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(f"EXECUTE {name} ({given})")
            return list(cursor.fetchall())

    def copy(self, table: str, schema: str | None, rows: pa.RecordBatchReader | pa.Table) -> int:
        """Append rows by binary COPY, column by column of the same name. Without a schema: a temporary table."""
        with self._as_postgres_error(), self._connection.cursor() as cursor:
            count: int = cursor.adbc_ingest(table, rows, mode="append", db_schema_name=schema, temporary=schema is None)
            return count

    def copy_all(self, table: str, schema: str | None, batches: Iterator[pa.RecordBatch]) -> None:
        """The same for batches that are made while the server takes in those before them: one COPY for all of them.

        Making the first may run statements. What goes wrong in making the others is raised as it is.
        """
        first = next(batches, None)
        if first is None:
            return
        failed: list[BaseException] = []

        def passed_on() -> Iterator[pa.RecordBatch]:
            try:
                yield first
                yield from batches
            except GeneratorExit:
                # The server has refused what it got, and nobody asks for more.
                raise
            except BaseException as error:
                failed.append(error)
                raise

        try:
            self.copy(table, schema, pa.RecordBatchReader.from_batches(first.schema, passed_on()))
        except PostgresError:
            if failed:
                raise failed[0] from None
            raise

    def begin(self) -> None:
        """In an isolation that sees what others committed while we waited for a lock, whatever the server's default."""
        self._prepared = None
        self.run("BEGIN ISOLATION LEVEL READ COMMITTED")

    def limit(self, *more: str, parameters: Sequence[object] = (), gives_up_idle: bool = False) -> set[str]:
        """Early in a transaction: what follows waits for nothing without end. `more` is evaluated after that, in order.

        Gives the names of what the server process has prepared: asked here, it costs no round trip of its own.

        For the transaction only, since a session may be another one's next, behind a pooler. `statement_timeout` must
        not hold for COMMIT PREPARED: while that waits for a synchronous standby, to cancel it is to confirm it. The
        server ends a transaction that `gives_up_idle` when its client is paused in between: it may hold locks.
        """
        bounds = {"lock_timeout": self.address.lock_timeout_s, "statement_timeout": self.address.timeout_s}
        if gives_up_idle:
            bounds["idle_in_transaction_session_timeout"] = self.address.timeout_s
        limits = [f"set_config('{name}', '{round(after * 1000)}', true)" for name, after in bounds.items()]
        prepared = "(SELECT string_agg(name, ' ') FROM pg_prepared_statements)"
        ((names, *_),) = self.run(f"SELECT {', '.join([prepared, *limits, *more])}", *parameters)
        self._prepared = set((names or "").split())
        return self._prepared

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits at the end, or rolls back."""
        self.begin()
        try:
            yield
        except BaseException:
            with contextlib.suppress(PostgresError):
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    def close(self) -> None:
        """Let go of it; what was not committed or prepared is rolled back by the server."""
        with contextlib.suppress(Exception):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _as_postgres_error(self) -> Iterator[None]:
        from adbc_driver_manager import Error

        try:
            yield
        except Error as error:
            told = {str(key): value.decode(errors="replace") for key, value in _details(error)}
            said = told.get("PG_DIAG_MESSAGE_PRIMARY") or str(error).partition("[libpq] ")[2] or str(error)
            detail = told.get("PG_DIAG_MESSAGE_DETAIL")
            # Of COPY it tells line and column, and nobody could find the value without.
            where = told.get("PG_DIAG_CONTEXT")
            message = " ".join([said.strip(), *(f"({more})" for more in (detail, where) if more)])
            raise PostgresError(self.address.without_secrets(message), error.sqlstate or "") from None


_MOST_IDLE = 8
# By process: one that was forked from this one has the same list, but the sessions in it are not its own.
_idle: dict[int, list[Session]] = {}
_idle_lock = threading.Lock()


def acquire(address: Address) -> Session:
    """A session that was given back, if it still answers, or a new one: connecting costs more than a transaction."""
    return _answering(address, lambda session: session.run("SELECT 1"))


def begun(address: Address) -> Session:
    """The same with a transaction begun in it, which waits for nothing without end."""
    session = _answering(address, Session.begin)
    try:
        session.limit()
    except BaseException:
        session.close()
        raise
    return session


def _answering(address: Address, first: Callable[[Session], object]) -> Session:
    """One in which the first statement succeeds."""
    while True:
        with _idle_lock:
            waiting = _idle.get(os.getpid(), [])
            session = next((one for one in reversed(waiting) if one.address == address), None)
            if session is not None:
                waiting.remove(session)
        is_new = session is None
        session = session or Session(address)
        try:
            first(session)
        except PostgresError:
            session.close()
            if is_new:
                raise
        else:
            return session


def release(session: Session) -> None:
    """Keep a session, with no transaction open in it, for the next one who asks; the one that waited longest goes."""
    with _idle_lock:
        waiting = _idle.setdefault(os.getpid(), [])
        waiting.append(session)
        leaving = waiting.pop(0) if len(waiting) > _MOST_IDLE else None
    if leaving is not None:
        leaving.close()


@contextlib.contextmanager
def pooled(address: Address) -> Iterator[Session]:
    """A session that is given back, unless something went wrong while it was used."""
    session = acquire(address)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    release(session)


@contextlib.contextmanager
def bounded(address: Address) -> Iterator[Session]:
    """A transaction in a pooled session, for statements that have to wait for nothing without end."""
    session = begun(address)
    try:
        yield session
        session.run("COMMIT")
    except BaseException:
        session.close()
        raise
    release(session)


@contextlib.contextmanager
def reading(address: Address) -> Iterator[Session]:
    """The same for statements that only read: what was read stays true however the transaction ends."""
    session = begun(address)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    try:
        session.run("ROLLBACK")
    except PostgresError:
        session.close()
    else:
        release(session)


@atexit.register
def _close_idle() -> None:
    for session in _idle.get(os.getpid(), ()):
        session.close()


def _details(error: Any) -> Iterator[tuple[str, bytes]]:
    for key, value in error.details or ():
        yield (key.decode() if isinstance(key, bytes) else key), value


def quoted(identifier: str) -> str:
    """An identifier that is taken for nothing else, whatever is in it."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string constant, for the few statements that take no parameters."""
    is_escaped = "\\" in text
    return ("E" if is_escaped else "") + "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def columns_as_sql(names: Sequence[str]) -> str:
    """Quoted identifiers with commas between them."""
    return ", ".join(quoted(name) for name in names)
