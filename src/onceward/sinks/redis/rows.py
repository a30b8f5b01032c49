"""Rows on their way to the server: each one packed as `layout` says, without touching them one by one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.errors import RowsRejected
from onceward.sinks.redis.columns import as_bytes
from onceward.sinks.redis.layout import Layout, Template, adds_fractions
from onceward.sinks.redis.packing import FALSE, NIL, bytes_of, packed_array, packed_column

NULL_KEY = 'a null in a column of its {option}; null_keys="skip" leaves such rows out'


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Some rows of a slot. `keys` is None where all rows have the layout's literal key.

    `is_plain`: no value is null and no key goes, so that several rows can be written by one command. `names` are the
    fields of a hash; `adds_fractions` tells which commands a counter needs.
    """

    rows: pa.Array
    keys: pa.Array | None
    width: int
    is_plain: bool
    names: tuple[str, ...] = ()
    adds_fractions: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def chunk(self) -> bytes:
        """As the script unpacks it."""
        return packed_array(self.width * len(self.rows), bytes_of(self.rows)) if len(self.rows) else b""


def pack(batch: pa.RecordBatch, layout: Layout, *, skips_null_keys: bool, first_row: int = 0) -> PackedRows:
    """The batch's rows as the script takes them; raises `RowsRejected` for one that Redis does not take.

    `first_row` is where the batch begins in its slot, for messages.
    """
    keys = None if layout.key.literal is not None else filled(layout.key, batch)
    members = None if layout.member is None else filled(layout.member, batch)
    for option, column in (("key", keys), ("member", members)):
        if column is not None and column.null_count:
            if not skips_null_keys:
                raise _null_key(option, column, first_row)
            kept = column.is_valid()
            return pack(batch.filter(kept), layout, skips_null_keys=True, first_row=first_row)
    gone = None if layout.delete is None else pc.fill_null(batch.column(layout.delete), False)
    columns, is_plain = _values(batch, layout, gone, first_row)
    # A sorted set takes the score before its member, a hash the field before its value.
    inner = [] if members is None else [packed_column(members)]
    parts = [*columns, *inner] if layout.kind == "zset" else [*inner, *columns]
    if keys is not None:
        parts.insert(0, packed_column(keys))
    rows = pc.binary_join_element_wise(*parts, b"") if len(parts) > 1 else parts[0]
    names = layout.written(batch.schema) if layout.kind == "hash" else ()
    fractions = layout.kind in ("incr", "hincr") and adds_fractions(layout, batch.schema)
    return PackedRows(rows, keys, len(parts), is_plain, names, fractions)


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


def _values(
    batch: pa.RecordBatch, layout: Layout, gone: pa.Array | None, first_row: int
) -> tuple[list[pa.Array], bool]:
    if layout.kind in ("incr", "hincr") and layout.value is None:
        return [pa.repeat(pa.scalar(b"\xa11", pa.binary()), batch.num_rows)], True
    names = layout.written(batch.schema)
    if layout.kind in ("zset", "incr", "hincr"):
        _refuse_non_numbers(batch.column(names[0]), layout, first_row)
    columns = [as_bytes(batch.column(name)) for name in names]
    is_plain = not any(column.null_count for column in columns)
    packed = [packed_column(column) for column in columns]
    if gone is not None and pc.any(gone).as_py():
        is_plain = False
        # A hash goes as a whole; elsewhere a value that is gone is a null.
        packed[0] = pc.if_else(gone, pa.scalar(FALSE if layout.kind == "hash" else NIL, pa.binary()), packed[0])
    return packed, is_plain


def _refuse_non_numbers(column: pa.Array, layout: Layout, first_row: int) -> None:
    """Redis would refuse them in the middle of a transaction."""
    wrong = not_numbers(column, layout)
    if wrong is not None and pc.any(wrong).as_py():
        place = pc.index(pc.fill_null(wrong, False), True).as_py()
        raise RowsRejected(f"row {first_row + place}: {no_number(layout, column[place].as_py())}")


def not_numbers(column: pa.Array, layout: Layout) -> pa.Array | None:
    """Where a score or an amount is none that Redis takes; None where the type has no such values."""
    if layout.kind not in ("zset", "incr", "hincr") or not pt.is_floating(column.type):
        return None
    return pc.is_nan(column) if layout.kind == "zset" else pc.invert(pc.is_finite(column))


def no_number(layout: Layout, value: object) -> str:
    """What is wrong with it."""
    return f"{layout.value!r} is {value}, which Redis cannot " + ("order by" if layout.kind == "zset" else "add")


def _null_key(option: str, column: pa.Array, first_row: int) -> RowsRejected:
    row = first_row + pc.index(column.is_null(), True).as_py()
    return RowsRejected(f"row {row}: {NULL_KEY.format(option=option)}")
