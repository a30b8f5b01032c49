"""What in the table would make prepared XA transactions hold each other up.

InnoDB keeps the new rows of a prepared transaction locked, and where it has looked for a duplicate also the gap beside
them: the same key in another one waits for `innodb_lock_wait_timeout`, and fails. An AUTO_INCREMENT key does no harm,
its lock ends with the statement. Tables that refer to this one do so by a key of it, which is then unique or counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from onceward.sinks.mysql.table import Column, Table
from onceward.sinks.obstacles import Obstacle

_GIVES_NONE_TWICE = re.compile(
    r"\(*(uuid_to_bin\()?(uuid|uuid_short|uuid_v4|uuid_v7|sys_guid)\(\)\)*|nextval\(.*", re.I
)


def obstacles(table: Table) -> Iterator[Obstacle]:
    """All of them. Of triggers the server tells those who may make some."""
    for index in table.unique:
        numbered = {name for name in index.whole if name in table.columns and _is_numbered(table.columns[name])}
        yield Obstacle(f"index {index.name!r} is unique", frozenset(numbered))
    for name in table.foreign_keys:
        yield Obstacle(f"foreign key {name!r} locks the rows it refers to")
    for trigger in table.triggers:
        if trigger.event == "INSERT":
            yield Obstacle(f"trigger {trigger.name!r} may lock anything")


def _is_numbered(column: Column) -> bool:
    return column.counts or _GIVES_NONE_TWICE.fullmatch(str(column.default)) is not None
