"""What the sink relies on in the file: the statements that made the table, its unique indexes and its triggers.

Looked at in every transaction, which holds the write lock, so that nobody changes them before it ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from onceward.contracts import refuse_change
from onceward.sinks.sqlite.table import describe

_NO_INDEX = "CREATE INDEX"


class TargetFacts:
    """One sink's."""

    def __init__(self, table: str) -> None:
        self._table = table
        self.facts: Mapping[str, str] | None = None
        self.has_loose_keys: bool | None = None
        """Whether a unique index takes texts for equal that differ; None before the first rows."""

    def take(self, database: sqlite3.Connection) -> None:
        """At a start, when the table has been checked and fits: from here on it stays as it is."""
        self.facts = facts_of(database, self._table)

    def confirm(self, database: sqlite3.Connection, *, epoch: int) -> None:
        """Inside a transaction, before it writes rows: the table is as it was at the start."""
        now = facts_of(database, self._table)
        if self.facts is None:
            self.facts = now
        if self.has_loose_keys is None:
            found = describe(database, self._table)
            self.has_loose_keys = found is not None and found.ignores_some
        refuse_change(self.facts, now, epoch=epoch)


def facts_of(database: sqlite3.Connection, table: str) -> Mapping[str, str]:
    """One statement. An index that is not unique is nothing to rely on."""
    rows = database.execute(
        "SELECT type, name, coalesce(sql, 'made by the table') FROM sqlite_master "
        "WHERE tbl_name = ? COLLATE NOCASE ORDER BY type, name",
        (table,),
    )
    return {f"{kind} {name}": made for kind, name, made in rows if not made.upper().startswith(_NO_INDEX)}
