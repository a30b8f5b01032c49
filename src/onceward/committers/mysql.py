"""A committer that remembers each slot as a row in MySQL or MariaDB."""

from __future__ import annotations

import hashlib
import math

from onceward.connections.mysql import Address, Session, literal, quoted, require_driver
from onceward.contracts import CheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import JobIdentity, SinkName

_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"


class MySQLCheckpointCommitter(CheckpointCommitter):
    """One row per slot and epoch, in the database that the URL names. The table is made when it is missing."""

    def __init__(
        self,
        url: str,
        table: str = "onceward_checkpoints",
        *,
        lock_timeout_s: float = 30.0,
        timeout_s: float = 60.0,
    ) -> None:
        require_driver()
        if not table or "\0" in table or len(table) > 64:
            raise ConfigurationError(f"{table!r} cannot be a table", hint="choose another name, of at most 64 letters")
        self.address = Address.parse(url)
        self.lock_timeout_s, self.timeout_s = lock_timeout_s, timeout_s
        self._table = quoted(table)
        self._scope: tuple[str, str, str] | None = None

    def __repr__(self) -> str:
        """Without the password."""
        return f"MySQLCheckpointCommitter({str(self.address)!r}, table={self._table!r})"

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """Make the table, and keep to this job, generation and sink."""
        self._scope = (job.name, job.generation, sink)
        with self._session() as session:
            # Keyed by a digest, because three names of this length do not fit into a key.
            session.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (slot_digest CHAR(64) {_TEXT} PRIMARY KEY, "
                f"job VARCHAR(200) {_TEXT}, generation VARCHAR(16) {_TEXT}, sink VARCHAR(200) {_TEXT}, "
                "epoch BIGINT NOT NULL, slot INT NOT NULL, committed_at DATETIME(6) NOT NULL) ENGINE=InnoDB"
            )

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """Whether the slot has its row."""
        with self._session() as session:
            key = literal(self._digest(slot, checkpoint_id))
            return bool(session.execute(f"SELECT 1 FROM {self._table} WHERE slot_digest = {key}"))

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """Add the slot's row; that it is there already is fine."""
        texts = (self._digest(slot, checkpoint_id), *self._opened())
        values = ", ".join([*(literal(text) for text in texts), str(checkpoint_id), str(slot)])
        with self._session() as session:
            session.execute(
                f"INSERT INTO {self._table} VALUES ({values}, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE slot = slot"
            )

    def forget(self, below: int) -> None:
        """Remove the rows of settled epochs."""
        job, generation, sink = map(literal, self._opened())
        with self._session() as session:
            session.execute(
                f"DELETE FROM {self._table} "
                f"WHERE job = {job} AND generation = {generation} AND sink = {sink} AND epoch < {below}"
            )

    def _digest(self, slot: int, epoch: int) -> str:
        # No name has a line break in it.
        return hashlib.sha256("\n".join([*self._opened(), str(epoch), str(slot)]).encode()).hexdigest()

    def _opened(self) -> tuple[str, str, str]:
        if self._scope is None:
            raise OncewardError("the checkpoint committer was used before it was opened", hint="call open first")
        return self._scope

    def _session(self) -> Session:
        return Session(self.address, timeout_s=self.timeout_s, lock_wait_s=math.ceil(self.lock_timeout_s))
