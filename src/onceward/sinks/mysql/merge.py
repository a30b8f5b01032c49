"""An upsert as statements: the rows of an epoch, put in order in a temporary table, and then into the target.

ON DUPLICATE KEY UPDATE alone changes whatever row it meets in *any* unique index: one over a part of a column, one that
came while the job ran, one whose collation takes two keys for the same. Here a row changes the one that has exactly its
key, or is inserted; where the table then knows better, it says so, and no row is lost under another one.

Others may write meanwhile. A row that was found is locked in the same moment, so that nobody removes it before it is
changed. One that was not found is inserted without another look: if someone has added its key, the index says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onceward.connections.mysql import quoted
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.table import Table, columns_as_sql


@dataclass(frozen=True, slots=True)
class Merge:
    """For the stream's `columns`, into a `table`."""

    options: Options
    columns: tuple[str, ...]
    table: Table

    def create(self) -> str:
        """The temporary table. Its columns are those of the target; it commits nothing and ends with the session."""
        deleted = [f", {quoted(name)} BOOLEAN" for name in self.columns if not self.options.is_stored(name)]
        return (
            f"CREATE TEMPORARY TABLE {self.options.incoming} "
            f"({self._row} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY{''.join(deleted)}) ENGINE=InnoDB "
            f"SELECT {columns_as_sql(self._stored)} FROM {self.options.target} WHERE FALSE"
        )

    def apply(self) -> Iterator[str]:
        """Statements that bring the target up to date, to be run in this order."""
        yield (
            f"CREATE TEMPORARY TABLE {self.options.latest} "
            "(number BIGINT UNSIGNED PRIMARY KEY, is_there BOOLEAN) ENGINE=InnoDB"
        )
        yield self._find_latest()
        latest = (
            f"{self.options.latest} AS latest STRAIGHT_JOIN {self.options.incoming} AS incoming "
            f"ON incoming.{self._row} = latest.number"
        )
        stays = "TRUE"
        if self.options.deleted is not None:
            flag = f"incoming.{quoted(self.options.deleted)}"
            stays = f"NOT COALESCE({flag}, FALSE)"
            yield f"DELETE target FROM {latest} STRAIGHT_JOIN {self._target()} WHERE latest.is_there AND {flag}"
        keys = {key.lower() for key in self.options.keys}
        others = [name for name in self._stored if name.lower() not in keys]
        if others:
            yield self._change(latest, stays, others)
        yield f"{self._insert()} FROM {latest} WHERE NOT latest.is_there AND {stays} ORDER BY latest.number"

    def _change(self, latest: str, stays: str, names: list[str]) -> str:
        """The rows that were found. Where the key's index is the only unique one, ON DUPLICATE KEY can meet nothing
        else, and takes half the time: an UPDATE of a joined table first writes down all that it will do."""
        if len(self.table.unique) == 1:
            changes = ", ".join(f"{quoted(name)} = VALUES({quoted(name)})" for name in names)
            return f"{self._insert()} FROM {latest} WHERE latest.is_there AND {stays} ON DUPLICATE KEY UPDATE {changes}"
        changes = ", ".join(f"target.{quoted(name)} = incoming.{quoted(name)}" for name in names)
        return f"UPDATE {latest} STRAIGHT_JOIN {self._target()} SET {changes} WHERE latest.is_there AND {stays}"

    def _insert(self) -> str:
        values = ", ".join(f"incoming.{quoted(name)}" for name in self._stored)
        return f"INSERT INTO {self.options.target} ({columns_as_sql(self._stored)}) SELECT {values}"

    def _find_latest(self) -> str:
        """Of the rows with one key the last, and whether the target has its key, which is then locked.

        MySQL lets a temporary table stand only once in a statement, so a window function does what a join would; and
        it locks no row for a table that is just being created, so that was made before.
        """
        apart = ", ".join(_exact(f"part.{quoted(key)}") if self._needs_cast(key) else quoted(key) for key in self._keys)
        order = f"{self._order()}part.{self._row} DESC"
        keys = ", ".join(f"part.{quoted(key)}" for key in self._keys)
        rank = f"ROW_NUMBER() OVER (PARTITION BY {apart} ORDER BY {order}) AS {self._rank}"
        ranked = f"SELECT part.{self._row}, {keys}, {rank} FROM {self.options.incoming} AS part"
        found = f"incoming.{self._row} AS number, target.{quoted(self._keys[0])} IS NOT NULL AS is_there"
        return (
            f"INSERT INTO {self.options.latest} SELECT {found} FROM ({ranked}) AS incoming "
            f"LEFT JOIN {self._target()}{self._exactly()} WHERE incoming.{self._rank} = 1 FOR UPDATE"
        )

    def _target(self) -> str:
        """Found by the key's own index, so that no other rows are locked."""
        names = frozenset(key.lower() for key in self._keys)
        index = next(quoted(index.name) for index in self.table.unique if index.is_exactly(names))
        matching = [f"target.{quoted(key)} = incoming.{quoted(key)}" for key in self._keys]
        return f"{self.options.target} AS target FORCE INDEX ({index}) ON {' AND '.join(matching)}"

    def _exactly(self) -> str:
        """To the letter: what is one key to a collation may be two to the stream. A row that was found this way is the
        only one that the index has for its key, so the statements after it need not look again."""
        texts = [quoted(key) for key in self._keys if self._needs_cast(key)]
        return "".join(f" AND {_exact(f'target.{key}')} = {_exact(f'incoming.{key}')}" for key in texts)

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.options.keys

    @property
    def _stored(self) -> list[str]:
        return [name for name in self.columns if self.options.is_stored(name)]

    @property
    def _row(self) -> str:
        """Counts the rows of the temporary table in the order in which they came."""
        return quoted(self._free("onceward_row"))

    @property
    def _rank(self) -> str:
        return quoted(self._free("onceward_rank"))

    def _free(self, name: str) -> str:
        """A name that no column of the stream has."""
        while name in {column.lower() for column in self.columns}:
            name += "_"
        return name

    def _order(self) -> str:
        """Texts as Spark orders them, by the bytes of UTF-8, and not by a collation or the places in an ENUM."""
        name = self.options.order_by
        if name is None:
            return ""
        column = f"part.{quoted(name)}"
        return f"{_exact(f'CONVERT({column} USING utf8mb4)') if self._is_text(name) else column} DESC, "

    def _needs_cast(self, key: str) -> bool:
        return self.table.columns[key.lower()].collation not in (None, *_EXACT)

    def _is_text(self, column: str) -> bool:
        return self.table.columns[column.lower()].collation is not None


_EXACT = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")


def _exact(text: str) -> str:
    return f"CAST({text} AS BINARY)"
