"""How many rows Spark puts into one Arrow batch on their way to Python.

By default Spark bounds a batch by its bytes, and measures it anew after every row: half of what it spends on bringing
narrow rows to Python. Here the rows of one epoch tell how large those of the next will be, and batches are bounded by
their number. The first epoch of a run, of whose rows nothing is known, gets small batches, which are put together again
on the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NOT_MEASURED = str(2**31 - 1)
_AT_FIRST = 256
_MOST = 10_000
_WANTED_BYTES = 8 << 20


class BatchSize:
    """Of one run. Whoever has set either of Spark's two settings keeps what they said."""

    def __init__(self) -> None:
        self.rows = _AT_FIRST
        self.is_ours: bool | None = None

    def set_for(self, session: SparkSession) -> None:
        """Before an epoch. The session is the stream's own copy, so nobody else is affected."""
        if self.is_ours is None:
            self.is_ours = session.conf.getAll.keys().isdisjoint((_BYTES, _ROWS))
        if self.is_ours:
            session.conf.set(_BYTES, _NOT_MEASURED)
            session.conf.set(_ROWS, str(self.rows))

    def learn(self, row_bytes: int) -> None:
        """After an epoch: so large were its rows on average, in the batch where they were largest."""
        self.rows = min(_MOST, max(1, _WANTED_BYTES // max(1, row_bytes)))


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, where they are small: to a sink such rows cost several times as much."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > _MOST or size + batch.nbytes > _WANTED_BYTES):
            yield from _together(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    yield from _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()
