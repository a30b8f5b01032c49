"""Standard output, for looking on.

Write-ahead: rows appear after their epoch is decided, on the driver. A terminal holds no receipt, so this is
at-least-once: after a crash a slot may be printed again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

import pyarrow as pa

from onceward.contracts import CheckpointCommitter, WriteAheadSink
from onceward.errors import ConfigurationError, TargetRefused
from onceward.sinks.json_text import json_lines, without_json_form


class StdoutSink(WriteAheadSink):
    """Prints each row as `epoch 7 {"id":1}`; with `limit`, no more than that many of a slot.

    Without a `committer` only whole epochs are remembered as sent. `name` is how staged work is found again, so keep
    it.
    """

    mechanism = "write-ahead log; standard output holds no receipt, so a crash may repeat a slot"

    def __init__(
        self, *, name: str = "stdout", committer: CheckpointCommitter | None = None, limit: int | None = None
    ) -> None:
        super().__init__(name=name)
        if limit is not None and limit < 0:
            raise ConfigurationError(f"limit is {limit}", hint="give 0 or more, or None", sink=self.name)
        self.committer = committer
        self.limit = limit

    def check(self, schema: pa.Schema, *, output_mode: str) -> None:
        """Refuse columns that have no form in JSON."""
        refused = without_json_form(schema)
        if refused is not None:
            raise TargetRefused(
                f"the rows cannot be printed, {refused}", hint="cast the column to text", sink=self.name
            )

    def send_values(self, values: Iterator[pa.RecordBatch], checkpoint_id: int, timestamp: datetime) -> bool:
        """Print the slot's rows, and be sure they are out before it counts as sent."""
        rows = 0
        for batch in values:
            lines = _lines(batch)
            shown = lines if self.limit is None else islice(lines, max(0, self.limit - rows))
            sys.stdout.write("".join(f"epoch {checkpoint_id} {line}\n" for line in shown))
            rows += batch.num_rows
        if self.limit is not None and rows > self.limit:
            sys.stdout.write(f"epoch {checkpoint_id} and {rows - self.limit} more\n")
        sys.stdout.flush()
        return True


def _lines(batch: pa.RecordBatch) -> Iterator[str]:
    for buffer in json_lines(pa.Table.from_batches([batch])):
        yield from buffer.to_pybytes().decode().split("\n")[:-1]
