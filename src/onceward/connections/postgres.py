"""A session with the server: one ADBC connection whose transactions are begun and ended by statements of our own.

ADBC's own transactions know nothing of PREPARE TRANSACTION; so the connection is left in autocommit and told BEGIN.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from onceward.errors import ConfigurationError

_SCHEMES = ("postgresql", "postgres")
# Receipts are read where they are written, never from a standby that is behind.
_DEFAULTS = {"application_name": "onceward", "connect_timeout": "10", "target_session_attrs": "read-write"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is. Prints without the password, and takes it out of any text."""

    url: str = field(repr=False)

    @classmethod
    def checked(cls, url: str) -> Self:
        """The address, if libpq can make sense of it."""
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise ConfigurationError(
                "a PostgreSQL address begins with postgresql://",
                hint="give postgresql://user@host:5432/database; the password may come from PGPASSWORD or ~/.pgpass",
            )
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        # `+` stands for a blank only on web pages; libpq takes it for itself.
        query = urlencode({**_DEFAULTS, **given}, quote_via=quote)
        return cls(urlunsplit(parts._replace(query=query)))

    def __str__(self) -> str:
        """Server and database."""
        parts = urlsplit(self.url)
        return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def without_secrets(self, text: str) -> str:
        """The text with the password, in either spelling, taken out."""
        parts = urlsplit(self.url)
        written = parts.netloc.rpartition("@")[0].partition(":")[2]
        asked = dict(parse_qsl(parts.query)).get("password", "")
        for secret in {written, unquote(written), asked, quote(asked)} - {""}:
            text = text.replace(secret, "***")
        return text


class PostgresError(Exception):
    """What the server said. `sqlstate` is its code, empty when the connection failed before it could say anything."""

    def __init__(self, message: str, sqlstate: str, where: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.where = where


def require_driver() -> None:
    """Refuse at once where the extra is not installed."""
    if importlib.util.find_spec("adbc_driver_postgresql") is None:
        raise ConfigurationError("the PostgreSQL driver is not installed", hint="run: pip install 'onceward[postgres]'")


class Session:
    """One connection. Not shared between threads."""

    def __init__(self, address: Address) -> None:
        from adbc_driver_postgresql import dbapi

        self.address = address
        with self._told_plainly():
            self._connection = dbapi.connect(address.url, autocommit=True)

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """One statement; its rows, if it has any."""
        with self._told_plainly(), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    def copy(self, table: str, schema: str | None, rows: pa.RecordBatchReader | pa.Table) -> int:
        """Append rows by binary COPY, column by column of the same name. Without a schema: a temporary table."""
        with self._told_plainly(), self._connection.cursor() as cursor:
            count: int = cursor.adbc_ingest(table, rows, mode="append", db_schema_name=schema, temporary=schema is None)
            return count

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits at the end, or rolls back."""
        self.run("BEGIN")
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
    def _told_plainly(self) -> Iterator[None]:
        from adbc_driver_manager import Error

        try:
            yield
        except Error as error:
            told = {str(key): value.decode(errors="replace") for key, value in _details(error)}
            said = told.get("PG_DIAG_MESSAGE_PRIMARY") or str(error).partition("[libpq] ")[2] or str(error)
            detail = told.get("PG_DIAG_MESSAGE_DETAIL")
            message = f"{said.strip()}{f' ({detail})' if detail else ''}"
            where = told.get("PG_DIAG_CONTEXT", "")
            raise PostgresError(
                self.address.without_secrets(message), error.sqlstate or "", self.address.without_secrets(where)
            ) from None


_MOST_IDLE = 4
_idle: dict[tuple[int, str], list[Session]] = {}
_idle_lock = threading.Lock()


def take(address: Address) -> Session:
    """A session that was given back, if it still answers, or a new one: connecting costs more than a transaction."""
    while True:
        with _idle_lock:
            waiting = _idle.get((os.getpid(), address.url))
            session = waiting.pop() if waiting else None
        if session is None:
            return Session(address)
        try:
            session.run("SELECT 1")
        except PostgresError:
            session.close()
        else:
            return session


def give_back(session: Session) -> None:
    """Keep a session, with no transaction open in it, for the next one who asks."""
    with _idle_lock:
        waiting = _idle.setdefault((os.getpid(), session.address.url), [])
        if len(waiting) < _MOST_IDLE:
            waiting.append(session)
            return
    session.close()


@contextlib.contextmanager
def borrowed(address: Address) -> Iterator[Session]:
    """A session that is given back, unless something went wrong while it was used."""
    session = take(address)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    give_back(session)


@atexit.register
def _close_idle() -> None:
    # A process that was forked from this one has the same list, but the sessions in it are not its own.
    for (process, _), waiting in _idle.items():
        for session in waiting if process == os.getpid() else ():
            session.close()


def _details(error: Any) -> Iterator[tuple[str, bytes]]:
    for key, value in error.details or ():
        yield (key.decode() if isinstance(key, bytes) else key), value


def quoted(identifier: str) -> str:
    """An identifier that is taken for nothing else, whatever is in it."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string constant, for the few statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def listed(names: Sequence[str]) -> str:
    """Quoted identifiers with commas between them."""
    return ", ".join(quoted(name) for name in names)
