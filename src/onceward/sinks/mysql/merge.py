"""An upsert as statements: the rows of an epoch, put in order in a temporary table, and then into the target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onceward.connections.mysql import quoted
from onceward.sinks.mysql.settings import Settings
from onceward.sinks.mysql.table import columns_as_sql

ROW = "onceward_row"
"""Counts the rows of the temporary table in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Merge:
    """For the stream's `columns`. What makes two keys one is the target's own collation, in every statement."""

    settings: Settings
    columns: tuple[str, ...]

    def create(self) -> str:
        """The temporary table. Its columns are those of the target; it commits nothing and ends with the session."""
        deleted = [f", {quoted(name)} BOOLEAN" for name in self.columns if not self.settings.is_stored(name)]
        return (
            f"CREATE TEMPORARY TABLE {self.settings.incoming} "
            f"({quoted(ROW)} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY{''.join(deleted)}) ENGINE=InnoDB "
            f"SELECT {columns_as_sql(self._stored)} FROM {self.settings.target} WHERE FALSE"
        )

    def apply(self) -> Iterator[str]:
        """Statements that bring the target up to date, to be run in this order."""
        if self.settings.deleted is None:
            # Row after row in their order, so that of several rows with one key the last one stays.
            yield self._insert(f"{self.settings.incoming} AS incoming", "TRUE", self._order("incoming"))
            return
        flag = f"incoming.{quoted(self.settings.deleted)}"
        matching = " AND ".join(f"target.{quoted(key)} = incoming.{quoted(key)}" for key in self.settings.keys)
        yield (
            f"DELETE target FROM {self.settings.target} AS target JOIN {self._newest()} AS incoming ON {matching} "
            f"WHERE incoming.{quoted(_RANK)} = 1 AND {flag}"
        )
        condition = f"incoming.{quoted(_RANK)} = 1 AND NOT COALESCE({flag}, FALSE)"
        yield self._insert(f"{self._newest()} AS incoming", condition, self._order("incoming"))

    @property
    def _stored(self) -> list[str]:
        return [name for name in self.columns if self.settings.is_stored(name)]

    def _insert(self, source: str, condition: str, order: str) -> str:
        stored = self._stored
        keys = {key.lower() for key in self.settings.keys}
        # A row of nothing but keys has nothing to change, and the statement wants something.
        others = [name for name in stored if name.lower() not in keys] or stored[:1]
        changes = ", ".join(f"{quoted(name)} = VALUES({quoted(name)})" for name in others)
        values = ", ".join(f"incoming.{quoted(name)}" for name in stored)
        return (
            f"INSERT INTO {self.settings.target} ({columns_as_sql(stored)}) SELECT {values} FROM {source} "
            f"WHERE {condition} ORDER BY {order} ON DUPLICATE KEY UPDATE {changes}"
        )

    def _order(self, table: str, direction: str = "") -> str:
        wanted = [self.settings.order_by] if self.settings.order_by is not None else []
        return ", ".join(f"{table}.{quoted(name)}{direction}" for name in [*wanted, ROW])

    def _newest(self) -> str:
        """The rows with their rank among those of one key; the last has rank 1. (A temporary table may stand only once
        in a statement of MySQL, so that a window function does what a join would.)"""
        keys = ", ".join(f"part.{quoted(key)}" for key in self.settings.keys)
        rank = f"ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {self._order('part', ' DESC')})"
        return f"(SELECT part.*, {rank} AS {quoted(_RANK)} FROM {self.settings.incoming} AS part)"


_RANK = "onceward_rank"
