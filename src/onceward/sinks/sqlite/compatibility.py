"""Whether the table takes the rows of the stream, value by value and nothing lost. Nothing here asks the database."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from onceward.errors import TargetRefused
from onceward.sinks.names import refuse_alike
from onceward.sinks.output_mode import refuse_output_mode
from onceward.sinks.spark_types import spark_type
from onceward.sinks.sqlite.encode import refused_type
from onceward.sinks.sqlite.options import MODES, Options
from onceward.sinks.sqlite.table import Column, Table, create_index, folded


def refuse_stream(schema: pa.Schema, options: Options, *, output_mode: str) -> None:
    """Raise `TargetRefused` for what can be seen without the table."""
    refuse_output_mode(output_mode, options.mode, modes=MODES)
    refuse_alike(schema.names, folded=folded, target="SQLite")
    names = [folded(name) for name in schema.names]
    missing = [key for key in options.keys if folded(key) not in names]
    if missing:
        raise TargetRefused(
            f"the stream has no key column {', '.join(missing)}", hint=f"its columns are {', '.join(schema.names)}"
        )
    for field in schema:
        hint = refused_type(field.type)
        if hint is not None:
            raise TargetRefused(f"column {field.name!r} ({spark_type(field.type)}) cannot be stored", hint=hint)


def refuse_table(table: Table, options: Options, schema: pa.Schema) -> None:
    """Raise `TargetRefused`, naming the columns, when rows of this schema cannot go into the table."""
    name, keys = options.table, options.keys
    stream = {folded(field.name): field for field in schema}
    missing = [field.name for key, field in stream.items() if key not in table.columns]
    if missing:
        raise TargetRefused(
            f"table {name!r} has no column {', '.join(missing)}",
            hint=f"its columns are {', '.join(column.name for column in table.columns.values())}; "
            "add the missing ones, or select others in the query",
        )
    required = [column.name for key, column in table.columns.items() if column.is_required and key not in stream]
    required = [column for column in required if folded(column) != table.rowid_alias]
    if required:
        raise TargetRefused(
            f"table {name!r} needs a value for {', '.join(required)}, which the stream does not have",
            hint="add the column to the query, or give it a default in the table",
        )
    for key, field in stream.items():
        _refuse_unless_storable(table.columns[key], field, is_strict=table.is_strict)
    if keys and frozenset(folded(key) for key in keys) not in table.unique:
        raise TargetRefused(
            f"table {name!r} has no unique index on {', '.join(keys)}, which an upsert needs",
            hint=f"run: {create_index(name, keys)};",
        )


_EXACT_DIGITS = 15
_EXACT_BITS = 32


def _refuse_unless_storable(column: Column, field: pa.Field, *, is_strict: bool) -> None:
    why = _why_not(_affinity(column.declared), field.type, is_strict=is_strict, declared=column.declared)
    if column.is_generated or why is not None:
        declared = "is computed by the table" if column.is_generated else f"is declared {column.declared}"
        raise TargetRefused(
            f"column {column.name!r} {declared} and cannot take {spark_type(field.type)}{why or ''}",
            hint="cast it in the query, or change the table",
        )


def _why_not(affinity: str, kind: pa.DataType, *, is_strict: bool, declared: str) -> str | None:
    """Why a value would not be read as it was written, as the end of a sentence; None when it is."""
    is_bytes = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)
    is_number = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind)
    is_text = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_dictionary(kind)
    if affinity == "BLOB" or pt.is_null(kind):
        wrong = is_strict and declared.upper() == "BLOB" and not (is_bytes or pt.is_null(kind))
        return "" if wrong else None
    if affinity == "TEXT":
        return ": a number would become text" if is_number else "" if is_bytes else None
    if pt.is_decimal(kind):
        # It is sent as text, and becomes a number here: a double keeps fifteen digits.
        exact = kind.precision <= _EXACT_DIGITS and not (is_strict and affinity == "INTEGER")
        return None if exact else ": digits would be lost"
    if affinity == "REAL" and pt.is_integer(kind) and kind.bit_width > _EXACT_BITS:
        return ": digits of large numbers would be lost"
    if affinity in ("INTEGER", "REAL"):
        is_cut = is_strict and affinity == "INTEGER" and pt.is_floating(kind)
        return None if is_number and not is_cut else ""
    return ": a text that looks like a number would become one" if is_text else "" if is_bytes else None


def _affinity(declared: str) -> str:
    """How SQLite itself reads a declared type (https://www.sqlite.org/datatype3.html, 3.1)."""
    text = declared.upper()
    if "INT" in text:
        return "INTEGER"
    if "CHAR" in text or "CLOB" in text or "TEXT" in text:
        return "TEXT"
    if "BLOB" in text or not text:
        return "BLOB"
    if "REAL" in text or "FLOA" in text or "DOUB" in text:
        return "REAL"
    return "BLOB" if text == "ANY" else "NUMERIC"
