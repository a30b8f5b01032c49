"""Rows on their way to the server: each one packed as its `Layout` says, without touching them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from onceward.errors import RowsRejected
from onceward.sinks.redis.compatibility import adds_fractions
from onceward.sinks.redis.encode import as_bytes, as_plain_numbers
from onceward.sinks.redis.options import Layout, Template
from onceward.sinks.redis.packing import FALSE, NIL, bytes_of, packed_array, packed_column
from onceward.sinks.redis.scores import Misfits, misfits_of_numbers

NULL_KEY = 'a null in a column of its {option}; null_keys="skip" leaves such rows out'
_LIKE_RECEIPTS = (":receipts:", ":checkpoints:")


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Some rows of a slot. `keys` is None where all rows have the layout's literal key.

    `is_plain`: no value is null and no key goes, so that several rows can be written by one command. `is_suspect`: a
    key looks like one of receipts, of whatever sink. `names` are the fields of a hash; `adds_fractions` tells how a
    counter adds.
    """

    rows: pa.Array
    keys: pa.Array | None
    width: int
    is_plain: bool
    is_suspect: bool
    names: tuple[str, ...] = ()
    adds_fractions: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def chunk(self) -> bytes:
        """As the script unpacks it."""
        return packed_array(self.width * len(self.rows), bytes_of(self.rows)) if len(self.rows) else b""


def pack(batch: pa.RecordBatch, layout: Layout, *, skips_null_keys: bool, first_row: int = 0) -> PackedRows:
    """The batch's rows as the script takes them; raises `RowsRejected` for one that Redis does not take.

    `first_row` is where the batch begins in its slot, for messages. Every row that is written comes through here.
    """
    keys = None if layout.key.literal is not None else filled(layout.key, batch)
    members = None if layout.member is None else filled(layout.member, batch)
    left_out = pa.array([False] * batch.num_rows) if skips_null_keys else None
    for option, column in (("key", keys), ("member", members)):
        if column is not None and column.null_count:
            if left_out is None:
                raise _null_key(option, column, first_row)
            left_out = pc.or_(left_out, column.is_null())
    for found in misfits(batch, layout, keys):
        wrong = found.rows if left_out is None else pc.and_not(found.rows, left_out)
        if pc.any(wrong).as_py():
            place = pc.index(wrong, True).as_py()
            raise RowsRejected(f"row {first_row + place}: {found.why(place)}")
    if left_out is not None and pc.any(left_out).as_py():
        kept = pc.invert(left_out)
        batch = batch.filter(kept)
        keys, members = (None if column is None else column.filter(kept) for column in (keys, members))
    return _packed(batch, layout, keys, members)


def _packed(batch: pa.RecordBatch, layout: Layout, keys: pa.Array | None, members: pa.Array | None) -> PackedRows:
    gone = None if layout.deleted is None else pc.fill_null(batch.column(layout.deleted), False)
    columns, is_plain = _values(batch, layout, gone)
    # A sorted set takes the score before its member, a hash the field before its value.
    inner = [] if members is None else [packed_column(members)]
    parts = [*columns, *inner] if layout.kind == "zset" else [*inner, *columns]
    if keys is not None:
        parts.insert(0, packed_column(keys))
    rows = pc.binary_join_element_wise(*parts, b"") if len(parts) > 1 else parts[0]
    names = layout.written(batch.schema) if layout.kind == "hash" else ()
    fractions = adds_fractions(layout, batch.schema)
    return PackedRows(rows, keys, len(parts), is_plain, _is_suspect(keys, layout), names, fractions)


def filled(template: Template, batch: pa.RecordBatch) -> pa.Array:
    """The template's text for each row; null where one of its columns is."""
    parts: list[pa.Array | pa.Scalar] = []
    for literal, column in template.parts:
        if literal:
            parts.append(pa.scalar(literal.encode(), pa.binary()))
        if column is not None:
            parts.append(as_bytes(batch.column(column)))
    if not template.columns:
        return pa.repeat(pa.scalar(template.prefix, pa.binary()), batch.num_rows)
    return pc.binary_join_element_wise(*parts, b"") if len(parts) > 1 else parts[0]


def misfits(batch: pa.RecordBatch, layout: Layout, keys: pa.Array | None) -> Iterator[Misfits]:
    """What can be wrong with rows whatever the server holds. `keys` are those of the batch."""
    if keys is not None:
        for prefix in layout.reserved:
            own = pc.fill_null(pc.starts_with(keys, pattern=prefix.decode()), False)
            yield Misfits(own, lambda place: f"its key {_shown(keys[place].as_py())} is one of onceward's own")
    if layout.value is not None:
        yield from misfits_of_numbers(batch.column(layout.value), layout)


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))


def _is_suspect(keys: pa.Array | None, layout: Layout) -> bool:
    if keys is None:
        return any(part.encode() in layout.key.prefix for part in _LIKE_RECEIPTS)
    return any(pc.any(pc.match_substring(keys, part)).as_py() for part in _LIKE_RECEIPTS)


def _values(batch: pa.RecordBatch, layout: Layout, gone: pa.Array | None) -> tuple[list[pa.Array], bool]:
    counts = layout.kind in ("incr", "hincr")
    if counts and layout.value is None:
        return [pa.repeat(pa.scalar(b"\xa11", pa.binary()), batch.num_rows)], True
    as_stored = as_plain_numbers if counts else as_bytes
    columns = [as_stored(batch.column(name)) for name in layout.written(batch.schema)]
    is_plain = not any(column.null_count for column in columns)
    packed = [packed_column(column) for column in columns]
    if gone is not None and pc.any(gone).as_py():
        is_plain = False
        # A hash goes as a whole; elsewhere a value that is gone is a null.
        packed[0] = pc.if_else(gone, pa.scalar(FALSE if layout.kind == "hash" else NIL, pa.binary()), packed[0])
    return packed, is_plain


def _null_key(option: str, column: pa.Array, first_row: int) -> RowsRejected:
    row = first_row + pc.index(column.is_null(), True).as_py()
    return RowsRejected(f"row {row}: {NULL_KEY.format(option=option)}")
