"""Arrow columns as text, whole columns at a time: ISO dates and times, JSON values, JSON lines.

The JSON is what Spark's own writer makes: null fields are left out, null elements are kept, bytes are base64, a number
that is not finite is a string. One thing is better: timestamps keep their microseconds.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_ROWS_AT_ONCE = 65_536
# A string column counts its bytes in 32 bits; JSON can be several times the size of its Arrow columns.
_BYTES_AT_ONCE = 64 << 20
_CONTROLS = bytes(range(0x20))
_TO_ESCAPE = b'"\\' + _CONTROLS
_TIMESTAMP_LENGTHS = {"s": 19, "ms": 23, "us": 26, "ns": 29}


def json_lines(table: pa.Table) -> Iterator[pa.Buffer]:
    """The rows as one JSON object a line, in buffers that can be written as they are."""
    for batch in table.combine_chunks().to_batches(max_chunksize=_rows_per_batch(table)):
        lines = _objects(batch.schema.names, batch.columns, end="}\n")
        yield bytes_of(lines)


def json_values(column: pa.Array) -> pa.Array:
    """The column as JSON texts; null stays null. TypeError when JSON has no form for the type."""
    before, texts, after = _value_parts(column)
    return _joined(before, texts, after) if before else texts


def without_json_form(schema: pa.Schema) -> str | None:
    """Which column JSON has no form for, and why; None when all are fine."""
    for field in schema:
        try:
            json_values(pa.nulls(0, field.type))
        except (pa.ArrowException, TypeError) as error:
            return f"column {field.name!r}: {error}"
    return None


def iso_text(column: pa.Array) -> pa.Array:
    """Dates, times and timestamps in ISO 8601; a timestamp with a zone is given in UTC, with Z."""
    texts, zone = _iso_parts(column)
    return _joined(texts, zone) if zone else texts


def _value_parts(column: pa.Array) -> tuple[str, pa.Array, str]:
    """What stands before each value, the values, and what stands after: whoever joins them on saves a copy."""
    column, kind = _plain(column)
    if pt.is_null(kind):
        return "", pa.nulls(len(column), pa.string()), ""
    if pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_decimal(kind):
        return "", column.cast(pa.string()), ""
    if pt.is_floating(kind):
        return "", _float_values(column), ""
    if pt.is_string(kind) or pt.is_large_string(kind):
        return '"', _escaped(column.cast(pa.string())), '"'
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return '"', pa.array(texts, pa.string()), '"'
    if pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind):
        texts, zone = _iso_parts(column)
        return '"', texts, zone + '"'
    return "", _nested_values(column, kind), ""


def _iso_parts(column: pa.Array) -> tuple[pa.Array, str]:
    """The texts, and what each of them still needs at its end."""
    kind = column.type
    if not pt.is_timestamp(kind):
        return column.cast(pa.string()), ""
    # Without its zone a timestamp is cast thirty times faster, and what is left is UTC.
    texts = column.cast(pa.timestamp(kind.unit)).cast(pa.string())
    zone = "Z" if kind.tz is not None else ""
    lengths = pc.min_max(pc.binary_length(texts))
    if lengths["min"] == lengths["max"] == pa.scalar(_TIMESTAMP_LENGTHS[kind.unit], pa.int32()):
        return pc.binary_replace_slice(texts.view(pa.binary()), 10, 11, b"T").view(pa.string()), zone
    # A year of more than four digits, or before the first: the blank stands elsewhere.
    return pc.replace_substring(texts, " ", "T", max_replacements=1), zone


def _rows_per_batch(table: pa.Table) -> int:
    bytes_in_a_row: int = max(1, table.nbytes // max(1, table.num_rows))
    return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // bytes_in_a_row))


def _plain(column: pa.Array) -> tuple[pa.Array, pa.DataType]:
    """The column without the wrappings that change how values are stored and not what they are."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pt.is_dictionary(kind):
        column = column.dictionary_decode()
    elif kind == pa.string_view():
        column = column.cast(pa.string())
    elif kind == pa.binary_view():
        column = column.cast(pa.binary())
    elif pt.is_float16(kind):
        column = column.cast(pa.float32())
    return column, column.type


def _joined(*parts: pa.Array | str) -> pa.Array:
    """The parts of each row one after the other; null when one of them is."""
    return pc.binary_join_element_wise(*parts, "")


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined('"', texts, '"')


