"""Rows that the table does not take, found in a transaction that is rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceward.connections.postgres import PostgresError, Session
from onceward.contracts import RejectedRow, SlotValues
from onceward.sinks.bisection import Refusal, rejected_rows

# Data exceptions and violated constraints. Whatever else goes wrong is not the fault of a row.
_CLASSES = ("22", "23")
_POINT = "onceward_part"


def is_rejection(error: Exception) -> bool:
    """Whether a row is to blame, so that trying again will not help."""
    return isinstance(error, ValueError) or (isinstance(error, PostgresError) and error.sqlstate[:2] in _CLASSES)


def find_rejected(
    session: Session, slots: Sequence[SlotValues], write: Callable[[SlotValues], None]
) -> list[RejectedRow]:
    """Try everything, part by part, in the caller's transaction; constraints that wait for its end are checked at once.

    The caller rolls it back.
    """

    def attempt(part: SlotValues) -> Refusal | None:
        session.run(f"SAVEPOINT {_POINT}")
        try:
            write(part)
        except (PostgresError, ValueError) as error:
            if not is_rejection(error):
                raise
            session.run(f"ROLLBACK TO SAVEPOINT {_POINT}")
            return Refusal(str(error))
        session.run(f"RELEASE SAVEPOINT {_POINT}")
        return None

    session.run("SET CONSTRAINTS ALL IMMEDIATE")
    return rejected_rows(slots, attempt)
