"""A slot's rows on their way into a table, some megabytes at a time, and the refusal of what the table would change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.types as pt

from onceward.connections.mysql import MySQLError, Session, quoted
from onceward.sinks.arrow_types import is_bytes
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.mysql.encode import lines, plain_type
from onceward.sinks.mysql.errors import RowRefused, classify
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.rejected import misfit
from onceward.sinks.mysql.table import Table

# Enough that the round trip of a statement does not count, little enough that memory stays flat.
_BYTES_IN_A_LOAD = 4 << 20
_WARNINGS_SHOWN = 3


def load_statement(table: str, schema: pa.Schema) -> str:
    """The statement that reads rows of this schema; `table` as it stands in statements."""
    columns, settings = [], []
    for number, field in enumerate(schema):
        name, variable = quoted(field.name), f"@onceward_{number}"
        kind = plain_type(field.type)
        if is_bytes(kind):
            settings.append(f"{name} = UNHEX({variable})")
        elif pt.is_boolean(kind):
            # As a number: a BIT column would take the digit for the bits of its letter.
            settings.append(f"{name} = CAST({variable} AS UNSIGNED)")
        else:
            columns.append(name)
            continue
        columns.append(variable)
    return (
        f"LOAD DATA LOCAL INFILE 'onceward' INTO TABLE {table} CHARACTER SET utf8mb4 "
        r"FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' "
        f"({', '.join(columns)})" + (f" SET {', '.join(settings)}" if settings else "")
    )


class Loader:
    """Gathers batches of one slot. `into` is the table as it stands in statements, the target or one of its columns."""

    def __init__(self, into: str, options: Options, *, slot: int) -> None:
        self._into, self._options, self._slot = into, options, slot
        self._keys = {key.lower() for key in options.keys}
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

    def flush(self, session: Session, target: Table) -> None:
        """Load what waits."""
        self.loading(session, target)()

    def loading(self, session: Session, target: Table) -> Callable[[], None]:
        """What loads the batches that wait now, in whatever thread. Others may be added meanwhile.

        A row that the server would change, or leave out, refuses them all.
        """
        batches, first = self._waiting, self.rows + 1
        self._waiting, self._bytes = [], 0
        self.rows += sum(batch.num_rows for batch in batches)
        return partial(self._load, session, target, batches, first)

    def _load(self, session: Session, target: Table, batches: list[pa.RecordBatch], first: int) -> None:
        if not batches:
            return
        self._refuse_misfits(batches, target, first)
        rows = sum(batch.num_rows for batch in batches)
        texts = (text for batch in batches for text in lines(batch))
        stored, warnings = session.load(load_statement(self._into, batches[0].schema), texts)
        if stored != rows or warnings:
            raise self._refusal(session, first, rows, stored)

    def _refuse_misfits(self, batches: list[pa.RecordBatch], target: Table, first: int) -> None:
        """Before the statement begins: the server keeps what it got of a load that ends early."""
        for batch in batches:
            found = misfit(batch, target, non_finite=self._options.non_finite)
            if found is not None:
                said = f"column {found.column!r} has {found.value} in row {first + found.row}, and {found.why}"
                raise self._refused(said, found.hint)
            first += batch.num_rows

    def _refuse_missing_keys(self, batch: pa.RecordBatch) -> None:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name.lower() in self._keys and column.null_count:
                raise RowRefused(
                    f"a row of slot {self._slot} has no value in key column {field.name!r}: nothing tells which row "
                    "of the table it is",
                    hint="filter such rows out in the query",
                )

    def _refusal(self, session: Session, first: int, rows: int, stored: int) -> Exception:
        """`LOAD DATA LOCAL` makes warnings of errors, also of those for which no row is to blame."""
        said = session.execute(f"SHOW WARNINGS LIMIT {_WARNINGS_SHOWN}")
        for _, code, text in said:
            if classify(MySQLError(int(code), text)) is ErrorClass.TARGET:
                return MySQLError(int(code), text)
        reason = "; ".join(text for _, _, text in said) or f"it took {stored} of {rows} rows"
        return self._refused(reason, f"rows are counted from row {first} of the slot; fix the value in the query")

    def _refused(self, why: str, hint: str) -> RowRefused:
        where = f"table {self._options.table!r} does not take a row of slot {self._slot} as it is"
        return RowRefused(f"{where}: {why}", hint=f"{hint}, or fix the table")
