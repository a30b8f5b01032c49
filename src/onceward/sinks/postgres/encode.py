"""Arrow columns as PostgreSQL's binary COPY wants them: exactly of the column's type, or refused.

COPY checks nothing: four bytes for a bigint are an error, and digits that a numeric has no room for are rounded off in
silence. So every column is cast here, whole columns at a time, and a cast that would lose something fails.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.errors import TargetRefused
from onceward.sinks.arrow_types import is_bytes, is_text
from onceward.sinks.json_text import json_values, without_json_form
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.table import Column, Table
from onceward.sinks.spark_types import spark_type

Convert = Callable[[pa.Array], pa.Array]

_INTEGERS = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64()}
# An enumeration reads its label as text. What it does not know, the server refuses.
_TEXTS = ("text", "varchar", "bpchar", "name", "citext", "xml", "enum")
_PLAIN = {
    "bool": pa.bool_(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "time": pa.time64("us"),
    "interval": pa.duration("us"),
}
# 24 November 4714 BC: days, and microseconds, before 1970.
_EARLIEST = {
    "date": -2_440_588,
    "timestamp": -2_440_588 * 86_400_000_000,
    "timestamptz": -2_440_588 * 86_400_000_000,
}
_FLOATS = {"float4": pa.float32(), "float8": pa.float64()}
_ARROW = {**_INTEGERS, **_FLOATS, **_PLAIN, "numeric": pa.decimal128(38, 0)}
_NO_MODIFIER = -1
_UUID = "^[0-9A-Fa-f]{32}$"
_NO_UUID = "0" * 32
_INTERVAL_HAS_SECONDS = 1 << 12
_ANY_PRECISION = 0xFFFF


class DoesNotFit(ValueError):
    """A value of which its column would lose something."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """How one column of the stream travels: to which column, and what is done to it on the way."""

    source: str
    column: str
    convert: Convert

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """The column, ready for COPY. `DoesNotFit` names the column when a value does not."""
        try:
            return self.convert(batch.column(self.source))
        except (pa.ArrowException, ValueError) as error:
            why = f"column {self.source!r} has a value that does not fit {self.column!r}: {error}"
            raise DoesNotFit(why) from None


def encoders(table: Table, options: Options, schema: pa.Schema) -> list[Encoder]:
    """How each of the stream's columns travels into its column; refused by name where it cannot."""
    found = []
    for field in schema:
        if field.name == options.deleted:
            continue
        column = table.column(field.name)
        if column is None:
            raise TargetRefused(
                f"table {options.table} has lost its column {field.name}", hint="put it back, then start again"
            )
        encoder = None if column.is_computed else _encoder_for(field, column.name, column.kind, column.modifier)
        if encoder is None:
            is_a = "is computed by the table" if column.is_computed else f"is {column.printed}"
            raise TargetRefused(
                f"column {column.name!r} {is_a} and cannot faithfully take {spark_type(field.type)} from the stream",
                hint=_hint_for(field, column),
            )
        found.append(encoder)
    return found


def _hint_for(field: pa.Field, column: Column) -> str:
    if pa.types.is_timestamp(field.type) and column.kind in ("timestamp", "timestamptz"):
        other, way = ("timestamptz", "timestamp_ntz") if field.type.tz else ("timestamp", "timestamp")
        return f"make the column {other}, or cast it to {way} in the query"
    return "cast it in the query, or change the table"


def _encoder_for(field: pa.Field, column: str, kind: str, modifier: int) -> Encoder | None:
    """The way from this field into a column of that type, if there is a faithful one."""
    convert = _conversion(field.type, kind, modifier)
    return None if convert is None else Encoder(field.name, column, convert)


