"""A committer that remembers each slot as a row in MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward.address import Address
from onceward.contracts import CheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import JobIdentity, SinkName

_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"


class MySQLCheckpointCommitter(CheckpointCommitter):
    """One row per slot and epoch, in the database that the URL names. The table is made when it is missing."""

    def __init__(self, url: str, table: str = "onceward_checkpoints", *, timeout_s: float = 60.0) -> None:
        if not table or "\0" in table or len(table) > 64:
            raise ConfigurationError(f"{table!r} cannot be a table", hint="choose another name")
        self._address = Address.parse(url, schemes=("mysql", "mariadb"), port=3306, options=("ssl_ca",))
        self.table = table
        self.timeout_s = timeout_s
        # PyMySQL puts parameters in with %.
        self._quoted = "`" + table.replace("`", "``").replace("%", "%%") + "`"
        self._scope: tuple[str, str, str] | None = None
        _driver()

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """Make the table, and keep to this job, generation and sink."""
        self._scope = (job.name, job.generation, sink)
        with self._cursor() as cursor:
            # By a digest, because three names of this length do not fit into a key.
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._quoted} (slot_digest BINARY(32) PRIMARY KEY, job VARCHAR(200) "
                f"{_TEXT}, generation VARCHAR(16) {_TEXT}, sink VARCHAR(200) {_TEXT}, epoch BIGINT NOT NULL, "
                "slot INT NOT NULL, committed_at DATETIME(6) NOT NULL) ENGINE=InnoDB",
                (),
            )

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """Whether the slot has its row."""
        with self._cursor() as cursor:
            cursor.execute(
                f"SELECT 1 FROM {self._quoted} WHERE slot_digest = UNHEX(SHA2(%s, 256))",
                (self._key(slot, checkpoint_id),),
            )
            return cursor.fetchone() is not None

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """Add the slot's row; that it is there already is fine."""
        with self._cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {self._quoted} VALUES (UNHEX(SHA2(%s, 256)), %s, %s, %s, %s, %s, UTC_TIMESTAMP(6)) "
                "ON DUPLICATE KEY UPDATE slot = slot",
                (self._key(slot, checkpoint_id), *self._opened(), checkpoint_id, slot),
            )

    def forget(self, below: int) -> None:
        """Remove the rows of settled epochs."""
        with self._cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {self._quoted} WHERE job = %s AND generation = %s AND sink = %s AND epoch < %s",
                (*self._opened(), below),
            )

    def _key(self, slot: int, epoch: int) -> str:
        return "\n".join([*self._opened(), str(epoch), str(slot)])

    def _opened(self) -> tuple[str, str, str]:
        if self._scope is None:
            raise OncewardError("the checkpoint committer was used before it was opened", hint="call open first")
        return self._scope

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """Each statement is a transaction of its own, and durable when it returns."""
        connection = _driver().connect(
            host=self._address.host,
            port=self._address.port,
            user=self._address.user or None,
            # As bytes: PyMySQL would take it for latin1, and its error would hold the password.
            password=self._address.password.encode(),
            database=self._address.database,
            charset="utf8mb4",
            sql_mode="STRICT_ALL_TABLES",
            autocommit=True,
            read_timeout=self.timeout_s,
            write_timeout=self.timeout_s,
            **self._address.options,
        )
        with connection, connection.cursor() as cursor:
            yield cursor


def _driver() -> Any:
    try:
        import pymysql
    except ImportError:
        raise ConfigurationError(
            "the MySQL committer needs the package PyMySQL", hint="run: pip install 'onceward[mysql]'"
        ) from None
    return pymysql
