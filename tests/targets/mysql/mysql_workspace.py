"""What the tests of the MySQL sink stand on: a database, ways to make sinks for it, and ways to look into it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql

from onceward.contracts import Handle, SlotValues, TransactionalWriteAheadSink
from onceward.epoch import SinkAck
from onceward.identity import Generation, JobIdentity, JobName
from onceward.sinks import MySQLSink
from onceward.testing.conformance.base import AT
from onceward.testing.servers import MariaDBServer

Rows = list[dict[str, Any]]
JOB = JobIdentity(JobName("job"), Generation("aaaaaaaa"))


@dataclass
class MySQLWorkspace:
    server: MariaDBServer
    database: str
    expects_leftovers: bool = False
    _kept: Any = None

    def url(self, *, port: int | None = None, user: str = "root") -> str:
        return f"mysql://{user}@127.0.0.1:{port or self.server.port}/{self.database}"

    def sink(self, *, port: int | None = None, **options: Any) -> Any:
        """The sink that `MySQLSink` chooses."""
        options = {"table": "rows", "timeout_s": 30.0, **options}
        return MySQLSink(self.url(port=port), **options).choose()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with self._session().cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def rows(self, table: str = "`rows`", order: str = "") -> Rows:
        """As any reader would see them."""
        with self._session().cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {table} {order}")
            return list(cursor.fetchall())

    def _session(self) -> Any:
        """One for all questions of a test, and a new one after the server was down."""
        try:
            if self._kept is not None:
                self._kept.ping()
        except pymysql.MySQLError:
            self.close()
        if self._kept is None:
            self._kept = pymysql.connect(
                host="127.0.0.1",
                port=self.server.port,
                user="root",
                database=self.database,
                autocommit=True,
                ssl_disabled=True,
                init_command="SET time_zone = '+00:00'",
            )
        return self._kept

    def close(self) -> None:
        if self._kept is not None:
            with contextlib.suppress(pymysql.MySQLError):
                self._kept.close()
            self._kept = None

    def prepared(self) -> list[bytes]:
        names = [data for _, _, _, data in self.query("XA RECOVER")]
        return [name if isinstance(name, bytes) else name.encode() for name in names]


def send(sink: TransactionalWriteAheadSink, epoch: int, *batches: pa.RecordBatch, job: JobIdentity = JOB) -> bool:
    """One slot without a receipt."""
    rows = sum(batch.num_rows for batch in batches)
    return sink.send_transaction([SlotValues(0, rows, None, lambda: iter(batches))], job, epoch, AT)


def pre_committed(sink: Any, transaction: Any) -> Handle:
    """The handle as it stands in a manifest."""
    return SinkAck.of(sink.pre_commit(transaction), transaction.context).handle
