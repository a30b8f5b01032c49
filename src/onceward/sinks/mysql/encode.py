"""Arrow columns as the text that `LOAD DATA` reads, whole columns at a time.

Fields end with a tab, lines with a newline, null is `\\N`, a backslash escapes. Bytes travel in hexadecimal and
booleans as digits; the statement turns both into what the column wants.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.sinks.arrow_types import is_bytes
from onceward.sinks.json_text import bytes_of, json_values

_BYTES_AT_ONCE = 16 << 20
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\0", "\\0"))
_SPECIAL = "".join(raw for raw, _ in _ESCAPES).encode()


def lines(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """The rows as text; what has no text that means the same was found by `misfit`."""
    at_once = max(1, _BYTES_AT_ONCE // max(1, batch.nbytes // max(1, batch.num_rows)))
    for start in range(0, batch.num_rows, at_once):
        parts: list[pa.Array | str] = []
        for column in batch.slice(start, at_once).columns:
            parts += [_texts(column), "\t"]
        parts[-1] = "\n"
        joined = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="\\N")
        yield memoryview(bytes_of(joined))


def refused_type(kind: pa.DataType) -> str | None:
    """Why no column of this type can be stored, with what to do; None when it can."""
    kind = plain_type(kind)
    if pt.is_null(kind) or pt.is_duration(kind) or pt.is_interval(kind) or pt.is_union(kind):
        return "cast it to text, a number or a time"
    if pt.is_decimal(kind) and (kind.scale > 30 or kind.scale < 0 or kind.precision > 65):
        return "MySQL's decimals have up to 65 digits, 30 of them behind the point: cast it to fewer, or to text"
    try:
        _texts(pa.nulls(0, kind))
    except (pa.ArrowException, TypeError) as error:
        return f"{error}: cast it to text"
    return None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without the wrappings that change how values are stored and not what they are."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pt.is_dictionary(kind):
        kind = kind.value_type
    plainer = {pa.string_view(): pa.string(), pa.large_string(): pa.string(), pa.binary_view(): pa.binary()}
    return plainer.get(kind, kind)


def plain(column: pa.Array) -> pa.Array:
    """The values without the wrappings of their type."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = plain_type(column.type)
    return column if column.type == kind else column.cast(kind)


def _texts(column: pa.Array) -> pa.Array:
    """One column; null stays null, and so becomes what is not finite."""
    column = plain(column)
    kind = column.type
    if pt.is_string(kind):
        return _escaped(column)
    if pt.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.string())
    if pt.is_floating(kind):
        # The shortest text for a float32 is another number to a DOUBLE.
        return _finite(column.cast(pa.float64())).cast(pa.string())
    if pt.is_timestamp(kind):
        # Without its zone a timestamp is cast far faster, and what is left is UTC.
        return column.cast(pa.timestamp(kind.unit)).cast(pa.timestamp("us")).cast(pa.string())
    if pt.is_date(kind):
        return column.cast(pa.date32()).cast(pa.string())
    if pt.is_time64(kind):
        return column.cast(pa.time64("us")).cast(pa.string())
    if is_bytes(kind):
        return _hexadecimal(column.cast(pa.binary()))
    if pt.is_nested(kind):
        return _escaped(json_values(column))
    return column.cast(pa.string())


def _finite(column: pa.Array) -> pa.Array:
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() is not False:
        return column
    return pc.if_else(finite, column, pa.scalar(None, column.type))


def _escaped(texts: pa.Array) -> pa.Array:
    raw = bytes_of(texts).to_pybytes()
    # One pass over the bytes of all is far faster than looking into each text.
    if len(raw.translate(None, _SPECIAL)) == len(raw):
        return texts
    for special, escape in _ESCAPES:
        if special.encode() in raw:
            texts = pc.replace_substring(texts, special, escape)
    return texts


def _hexadecimal(column: pa.Array) -> pa.Array:
    """All bytes at once; each value's digits are then found at twice its offset."""
    if not len(column):
        return pa.nulls(0, pa.string())
    _, offsets, _ = column.buffers()
    digits = pa.py_buffer(bytes_of(column).to_pybytes().hex().encode())
    starts = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, offsets], offset=column.offset)
    doubled = pc.multiply(pc.subtract(starts, starts[0]), 2).cast(pa.int32())
    whole = pa.Array.from_buffers(pa.string(), len(column), [None, doubled.buffers()[1], digits])
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, pa.string())) if column.null_count else whole