def _conversion(kind: pa.DataType, wanted: str, modifier: int) -> Convert | None:
    if pt.is_null(kind):
        return lambda column: pa.nulls(len(column), _ARROW.get(wanted, pa.string()))
    if wanted.startswith("_"):
        return _list_conversion(kind, wanted.removeprefix("_"), modifier)
    if wanted in _INTEGERS:
        return _cast_to(_INTEGERS[wanted]) if pt.is_integer(kind) else None
    if wanted == "float4":
        return _cast_to(pa.float32()) if pt.is_float16(kind) or pt.is_float32(kind) else None
    if wanted == "float8":
        fits = pt.is_floating(kind) or pt.is_int8(kind) or pt.is_int16(kind) or pt.is_int32(kind)
        return _cast_to(pa.float64()) if fits else None
    if wanted == "numeric":
        return _numeric_conversion(kind, modifier)
    if wanted in ("json", "jsonb"):
        return _json_conversion(kind, is_binary=wanted == "jsonb")
    if wanted == "uuid":
        return _uuid_conversion(kind)
    if wanted in _TEXTS:
        return _text_conversion(wanted, modifier) if is_text(kind) else None
    return _plain_conversion(kind, wanted, modifier) if wanted in _PLAIN else None


def _text_conversion(wanted: str, modifier: int) -> Convert:
    if wanted == "xml":
        return _without_declaration
    if modifier == _NO_MODIFIER:
        return _cast_to(pa.string())
    longest = modifier - 4

    def checked(column: pa.Array) -> pa.Array:
        # The server complains of what is too long, but cuts off blanks at the end in silence.
        texts = column.cast(pa.string())
        lengths = pc.min_max(pc.utf8_length(texts)).as_py()
        if (lengths["max"] or 0) > longest:
            raise ValueError(f"a text is longer than {longest} characters")
        if wanted == "bpchar" and lengths["min"] is not None:
            _refuse_padding(texts, lengths["min"], longest)
        return texts

    return checked


def _refuse_padding(texts: pa.Array, shortest: int, length: int) -> None:
    """A char(n) fills up with blanks in silence, and takes blanks at the end for nothing."""
    if shortest < length:
        raise ValueError(f"a text is shorter than {length} characters, and would be padded with blanks")
    if pc.any(pc.ends_with(texts, " ")).as_py():
        raise ValueError("a text ends in a blank, which counts for nothing here")


def _without_declaration(column: pa.Array) -> pa.Array:
    """The server reads the text as in the encoding that a declaration names, and then drops the declaration."""
    texts = column.cast(pa.string())
    if pc.any(pc.match_substring_regex(texts, r"^\s*<\?xml\b")).as_py():
        raise ValueError("an XML declaration would be dropped")
    return texts


def _plain_conversion(kind: pa.DataType, wanted: str, modifier: int) -> Convert | None:
    target = _PLAIN[wanted]
    fits = {
        "bool": pt.is_boolean(kind),
        "bytea": is_bytes(kind),
        "date": pt.is_date(kind),
        "timestamp": pt.is_timestamp(kind) and kind.tz is None,
        "timestamptz": pt.is_timestamp(kind) and kind.tz is not None,
        "time": pt.is_time(kind),
        "interval": pt.is_duration(kind),
    }
    if not fits[wanted]:
        return None
    if wanted in _EARLIEST and modifier == _NO_MODIFIER:
        return _not_before(_EARLIEST[wanted], _cast_to(target))
    if modifier == _NO_MODIFIER or wanted not in ("timestamp", "timestamptz", "time", "interval"):
        return _cast_to(target)
    if wanted == "interval" and not modifier >> 16 & _INTERVAL_HAS_SECONDS:
        return None
    digits = modifier & 0xFFFF
    cast = _cast_to(target) if digits == _ANY_PRECISION else _to_the_digit(target, digits)
    return _not_before(_EARLIEST[wanted], cast) if wanted in _EARLIEST else cast


def _not_before(earliest: int, cast: Convert) -> Convert:
    """The server's times begin in 4714 BC. The very first number that Arrow has would arrive as minus infinity."""

    def checked(column: pa.Array) -> pa.Array:
        column = cast(column)
        first = pc.min(column.cast(pa.int32() if pt.is_date32(column.type) else pa.int64())).as_py()
        if first is not None and first < earliest:
            raise ValueError("a time is before 4714 BC")
        return column

    return checked


