"""Rows that the table does not take, found in a transaction that is rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from onceward.connections.postgres import PostgresError, Session
from onceward.contracts import RejectedRow, SlotValues
from onceward.sinks.bisection import Refusal, rejected_rows
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.postgres.encode import DoesNotFit
from onceward.sinks.postgres.errors import classify

_POINT = "onceward_part"


def find_rejected(
    session: Session, slots: Sequence[SlotValues], write: Callable[[SlotValues], None]
) -> list[RejectedRow]:
    """Try everything, part by part, in the caller's transaction; constraints that wait for its end are checked at once.

    The caller rolls it back. What fails even without rows is raised: no row is to blame then.
    """

    def attempt(part: SlotValues) -> Refusal | None:
        session.run(f"SAVEPOINT {_POINT}")
        try:
            write(part)
        except (PostgresError, DoesNotFit) as error:
            meaning = classify(error)
            if meaning is ErrorClass.RETRY:
                raise
            session.run(f"ROLLBACK TO SAVEPOINT {_POINT}")
            return Refusal(str(error), is_certain=meaning is ErrorClass.ROW)
        session.run(f"RELEASE SAVEPOINT {_POINT}")
        return None

    session.run("SET CONSTRAINTS ALL IMMEDIATE")
    first = next((slot for slot in slots if slot.rows), None)
    if first is not None:
        nothing = [next(iter(first.read())).slice(0, 0)]
        write(replace(first, rows=0, read=partial(iter, nothing)))
    return rejected_rows(slots, attempt)
