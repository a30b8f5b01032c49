"""Arrow columns as the bytes that Redis keeps, a column at a time.

Numbers become their decimal text, booleans 1 and 0, decimals plain digits, dates and timestamps ISO 8601 (UTC), nested
values JSON. Text and bytes stay as they are; null stays null.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.sinks.json_text import iso_text, json_values


def as_bytes(column: pa.Array) -> pa.Array:
    """The column as Redis takes it; TypeError or an Arrow error when its type has no form."""
    column = _plain(column)
    kind = column.type
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pt.is_null(kind):
        return pa.nulls(len(column), pa.binary())
    if pt.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pt.is_decimal(kind):
        return _decimals(column)
    elif pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind):
        column = iso_text(column)
    elif pt.is_nested(kind):
        column = json_values(column)
    return column.cast(pa.string()).cast(pa.binary())


def as_plain_numbers(column: pa.Array) -> pa.Array:
    """Numbers for exact sums: of doubles the shortest decimals that name them, and no exponents."""
    texts = as_bytes(column).cast(pa.string())
    if pc.any(pc.match_substring(texts, "e")).as_py():
        plain = [None if text is None else f"{Decimal(text):f}" for text in texts.to_pylist()]
        texts = pa.array(plain, pa.string())
    return texts.cast(pa.binary())


def refused_type(kind: pa.DataType) -> str | None:
    """What to do about a type that cannot be stored; None when it can."""
    if pt.is_duration(kind) or pt.is_interval(kind) or pt.is_union(kind):
        return "cast it to text, a number or bytes"
    try:
        as_bytes(pa.nulls(0, kind))
    except (pa.ArrowException, TypeError) as error:
        return f"{error}: cast it to text"
    return None


def _plain(column: pa.Array) -> pa.Array:
    """The column without the wrappings that change how values are stored and not what they are."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == pa.string_view():
        return column.cast(pa.string())
    if column.type == pa.binary_view():
        return column.cast(pa.binary())
    return column.cast(pa.float32()) if pt.is_float16(column.type) else column


def _decimals(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    # Arrow writes small ones as 1E-10; text that is compared or read by people should not change its form.
    if pc.any(pc.match_substring(texts, "E")).as_py():
        texts = pa.array([None if value is None else f"{value:f}" for value in column.to_pylist()], pa.string())
    return texts.cast(pa.binary())
