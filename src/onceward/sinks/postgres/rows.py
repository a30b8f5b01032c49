"""Rows on their way into a table: gathered until a COPY pays, converted column by column, memory bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from onceward.connections.postgres import Session
from onceward.sinks.postgres.encode import Encoder, encoders
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.table import Table

_BYTES_AT_ONCE = 8 << 20
_ROWS_AT_ONCE = 10_000


def converted(batch: pa.RecordBatch, columns: list[Encoder]) -> pa.RecordBatch:
    """The batch as COPY wants it."""
    return pa.RecordBatch.from_arrays([encoder(batch) for encoder in columns], names=[one.column for one in columns])


class RowCopier:
    """Takes batches as they come and sends them in pieces worth a COPY each, into the table that `confirmed` gives."""

    def __init__(self, session: Session, options: Options, confirmed: Callable[[], Table]) -> None:
        self._session = session
        self._options = options
        self._confirmed = confirmed
        self._table: Table | None = None
        self._columns: list[Encoder] = []
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Convert and keep it, or send it with those before it."""
        if self._table is None:
            self._table = self._confirmed()
            self._columns = encoders(self._table, self._options, batch.schema)
        ready = converted(batch, self._columns)
        self._waiting.append(ready)
        self._bytes += ready.nbytes
        self.count += batch.num_rows
        if self._bytes >= _BYTES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send what is kept."""
        if not self._waiting or self._table is None:
            return
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self._session.copy(self._table.name, self._table.schema, pa.Table.from_batches(waiting))


def all_converted(table: Table, options: Options, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of one stream as COPY wants them."""
    columns: list[Encoder] = []
    for batch in batches:
        columns = columns or encoders(table, options, batch.schema)
        yield converted(batch, columns)


def in_order_of(keys: list[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sorted by these keys, some megabytes at a time: an index takes neighbours in half the time of strangers."""
    for piece in _pieces(batches):
        yield from _sorted(keys, piece).to_batches(max_chunksize=_ROWS_AT_ONCE)


def _sorted(keys: list[str], piece: pa.Table) -> pa.Table:
    """If Arrow can sort by them."""
    if not piece.num_rows:
        return piece
    first, last = piece[keys[0]].slice(0, piece.num_rows - 1), piece[keys[0]].slice(1)
    try:
        if len(keys) == 1 and pc.all(pc.less_equal(first, last)).as_py():
            return piece
        return piece.take(pc.sort_indices(piece, sort_keys=[(key, "ascending") for key in keys]))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return piece


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
