"""Which rows a target does not take: the halves of a batch are tried until single rows are left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from onceward.contracts import RejectedRow, SlotValues

Attempt = Callable[[SlotValues], str | None]
"""Writes these rows beside those that were taken before, or undoes them and says why the target does not take them."""


def rejected_rows(slots: Iterable[SlotValues], attempt: Attempt) -> list[RejectedRow]:
    """All of them, in a number of attempts that grows with the rejected rows and hardly with the others."""
    found: list[RejectedRow] = []
    for slot in slots:
        first = 0
        for batch in slot.read():
            found += _tried(slot, batch, first, attempt)
            first += batch.num_rows
    return found


def _tried(slot: SlotValues, batch: pa.RecordBatch, first: int, attempt: Attempt) -> Iterator[RejectedRow]:
    why = attempt(replace(slot, rows=batch.num_rows, read=partial(iter, [batch])))
    if why is None:
        return
    if batch.num_rows == 1:
        yield RejectedRow(slot.slot, first, why)
        return
    half = batch.num_rows // 2
    yield from _tried(slot, batch.slice(0, half), first, attempt)
    yield from _tried(slot, batch.slice(half), first + half, attempt)
