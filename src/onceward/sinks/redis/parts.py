"""An epoch cut into parts that each go in at once: few enough rows that the server is not kept from its other clients.

A part holds the end of one slot and the beginning of the next where they fit, so a small epoch is one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceward.contracts import SlotValues
from onceward.errors import RowsRejected
from onceward.sinks.redis.options import Layout, Options
from onceward.sinks.redis.rows import PackedRows, pack

_BYTES_AT_ONCE = 32 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows `first` to `past` of one slot. `slot` is None where no receipt is asked for."""

    slot: int | None
    fingerprint: str
    first: int
    past: int
    is_last: bool
    packed: PackedRows | None

    def arguments(self) -> tuple[str | int | bytes, ...]:
        """As the script takes it."""
        rows = self.packed
        return (
            "" if self.slot is None else self.slot,
            self.fingerprint,
            self.first,
            self.past,
            int(self.is_last),
            len(rows) if rows is not None else 0,
            int(rows.is_plain) if rows is not None else 0,
            int(rows.is_suspect) if rows is not None else 0,
            rows.chunk() if rows is not None else b"",
        )


def piece_of(values: SlotValues, *, first: int, past: int, is_last: bool, packed: PackedRows | None) -> Piece:
    """A piece of a slot, with the mark of its receipt."""
    receipt = values.receipt
    slot, fingerprint = (None, "") if receipt is None else (receipt.slot, str(receipt.fingerprint))
    return Piece(slot, fingerprint, first, past, is_last, packed)


def parts(pieces: Iterable[Piece], options: Options) -> Iterator[list[Piece]]:
    """The pieces in groups of no more than `max_rows_per_script` rows. Slots that end together are never torn apart for
    nothing."""
    held: list[Piece] = []
    rows = size = 0
    most = options.max_rows_per_script
    for piece in pieces:
        more = len(piece.packed) if piece.packed is not None else 0
        weight = piece.packed.rows.nbytes if piece.packed is not None else 0
        if held and most is not None and (rows + more > most or size + weight > _BYTES_AT_ONCE):
            yield held
            held, rows, size = [], 0, 0
        held.append(piece)
        rows, size = rows + more, size + weight
    if held:
        yield held


def pieces(slots: Sequence[SlotValues], rows_in: Sequence[int], options: Options) -> Iterator[Piece]:
    """What is missing of each slot, in order; `rows_in` says how many rows of it the target has."""
    for values, already in zip(slots, rows_in, strict=True):
        try:
            rows = options.max_rows_per_script or values.rows or 1
            yield from _pieces_of(values, already, options.layout, rows, options.skips_null_keys)
        except RowsRejected as error:
            raise RowsRejected(f"slot {values.slot}, {error.message}") from None


def _pieces_of(values: SlotValues, already: int, layout: Layout, rows: int, skips: bool) -> Iterator[Piece]:
    """The last piece says so. It is known only when nothing follows, so each waits for the next."""
    waiting: Piece | None = None
    first = 0
    for batch in values.read():
        for part in _slices(batch, max(0, already - first), rows):
            start = first + part[0]
            packed = pack(part[1], layout, skips_null_keys=skips, first_row=start)
            if waiting is not None:
                yield waiting
            past = start + part[1].num_rows
            waiting = piece_of(values, first=start, past=past, is_last=False, packed=packed)
        first += batch.num_rows
    if waiting is None:
        yield piece_of(values, first=already, past=max(already, first), is_last=True, packed=None)
    else:
        yield piece_of(values, first=waiting.first, past=waiting.past, is_last=True, packed=waiting.packed)


def _slices(batch: pa.RecordBatch, skipped: int, rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch from a row on, in slices of so many rows and not too many bytes, each with where it begins."""
    bytes_in_a_row = max(1, batch.nbytes // max(1, batch.num_rows))
    step = max(1, min(rows, _BYTES_AT_ONCE // bytes_in_a_row))
    for start in range(skipped, batch.num_rows, step):
        yield start, batch.slice(start, step)
