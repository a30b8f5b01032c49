"""What the user asked for, checked. Nothing here opens the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from onceward.connections.sqlite import SQLiteFile
from onceward.errors import ConfigurationError
from onceward.sinks.names import as_names, wrong_keys
from onceward.sinks.sqlite.receipts import RECEIPTS, WATERMARKS
from onceward.sinks.sqlite.table import folded

MODES = ("append", "upsert")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a `SQLiteSink`, checked."""

    file: SQLiteFile
    table: str
    mode: str
    keys: tuple[str, ...]
    create_table: bool

    @classmethod
    def parse(
        cls,
        path: str | os.PathLike[str],
        *,
        table: str,
        mode: str,
        keys: str | Sequence[str],
        create_table: bool,
        lock_timeout_s: float,
    ) -> Options:
        """The settings, or a `ConfigurationError` that says which one is wrong."""
        file = SQLiteFile.parse(path, lock_timeout_s)
        options = cls(file, table, mode, as_names(keys), create_table)
        wrong = options._wrong()
        if wrong is not None:
            raise ConfigurationError(wrong[0], hint=wrong[1])
        return options

    def _wrong(self) -> tuple[str, str] | None:
        if not self.table or "\0" in self.table:
            return f"{self.table!r} cannot be a table", "name the table that takes the rows"
        if folded(self.table) in (RECEIPTS, WATERMARKS) or folded(self.table).startswith("sqlite_"):
            return f"table {self.table!r} is reserved", "choose another name"
        if self.mode not in MODES:
            return f"unknown mode {self.mode!r}", "choose append or upsert"
        return wrong_keys(self.keys, self.mode, folded=folded)
