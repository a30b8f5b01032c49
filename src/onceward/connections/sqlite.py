"""An SQLite file: a connection that never loses what it confirmed, and a transaction that holds the write lock."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from onceward.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class SQLiteFile:
    """Where the database is, and how long to wait while another process has it locked."""

    path: Path
    lock_timeout_s: float

    @classmethod
    def parse(cls, path: str | os.PathLike[str], lock_timeout_s: float) -> Self:
        """The file, if it is one that can be shared by several runs."""
        text = os.fspath(path)
        if not text or text == ":memory:" or text.startswith("file:") or "://" in text or "\0" in text:
            raise ConfigurationError(f"{text!r} is not the path of an SQLite file", hint="give a plain path")
        if lock_timeout_s < 0:
            raise ConfigurationError(f"lock_timeout_s is {lock_timeout_s}", hint="give seconds, or 0 for no waiting")
        return cls(Path(os.path.abspath(os.path.expanduser(text))), lock_timeout_s)

    def connect(self) -> sqlite3.Connection:
        """A connection whose transactions are begun and ended by statements."""
        database = sqlite3.connect(self.path, timeout=self.lock_timeout_s, isolation_level=None)
        # EXTRA also forces the removal of the journal to the disk: a commit that was reported is never undone.
        database.execute("PRAGMA synchronous = EXTRA")
        return database

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start, so what it reads stays true until it commits."""
        with closing(self.connect()) as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                database.rollback()
                raise
