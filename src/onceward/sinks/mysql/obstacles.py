"""What in the table would make prepared XA transactions hold each other up.

InnoDB keeps the new rows of a prepared transaction locked, and where it has looked for a duplicate also the gap beside
them: the same key in another one waits for `innodb_lock_wait_timeout`, and fails. An AUTO_INCREMENT key does no harm,
its lock ends with the statement. Tables that refer to this one do so by a key of it, which is then unique or counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from onceward.connections.mysql import Session, literal
from onceward.sinks.mysql.table import Server
from onceward.sinks.obstacles import Obstacle

_GIVES_NONE_TWICE = re.compile(
    r"\(*(uuid_to_bin\()?(uuid|uuid_short|uuid_v4|uuid_v7|sys_guid)\(\)\)*|nextval\(.*", re.I
)


def obstacles(session: Session, database: str, table: str, server: Server) -> tuple[Obstacle, ...]:
    """One statement. A table that does not exist has none; of triggers the server tells those who may make some."""
    fold = str.lower if server.folds_table_names else str
    where = f"TABLE_SCHEMA = {literal(database)} AND {{0}}TABLE_NAME = {literal(table)}"
    event = f"EVENT_OBJECT_SCHEMA = {literal(database)} AND EVENT_OBJECT_TABLE = {literal(table)}"
    found = session.execute(
        "SELECT 'unique', s.TABLE_NAME, s.INDEX_NAME, s.COLUMN_NAME, c.EXTRA, c.COLUMN_DEFAULT "
        "FROM information_schema.STATISTICS AS s LEFT JOIN information_schema.COLUMNS AS c "
        f"ON c.{where.format('c.')} AND c.COLUMN_NAME = s.COLUMN_NAME "
        f"WHERE s.{where.format('s.')} AND s.NON_UNIQUE = 0 "
        "UNION ALL SELECT 'foreign key', TABLE_NAME, CONSTRAINT_NAME, NULL, NULL, NULL "
        "FROM information_schema.KEY_COLUMN_USAGE "
        f"WHERE {where.format('')} AND REFERENCED_TABLE_NAME IS NOT NULL "
        "UNION ALL SELECT 'trigger', EVENT_OBJECT_TABLE, TRIGGER_NAME, NULL, NULL, NULL "
        f"FROM information_schema.TRIGGERS WHERE {event} AND EVENT_MANIPULATION = 'INSERT'"
    )
    mine = [row for row in found if fold(str(row[1])) == fold(table)]
    return tuple(_found(mine))


def _found(rows: list[tuple[object, ...]]) -> Iterator[Obstacle]:
    indexes: dict[str, set[str]] = {}
    for kind, _, name, column, extra, default in rows:
        if kind == "unique":
            numbered = indexes.setdefault(str(name), set())
            if "auto_increment" in str(extra).lower() or _GIVES_NONE_TWICE.fullmatch(str(default)):
                numbered.add(str(column).lower())
    for name, numbered in indexes.items():
        yield Obstacle(f"index {name!r} is unique", frozenset(numbered))
    keys = dict.fromkeys(str(row[2]) for row in rows if row[0] == "foreign key")
    yield from (Obstacle(f"foreign key {name!r} locks the rows it refers to") for name in keys)
    yield from (Obstacle(f"trigger {row[2]!r} may lock anything") for row in rows if row[0] == "trigger")
