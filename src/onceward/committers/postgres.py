"""A committer that remembers each slot as a row in PostgreSQL."""

from __future__ import annotations

from onceward.connections.postgres import LOCK_TIMEOUT_S, Address, PostgresError, bounded, quoted, require_driver
from onceward.contracts import CheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import JobIdentity, SinkName

_CREATED_MEANWHILE = ("23505", "42P07")


class PostgresCheckpointCommitter(CheckpointCommitter):
    """One row per slot and epoch. The table is made when it is missing; `schema` names another than the first one."""

    def __init__(
        self,
        url: str,
        table: str = "onceward_checkpoints",
        *,
        schema: str | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        require_driver()
        if not table or "\0" in table or len(table.encode()) > 63:
            raise ConfigurationError(f"{table!r} cannot be a table", hint="choose another name, of at most 63 bytes")
        self.address = Address.parse(url, lock_timeout_s=lock_timeout_s)
        self._table = quoted(table) if schema is None else f"{quoted(schema)}.{quoted(table)}"
        self._scope: tuple[str, str, str] | None = None

    def __repr__(self) -> str:
        """Without the password."""
        return f"PostgresCheckpointCommitter({str(self.address)!r}, table={self._table!r})"

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """Make the table, and keep to this job, generation and sink."""
        self._scope = (job.name, job.generation, sink)
        with bounded(self.address) as session:
            if session.run("SELECT to_regclass($1) IS NOT NULL", self._table)[0][0]:
                return
            try:
                session.run(
                    f"CREATE TABLE IF NOT EXISTS {self._table} (job text NOT NULL, generation text NOT NULL, "
                    "sink text NOT NULL, epoch bigint NOT NULL, slot integer NOT NULL, "
                    "committed_at timestamptz NOT NULL DEFAULT now(), "
                    "PRIMARY KEY (job, sink, generation, epoch, slot))"
                )
            except PostgresError as error:
                # Two sessions that create a table at the same moment disturb each other even with IF NOT EXISTS.
                if error.sqlstate not in _CREATED_MEANWHILE:
                    raise

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """Whether the slot has its row."""
        with bounded(self.address) as session:
            found = session.run(
                f"SELECT 1 FROM {self._table} "
                "WHERE job = $1 AND generation = $2 AND sink = $3 AND epoch = $4 AND slot = $5",
                *self._opened(),
                checkpoint_id,
                slot,
            )
        return bool(found)

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """Add the slot's row; that it is there already is fine."""
        with bounded(self.address) as session:
            session.run(
                f"INSERT INTO {self._table} (job, generation, sink, epoch, slot) VALUES ($1, $2, $3, $4, $5) "
                "ON CONFLICT DO NOTHING",
                *self._opened(),
                checkpoint_id,
                slot,
            )

    def forget(self, below: int) -> None:
        """Remove the rows of settled epochs."""
        with bounded(self.address) as session:
            session.run(
                f"DELETE FROM {self._table} WHERE job = $1 AND generation = $2 AND sink = $3 AND epoch < $4",
                *self._opened(),
                below,
            )

    def _opened(self) -> tuple[str, str, str]:
        if self._scope is None:
            raise OncewardError("the checkpoint committer was used before it was opened", hint="call open first")
        return self._scope
