"""What must stand in a random table after its epochs, and how to compare it with what a reader finds."""

from __future__ import annotations

import json
import uuid
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from .random_tables import RandomTable, Row

# --- what must stand there ------------------------------------------------------------------------


def expected(one: RandomTable, epochs: list[list[list[Row]]]) -> list[Row]:
    """The rows that a reader must find, in any order."""
    mode = one.options.get("mode", "append")
    if mode == "append":
        return [row for epoch in epochs for slot in epoch for row in slot]
    if mode == "replace":
        return [row for slot in epochs[-1] for row in slot]
    held: dict[Any, Row] = {}
    for epoch in epochs:
        for key, row in _last_ones(one, [row for slot in epoch for row in slot]).items():
            held.pop(key, None)
            if not row.get("gone"):
                held[key] = {name: value for name, value in row.items() if name != "gone"}
    return list(held.values())


def _last_ones(one: RandomTable, rows: list[Row]) -> dict[Any, Row]:
    last: dict[Any, Row] = {}
    for row in rows:
        key = None if row["k"] is None else one.key_of(row["k"])
        if key not in last or _rank(row) >= _rank(last[key]):
            last[key] = row
    return last


def _rank(row: Row) -> tuple[bool, int]:
    at = row.get("at")
    return at is not None, at or 0


# --- as a reader finds it -------------------------------------------------------------------------


def reading(name: str, kind: pa.DataType, declared: str) -> str:
    """A column as the server's own output function writes it; times as numbers, which have no end in year 9999."""
    column = f'"{name}"'
    if pa.types.is_list(kind) and declared.endswith("[]"):
        inner = reading("x", kind.value_type, "")
        return f"CASE WHEN {column} IS NULL THEN NULL ELSE ARRAY(SELECT {inner} FROM unnest({column}) AS x) END"
    if pa.types.is_date(kind):
        return f"CASE WHEN isfinite({column}) THEN ({column} - date '1970-01-01')::text ELSE {column}::text END"
    if pa.types.is_temporal(kind):
        return f"(extract(epoch FROM {column}) * 1000000)::text"
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE format('%s', {column}) END"


def comparable(value: Any, kind: pa.DataType, column: str) -> Any:
    """A value that was sent, or the text of one that was read, in a form in which equal is equal."""
    if value is None:
        return None
    if pa.types.is_list(kind) and column.endswith("[]"):
        return tuple(comparable(one, kind.value_type, column) for one in value)
    if column in ("json", "jsonb"):
        return _document(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else value == "t"
    if pa.types.is_floating(kind):
        return repr(float(np.float32(value)) if pa.types.is_float32(kind) else float(value))
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        return str(Fraction(value))
    if column == "uuid":
        return uuid.UUID(bytes=value) if isinstance(value, bytes) else uuid.UUID(value)
    if pa.types.is_binary(kind):
        return value if isinstance(value, bytes) else bytes.fromhex(value.removeprefix("\\x"))
    return value


def _document(value: Any) -> Any:
    """JSON by its values, with every member."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return json.loads(text, object_pairs_hook=_members, parse_float=Fraction, parse_int=Fraction)


def _members(pairs: list[tuple[str, Any]]) -> Any:
    return ("object", tuple(sorted(pairs, key=lambda pair: pair[0])))