def _escaped(texts: pa.Array) -> pa.Array:
    raw = bytes_of(texts).to_pybytes()
    if not _has_any(raw, _TO_ESCAPE):
        return texts
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if _has_any(raw, _CONTROLS):
        for control in _CONTROLS.decode():
            texts = pc.replace_substring(texts, control, json.dumps(control)[1:-1])
    return texts


def _has_any(raw: bytes, wanted: bytes) -> bool:
    """Far faster than a regular expression over each text: one pass over the bytes of all."""
    return len(raw.translate(None, wanted)) < len(raw)


def _float_values(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    # Arrow writes 1.0 as 1, and a reader that guesses types would take the column for integers.
    if pc.any(pc.equal(pc.floor(column), column)).as_py():
        whole = pc.invert(pc.match_substring_regex(texts, "[.en]"))
        texts = pc.if_else(whole, _joined(texts, ".0"), texts)
    if not pc.all(pc.is_finite(column)).as_py():
        for arrow, spark in (("nan", '"NaN"'), ("-inf", '"-Infinity"'), ("inf", '"Infinity"')):
            texts = pc.if_else(pc.equal(texts, arrow), spark, texts)
    return texts


def _nested_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pt.is_struct(kind):
        texts = _objects([field.name for field in kind], column.flatten(), end="}")
    elif pt.is_map(kind):
        column = _entries(column, kind)
        keys, values = column.flatten().flatten()
        texts = _joined("{", _of_lists(column, _joined(_keys(keys), ":", _null_as_text(values))), "}")
    elif pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        texts = _joined("[", _of_lists(column, _null_as_text(column.flatten())), "]")
    else:
        raise TypeError(f"JSON has no form for {kind}")
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _entries(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The map as the list of entries that it is stored as.

    Not by a cast: of a slice with a null type in it Arrow makes an array whose next use ends the process. A map's own
    `keys` and `items` forget that it may be a slice, which the offsets do not.
    """
    entries = pa.StructArray.from_arrays([column.keys, column.items], fields=[kind.key_field, kind.item_field])
    parts = column.buffers()[:2]
    return pa.ListArray.from_buffers(pa.list_(entries.type), len(column), parts, -1, column.offset, [entries])


def _null_as_text(values: pa.Array) -> pa.Array:
    return pc.fill_null(json_values(values), "null")


def _keys(keys: pa.Array) -> pa.Array:
    texts = json_values(keys)
    return pc.if_else(pc.starts_with(texts, '"'), texts, _quoted(texts))


def _of_lists(column: pa.Array, elements: pa.Array) -> pa.Array:
    """The texts of a column's flattened elements, put back into its lists and joined by commas."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, elements), ",")


def _objects(names: Sequence[str], columns: Sequence[pa.Array], *, end: str) -> pa.Array:
    """Each row as an object without its null fields; `end` closes it."""
    if not names:
        raise TypeError("JSON lines need at least one field")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TypeError(f"JSON has no form for two fields {twice[0]!r}: a reader would keep one of them")
    labels = [json.dumps(name, ensure_ascii=False) + ":" for name in names]
    values = [_value_parts(column) for column in columns]
    if not any(texts.null_count for _, texts, _ in values):
        parts: list[pa.Array | str] = []
        between = "{"
        for label, (before, texts, after) in zip(labels, values, strict=True):
            parts += [between + label + before, texts]
            between = after + ","
        return _joined(*parts, values[-1][2] + end)
    # Every field brings the comma before it; the first one in a row then becomes the brace, also where none is left.
    # (Arrow's own null_handling="skip" drops a row whose fields are all null.)
    fields = [
        _joined("," + label + before, texts, after)
        for label, (before, texts, after) in zip(labels, values, strict=True)
    ]
    joined = pc.binary_join_element_wise(*fields, "", null_handling="replace", null_replacement="")
    opened = pc.binary_replace_slice(joined.view(pa.binary()), 0, 1, b"{")
    return _joined(opened.view(pa.string()), end)


def bytes_of(texts: pa.Array) -> pa.Buffer:
    """The texts or bytes one after the other: as Arrow keeps them, without a copy."""
    if not len(texts):
        return pa.py_buffer(b"")
    offsets = memoryview(texts.buffers()[1]).cast("i")
    first, last = offsets[texts.offset], offsets[texts.offset + len(texts)]
    data = texts.buffers()[2]
    return data.slice(first, last - first) if data is not None else pa.py_buffer(b"")
