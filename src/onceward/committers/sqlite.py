"""A committer that remembers each slot as a row in SQLite."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import UTC, datetime

from onceward.connections.sqlite import SQLiteFile
from onceward.contracts import CheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import JobIdentity, SinkName


class SQLiteCheckpointCommitter(CheckpointCommitter):
    """One row per slot and epoch. The table is made when it is missing."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str = "onceward_checkpoints",
        *,
        lock_timeout_s: float = 30.0,
    ) -> None:
        self.file = SQLiteFile.parse(path, lock_timeout_s)
        if not table or "\0" in table or table.lower().startswith("sqlite_"):
            raise ConfigurationError(f"{table!r} cannot be a table", hint="choose another name")
        self.table = table
        self._quoted = '"' + table.replace('"', '""') + '"'
        self._scope: tuple[str, str, str] | None = None

    def open(self, job: JobIdentity, sink: SinkName) -> None:
        """Make the table, and keep to this job, generation and sink."""
        self._scope = (job.name, job.generation, sink)
        with self.file.transaction() as database:
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {self._quoted} (job TEXT NOT NULL, generation TEXT NOT NULL, "
                "sink TEXT NOT NULL, epoch INTEGER NOT NULL, slot INTEGER NOT NULL, committed_at TEXT NOT NULL, "
                "PRIMARY KEY (job, generation, sink, epoch, slot)) WITHOUT ROWID"
            )

    def is_checkpoint_committed(self, slot: int, checkpoint_id: int) -> bool:
        """Whether the slot has its row."""
        with closing(self.file.connect()) as database:
            found = database.execute(
                f"SELECT 1 FROM {self._quoted} "
                "WHERE job = ? AND generation = ? AND sink = ? AND epoch = ? AND slot = ?",
                (*self._opened(), checkpoint_id, slot),
            ).fetchone()
        return found is not None

    def commit_checkpoint(self, slot: int, checkpoint_id: int) -> None:
        """Add the slot's row; that it is there already is fine."""
        now = datetime.now(UTC).isoformat()
        with self.file.transaction() as database:
            database.execute(
                f"INSERT INTO {self._quoted} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (*self._opened(), checkpoint_id, slot, now),
            )

    def forget(self, below: int) -> None:
        """Remove the rows of settled epochs."""
        with self.file.transaction() as database:
            database.execute(
                f"DELETE FROM {self._quoted} WHERE job = ? AND generation = ? AND sink = ? AND epoch < ?",
                (*self._opened(), below),
            )

    def _opened(self) -> tuple[str, str, str]:
        if self._scope is None:
            raise OncewardError("the checkpoint committer was used before it was opened", hint="call open first")
        return self._scope
