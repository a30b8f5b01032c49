"""A slot's rows on their way into a table, some megabytes at a time, and the refusal of what the table would change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from onceward.connections.mysql import Session
from onceward.errors import TargetRefused
from onceward.sinks.mysql.settings import Settings
from onceward.sinks.mysql.text import lines, load_statement

# Enough that the round trip of a statement does not count, little enough that memory stays flat.
_BYTES_IN_A_LOAD = 4 << 20
_WARNINGS_SHOWN = 3


class Loader:
    """Gathers batches of one slot. `into` is the table as it stands in statements."""

    def __init__(self, into: str, settings: Settings, *, slot: int) -> None:
        self._into, self._settings, self._slot = into, settings, slot
        self._keys = {key.lower() for key in settings.keys}
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0
        """Rows that were loaded, or are on their way."""

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take a batch; whether enough of them wait for a `flush`."""
        self._refuse_missing_keys(batch)
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        return self._bytes >= _BYTES_IN_A_LOAD

    def flush(self, session: Session) -> None:
        """Load what waits."""
        self.loading(session)()

    def loading(self, session: Session) -> Callable[[], None]:
        """What loads the batches that wait now, in whatever thread. Others may be added meanwhile.

        A row that the server would change, or leave out, refuses them all.
        """
        batches, first = self._waiting, self.rows + 1
        self._waiting, self._bytes = [], 0
        self.rows += sum(batch.num_rows for batch in batches)
        return partial(self._load, session, batches, first, self.rows - first + 1)

    def _load(self, session: Session, batches: list[pa.RecordBatch], first: int, rows: int) -> None:
        if not batches:
            return
        statement = load_statement(self._into, batches[0].schema)
        stored, warnings = session.load(statement, self._lines(batches, first))
        if stored != rows or warnings:
            raise self._refusal(session, first, rows, stored)

    def _lines(self, batches: list[pa.RecordBatch], first: int) -> Iterator[memoryview]:
        for batch in batches:
            yield from lines(batch, first_row=first, non_finite=self._settings.non_finite)
            first += batch.num_rows

    def _refuse_missing_keys(self, batch: pa.RecordBatch) -> None:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name.lower() in self._keys and column.null_count:
                raise TargetRefused(
                    f"a row of slot {self._slot} has no value in key column {field.name!r}: nothing tells which row "
                    "of the table it is",
                    hint="filter such rows out in the query",
                )

    def _refusal(self, session: Session, first: int, rows: int, stored: int) -> TargetRefused:
        said = [text for _, _, text in session.execute(f"SHOW WARNINGS LIMIT {_WARNINGS_SHOWN}")]
        reason = "; ".join(said) or f"it took {stored} of {rows} rows"
        return TargetRefused(
            f"table {self._settings.table!r} does not take a row of slot {self._slot} as it is: {reason}",
            hint=f"rows are counted from row {first} of the slot; mend the value in the query, or the table",
        )
