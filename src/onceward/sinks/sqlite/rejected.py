"""Rows that the table does not take, found in a transaction that is rolled back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

import pyarrow as pa

from onceward.contracts import RejectedRow, SlotValues
from onceward.sinks.bisection import Refusal, rejected_rows
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.sqlite.encode import DoesNotFit
from onceward.sinks.sqlite.errors import classify


def find_rejected(
    database: sqlite3.Connection, slots: Sequence[SlotValues], write: Callable[[pa.RecordBatch], None]
) -> list[RejectedRow]:
    """Try everything, part by part, in the caller's transaction, which the caller rolls back."""

    def attempt(part: SlotValues) -> Refusal | None:
        database.execute("SAVEPOINT part")
        try:
            for batch in part.read():
                write(batch)
        except (sqlite3.Error, DoesNotFit) as error:
            meaning = classify(error)
            if meaning is ErrorClass.RETRY:
                raise
            database.execute("ROLLBACK TO part")
            return Refusal(str(error), is_certain=meaning is ErrorClass.ROW)
        finally:
            database.execute("RELEASE part")
        return None

    for batch in (batch for slot in slots[:1] for batch in slot.read()):
        # What fails even without rows is raised: no row is to blame then.
        write(batch.slice(0, 0))
    return rejected_rows(slots, attempt)
