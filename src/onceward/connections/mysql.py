"""MySQL and MariaDB: where the server is, and a session with the settings that every statement of ours relies on."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from onceward.errors import ConfigurationError

_SCHEMES = ("mysql", "mariadb")
_EXAMPLE = "mysql://user:password@host:3306/database"
_URL_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")
_SWITCHES = ("ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")

# Strict, so that a value is stored as it is or not at all. NO_AUTO_VALUE_ON_ZERO keeps a zero in a column that counts.
_SQL_MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,"
    "NO_AUTO_VALUE_ON_ZERO"
)
# Well below every server's limit, and large enough that the number of system calls does not count.
_PACKET = 256 << 10

LOST_CONNECTION = frozenset({0, 2002, 2003, 2006, 2013, 2055, 1053, 1158, 1159, 1160, 1161, 1927})
LOCK_WAIT_TIMEOUT = 1205
TOOK_TOO_LONG = frozenset({1969, 3024})


@dataclass(frozen=True, slots=True)
class Address:
    """One database of one server. Picklable with its password, which executors need; printable without it."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> Self:
        """The address that `url` spells. What is wrong with it is told without repeating any of it."""
        try:
            parts = urlsplit(url)
            found_port = parts.port
        except (ValueError, AttributeError, TypeError):
            # The reason would quote parts of the URL, and they may be parts of the password.
            raise ConfigurationError("the URL of the server cannot be read", hint=f"write {_EXAMPLE}") from None
        database = unquote(parts.path[1:])
        if parts.scheme not in _SCHEMES:
            raise ConfigurationError(
                "the URL of the server does not begin with mysql:// or mariadb://",
                hint=f"write {_EXAMPLE}; characters such as @ / : in a password are written as %40 %2F %3A",
            )
        if "/" in parts.path[1:] or "@" in parts.path:
            # Most likely a password that is not escaped. Nothing of it may be repeated.
            raise ConfigurationError(
                "the URL of the server is ambiguous",
                hint=f"write {_EXAMPLE}; characters such as @ / : in a password are written as %40 %2F %3A",
            )
        if not parts.hostname or not database or "\0" in database:
            missing = "host" if not parts.hostname else "database"
            raise ConfigurationError(f"the URL of the server names no {missing}", hint=f"write {_EXAMPLE}")
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [key for key in given if key not in _URL_OPTIONS]
        if unknown:
            shown = repr(unknown[0]) if unknown[0].isidentifier() else "behind the ?"
            raise ConfigurationError(
                f"the URL of the server has an unknown option {shown}",
                hint=f"known are: {', '.join(_URL_OPTIONS)}",
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(unquote(parts.hostname), found_port or 3306, user, password, database, given)

    def __str__(self) -> str:
        """For people: all but the password and the options."""
        who = f"{self.user}@" if self.user else ""
        return f"mysql://{who}{self.host}:{self.port}/{self.database}"


class MySQLError(Exception):
    """What the server, or the way to it, answered instead of carrying a statement out."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (MySQL error {code})" if code else text)
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[MySQLError], tuple[int, str]]:
        """Spark brings it from the executors to the driver."""
        return type(self), (self.code, self.text)


def require_driver() -> ModuleType:
    """PyMySQL, which comes with an extra of this package."""
    try:
        import pymysql
    except ImportError:
        raise ConfigurationError(
            "the package PyMySQL is not installed", hint="run: pip install 'onceward[mysql]'"
        ) from None
    module: ModuleType = pymysql
    return module


class Session:
    """A connection in autocommit mode, READ COMMITTED, strict, in UTC. Use it with `with`: leaving closes it.

    READ COMMITTED, because a gap that a prepared transaction keeps locked would hold up every other slot.
    """

    def __init__(self, address: Address, *, timeout_s: float, lock_wait_s: int, idle_s: int | None = None) -> None:
        self._driver = require_driver()
        settings = [
            f"sql_mode = '{_SQL_MODE}'",
            "time_zone = '+00:00'",
            "sql_notes = 1",
            "max_error_count = 64",
            "sql_safe_updates = 0",
            "sql_select_limit = 18446744073709551615",
            # More than the longest key, so that sorting tells any two apart.
            "max_sort_length = 4096",
            # A server whose defaults pass over keys and constraints, or chain transactions, does not do so for us.
            "unique_checks = 1",
            "foreign_key_checks = 1",
            "completion_type = 0",
            # Of rows, and of tables.
            f"innodb_lock_wait_timeout = {lock_wait_s}",
            f"lock_wait_timeout = {lock_wait_s}",
            *([f"wait_timeout = {idle_s}"] if idle_s is not None else []),
        ]
        with self._translated():
            self._connection = _connection_class()(
                host=address.host,
                port=address.port,
                user=address.user or None,
                # As bytes: PyMySQL would take it for latin1, and its error would hold the password.
                password=address.password.encode(),
                database=address.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=min(timeout_s, 30.0),
                read_timeout=timeout_s,
                write_timeout=timeout_s,
                # MySQL, which has no such limit, takes it for a comment; there only the client gives up.
                init_command=f"SET SESSION {', '.join(settings)} "
                f"/*M!100106 , max_statement_time = {timeout_s}, check_constraint_checks = 1 */",
                # The server may ask for local data, but PyMySQL itself never opens a file that a server names.
                client_flag=self._driver.constants.CLIENT.LOCAL_FILES,
                local_infile=False,
                **_tls(address),
            )
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement as it stands; its rows, if it has any."""
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def load(self, statement: str, chunks: Iterable[memoryview]) -> tuple[int, int]:
        """Run a `LOAD DATA LOCAL` and give it these bytes; the rows it stored, and how many warnings it has.

        LOCAL turns errors into warnings, in strict mode too: the caller must not pass over them.
        """
        connection = self._connection
        with self._translated():
            connection._execute_command(self._driver.constants.COMMAND.COM_QUERY, statement)
            if not connection._read_packet().is_load_local_packet():
                raise MySQLError(0, "the server did not ask for the rows")
            try:
                for chunk in chunks:
                    for start in range(0, len(chunk), _PACKET):
                        connection.write_packet(bytes(chunk[start : start + _PACKET]))
            except BaseException:
                # An end of the data here would make the server keep what it has so far.
                connection._force_close()
                raise
            connection.write_packet(b"")
            stored = connection._read_query_result()
            return int(stored), int(connection._result.warning_count)

    def close(self) -> None:
        """Say good-bye. A transaction that is neither committed nor prepared is gone."""
        with contextlib.suppress(self._driver.MySQLError):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. Leaving by an exception closes the connection, which rolls back."""
        self.execute("START TRANSACTION")
        try:
            yield
        except BaseException:
            self.close()
            raise
        self.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The driver's errors are not for others to know."""
        try:
            yield
        except self._driver.MySQLError as error:
            code, *texts = error.args or (0,)
            is_code = isinstance(code, int)
            text = str(texts[0]) if is_code and texts and texts[0] else "" if is_code else str(code)
            raise MySQLError(code if is_code else 0, text or "the connection to the server is closed") from error


@cache
def _connection_class() -> type[Any]:
    """PyMySQL's connection, without its costliest habit: where TLS is merely tried, it reads all certificates of the
    machine for every connection, and then looks at none of them."""

    class Connection(require_driver().connections.Connection):  # type: ignore[misc]
        def _create_ssl_ctx(self, sslp: Any) -> Any:
            return super()._create_ssl_ctx(sslp) if sslp else _unverified()

    return Connection


@cache
def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def quoted(identifier: str) -> str:
    """An identifier that is taken for nothing else, whatever is in it."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(value: str | int) -> str:
    """A value inside a statement. Texts as bytes in hexadecimal: no setting of the server reads them otherwise."""
    if isinstance(value, int):
        return str(value)
    return f"_utf8mb4 X'{value.encode().hex()}'"


def _tls(address: Address) -> dict[str, str | bool]:
    """PyMySQL's arguments, from what stands behind the `?` of the URL."""
    return {
        key: value.lower() in ("1", "true", "yes", "on") if key in _SWITCHES else value
        for key, value in address.options.items()
    }
