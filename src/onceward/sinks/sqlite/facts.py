"""What the sink relies on in the file: the statements that made the table, its unique indexes and its triggers.

Looked at in every transaction, which holds the write lock, so that nobody changes them before it ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

_NO_INDEX = "CREATE INDEX"


def facts_of(database: sqlite3.Connection, table: str) -> Mapping[str, str]:
    """One statement. An index that is not unique is nothing to rely on."""
    rows = database.execute(
        "SELECT type, name, coalesce(sql, 'made by the table') FROM sqlite_master "
        "WHERE tbl_name = ? COLLATE NOCASE ORDER BY type, name",
        (table,),
    )
    return {f"{kind} {name}": made for kind, name, made in rows if not made.upper().startswith(_NO_INDEX)}
