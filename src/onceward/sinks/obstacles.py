"""What in a table makes a prepared insert hold up another: then rows are not staged in prepared transactions.

A prepared transaction keeps its locks until its epoch is published. Its rows alone disturb nobody. But whoever adds a
key that stands in a unique index under an unfinished transaction waits for its end: the same key in two slots of an
epoch, or in a second attempt of a slot, waits for a decision that waits for it, and no server sees such a circle. A
foreign key locks rows of the other table, and what a trigger does nobody knows.

The receipts have a unique index too; their key holds the name of the transaction, so no two are ever the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onceward.errors import TargetRefused

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One of them. As long as the stream leaves one of the `numbered` columns to the server, which gives no two rows
    the same value there, it is none."""

    detail: str
    numbered: frozenset[str] = frozenset()


def standing(obstacles: Iterable[Obstacle], filled: Iterable[str] = ()) -> str | None:
    """What stands against rows that bring values for these columns; None when nothing does."""
    given = frozenset(filled)
    details = [one.detail for one in obstacles if one.numbered <= given]
    more = [f"{len(details) - _SHOWN} more"] if len(details) > _SHOWN else []
    return "; ".join(details[:_SHOWN] + more) or None


def refusal(table: str, why: str, *, sink: str) -> TargetRefused:
    """For whoever asked for prepared transactions all the same."""
    return TargetRefused(
        f"appends to {table} cannot wait in prepared transactions: {why}",
        hint="leave two_phase out or say two_phase=False, and they go through the write-ahead log",
        sink=sink,
    )
