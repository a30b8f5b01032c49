"""Arrow columns as the parameters of SQLite statements, a column at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.sinks.json_text import iso_text, json_values

Value = None | int | float | str | bytes
_Layout = Literal["b", "h", "i", "q", "B", "H", "I", "f", "d"]

_LAYOUTS: dict[pa.DataType, _Layout] = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.float32(): "f",
    pa.float64(): "d",
}


class DoesNotFit(ValueError):
    """A value that SQLite would replace by another."""


def parameters(batch: pa.RecordBatch) -> Iterator[tuple[Value, ...]]:
    """The batch's rows as SQLite takes them."""
    return zip(*(values(column) for column in batch.columns), strict=True)


def values(column: pa.Array) -> Sequence[Value]:
    """One column: numbers as they are, booleans 0 and 1, decimals and times as text, nested values as JSON."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pt.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pt.is_float16(kind):
        column = column.cast(pa.float32())
    elif pt.is_decimal(kind):
        # Arrow writes small ones as 1E-10; text that is compared or read by people should not change its form.
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    elif pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind):
        column = iso_text(column)
    elif pt.is_nested(kind):
        column = json_values(column)
    if pt.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise DoesNotFit("a value is NaN, of which SQLite would make NULL")
    layout = _LAYOUTS.get(column.type)
    return _numbers(column, layout) if layout is not None else _repeated(column)


def refused_type(kind: pa.DataType) -> str | None:
    """Why no column of this type can be stored, with what to do; None when it can."""
    if kind == pa.uint64():
        return "SQLite's integers are signed: cast it to bigint or decimal"
    try:
        values(pa.nulls(0, kind))
    except (pa.ArrowException, TypeError) as error:
        return f"{error}: cast it to text"
    return None if _is_stored(kind) else "cast it to text, a number or bytes"


def _is_stored(kind: pa.DataType) -> bool:
    return not (pt.is_duration(kind) or pt.is_interval(kind) or pt.is_union(kind))


def _numbers(column: pa.Array, layout: _Layout) -> list[int | float | None]:
    """Straight from Arrow's memory, many times faster than one Arrow scalar a value."""
    data = column.buffers()[1]
    if data is None:
        return [None] * len(column)
    # Arrow's types and these letters have the same width on every machine that Spark runs on.
    window = memoryview(data).cast(layout)[column.offset : column.offset + len(column)]
    numbers: list[int | float | None] = list(window.tolist())
    if column.null_count:
        for position in pc.indices_nonzero(column.is_null()).to_pylist():
            numbers[position] = None
    return numbers


def _repeated(column: pa.Array) -> Sequence[Value]:
    """Texts and bytes: each distinct one becomes a Python object once, where that pays."""
    if pt.is_null(column.type):
        return [None] * len(column)
    encoded = column.dictionary_encode(null_encoding="encode")
    if len(encoded.dictionary) * 2 > len(column):
        return list(column.to_pylist())
    distinct = encoded.dictionary.to_pylist()
    return list(map(distinct.__getitem__, _numbers(encoded.indices, "i")))
