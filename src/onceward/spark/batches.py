"""How many rows Spark puts into one Arrow batch on their way to Python.

By default Spark bounds a batch by its bytes, and measures it anew after every row: half of what it spends on bringing
narrow rows to Python. Here the rows of one epoch tell how large those of the next will be, and batches are bounded by
their number. The first epoch of a run, of whose rows nothing is known, gets small batches.
"""

from __future__ import annotations

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
        self._is_ours: bool | None = None

    def set_for(self, session: SparkSession) -> None:
        """Before an epoch. The session is the stream's own copy, so nobody else is affected."""
        if self._is_ours is None:
            self._is_ours = session.conf.getAll.keys().isdisjoint((_BYTES, _ROWS))
        if self._is_ours:
            session.conf.set(_BYTES, _NOT_MEASURED)
            session.conf.set(_ROWS, str(self.rows))

    def learn(self, row_bytes: int) -> None:
        """After an epoch: so large were its rows on average, in the batch where they were largest."""
        self.rows = min(_MOST, max(1, _WANTED_BYTES // max(1, row_bytes)))