def _to_the_digit(target: pa.DataType, digits: int) -> Convert:
    """A column with few digits of a second rounds the others off in silence; here they are refused."""
    step = 10 ** (6 - digits)

    def checked(column: pa.Array) -> pa.Array:
        column = column if column.type == target else column.cast(target)
        ticks = column.cast(pa.int64())
        if not pc.all(pc.equal(pc.multiply(pc.divide(ticks, step), step), ticks)).as_py() and len(ticks.drop_null()):
            raise ValueError(f"a value has more than {digits} digits of a second")
        return column

    return checked


def _cast_to(wanted: pa.DataType) -> Convert:
    return lambda column: column if column.type == wanted else column.cast(wanted)


def _numeric_conversion(kind: pa.DataType, modifier: int) -> Convert | None:
    if not (pt.is_decimal(kind) or pt.is_integer(kind)):
        return None
    if modifier == _NO_MODIFIER:
        return (lambda column: column) if pt.is_decimal(kind) else _cast_to(pa.decimal128(20, 0))
    # As the server packs it: four bytes for its own length are added, precision above, scale below.
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    if precision > 76 or scale > precision:
        return None
    wanted = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    if pt.is_integer(kind):
        return lambda column: column.cast(pa.decimal128(20, 0)).cast(wanted)
    return _cast_to(wanted)


def _json_conversion(kind: pa.DataType, *, is_binary: bool) -> Convert | None:
    if without_json_form(pa.schema([pa.field("value", kind)])) is not None:
        return None
    if is_text(kind):
        # A text that is meant for a JSON column is JSON already.
        texts: Convert = _cast_to(pa.string())
    else:
        texts = json_values
    if not is_binary:
        return texts
    if is_text(kind):
        texts = _without_duplicates
    # The binary form of jsonb is its text behind a version number.
    return lambda column: pc.binary_join_element_wise(b"\x01", texts(column).cast(pa.binary()), b"")


def _without_duplicates(column: pa.Array) -> pa.Array:
    """Of two members of one name jsonb keeps the last, in silence. What is no JSON, the server refuses."""
    texts = column.cast(pa.string())
    for text in texts.to_pylist():
        if text is not None and text.count(":") > 1:
            with contextlib.suppress(json.JSONDecodeError, RecursionError):
                json.loads(text, object_pairs_hook=_distinct, parse_int=str, parse_float=str)
    return texts


def _distinct(members: list[tuple[str, object]]) -> None:
    names = {name for name, _ in members}
    if len(names) < len(members):
        raise ValueError("a JSON object has two members of one name, of which jsonb would keep one")


def _uuid_conversion(kind: pa.DataType) -> Convert | None:
    if pt.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return lambda column: column
    if pt.is_binary(kind):
        return _cast_to(pa.binary(16))
    return _uuids if is_text(kind) else None


def _uuids(column: pa.Array) -> pa.Array:
    """All at once: the digits of every value one after the other, read as one long number in hexadecimal."""
    digits = pc.replace_substring(pc.fill_null(column.cast(pa.string()), _NO_UUID), "-", "")
    if not pc.all(pc.match_substring_regex(digits, _UUID)).as_py() and len(digits):
        raise ValueError("a text is no UUID")
    raw = bytes.fromhex("".join(digits.to_pylist()))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(column), [None, pa.py_buffer(raw)])
    return pc.if_else(column.is_valid(), values, pa.scalar(None, pa.binary(16)))


def _list_conversion(kind: pa.DataType, element: str, modifier: int) -> Convert | None:
    if not (pt.is_list(kind) or pt.is_large_list(kind)) or element in ("numeric", "json", "jsonb", "uuid", "interval"):
        return None
    inner = _conversion(kind.value_type, element, modifier)
    wanted = _ARROW.get(element, pa.string())
    if inner is None:
        return None
    whole, each = _cast_to(pa.list_(wanted)), inner

    def checked(column: pa.Array) -> pa.Array:
        each(column.flatten())
        return whole(column)

    is_checked = modifier != _NO_MODIFIER or element in _EARLIEST or element == "xml"
    return checked if is_checked else whole
