"""For sinks whose target takes one row at a time."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from onceward.contracts.context import Json

if TYPE_CHECKING:
    import pyarrow as pa

Txn = TypeVar("Txn")


class RowWise(Generic[Txn]):
    """Put before `TwoPhaseCommitSink` in the bases: `invoke_row` then gets each row as a dictionary.

    Convenient and slow: every value becomes a Python object. Prefer `invoke` with whole batches where speed counts.
    """

    def invoke(self, transaction: Txn, batch: pa.RecordBatch) -> None:
        """Executor: hand the batch over row by row, in order."""
        for row in batch.to_pylist():
            self.invoke_row(transaction, row)

    @abstractmethod
    def invoke_row(self, transaction: Txn, row: dict[str, Json]) -> None:
        """Executor, once per row, in the order of the slot."""
