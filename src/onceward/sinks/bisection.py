"""Which rows a target does not take: the halves of a batch are tried until single rows are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from onceward.contracts import RejectedRow, SlotValues

_MOST_UNEXPLAINED = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the target does not take some rows. Not `is_certain`: the error may have another cause than the rows."""

    why: str
    is_certain: bool = True


class NotTheRows(Exception):
    """Too many single rows fail by an error that nobody knows: the target is to blame, not they."""


Attempt = Callable[[SlotValues], Refusal | None]
"""Writes these rows beside those that were taken before, or undoes them and says why the target does not take them."""


def rejected_rows(slots: Iterable[SlotValues], attempt: Attempt) -> list[RejectedRow]:
    """All of them, in a number of attempts that grows with the rejected rows and hardly with the others."""
    found: list[RejectedRow] = []
    unexplained = 0
    for slot in slots:
        first = 0
        for batch in slot.read():
            for row, refusal in _tried(slot, batch, first, attempt):
                found.append(RejectedRow(slot.slot, row, refusal.why))
                unexplained += not refusal.is_certain
                if unexplained > _MOST_UNEXPLAINED:
                    raise NotTheRows(f"more than {_MOST_UNEXPLAINED} single rows fail: {refusal.why}")
            first += batch.num_rows
    return found


def _tried(slot: SlotValues, batch: pa.RecordBatch, first: int, attempt: Attempt) -> Iterator[tuple[int, Refusal]]:
    refusal = attempt(replace(slot, rows=batch.num_rows, read=partial(iter, [batch])))
    if refusal is None:
        return
    if batch.num_rows == 1:
        yield first, refusal
        return
    half = batch.num_rows // 2
    yield from _tried(slot, batch.slice(0, half), first, attempt)
    yield from _tried(slot, batch.slice(half), first + half, attempt)
