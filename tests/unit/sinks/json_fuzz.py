"""Random Arrow columns of random types, and a slow second opinion on the JSON that is made of them.

`python json_fuzz.py FIRST LAST` tries the seeds in between; it is run beside the tests because what Arrow does not
like ends the whole process.
"""

from __future__ import annotations

import base64
import json
import math
import random
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from onceward.sinks.json_text import json_lines, json_values

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = ("", "a", '"', "\\", "\n\t\x00\x1f", "é", "数🦆", "\u2028", "null", "x" * 40, '{"a":1}', ",", "\x7f")
NAMES = ("x", "y", "a b", 'q"', "é", "\n", "key", "value", "")
TIMES_MS = (0, -1, 1, 1_767_323_045_678, -62_135_596_800_000, 253_402_300_799_000)


class Tagged(pa.ExtensionType):
    """A type of somebody's own, stored as another."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "onceward.test.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Tagged:
        return cls(storage)


Values = Callable[[random.Random], Any]
LEAVES: list[tuple[pa.DataType, Values]] = [
    (pa.null(), lambda _: None),
    (pa.bool_(), lambda chance: chance.random() < 0.5),
    *((kind, lambda chance: chance.randrange(-128, 128)) for kind in (pa.int8(), pa.int16(), pa.int32())),
    (pa.int64(), lambda chance: chance.choice((0, -(1 << 63), (1 << 63) - 1, chance.randrange(1 << 40)))),
    (pa.uint64(), lambda chance: chance.choice((0, (1 << 64) - 1))),
    (pa.float16(), lambda chance: chance.choice((0.0, -0.5, 1.0, 60000.0, math.inf, math.nan))),
    (pa.float32(), lambda chance: chance.choice((0.0, -0.0, 1.0, 1e30, -math.inf, math.nan, chance.random()))),
    (pa.float64(), lambda chance: chance.choice((0.0, 1e22, 1.5e300, 5e-324, math.inf, math.nan, chance.random()))),
    *((kind, lambda chance: chance.choice(TEXTS)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, lambda chance: chance.randbytes(chance.randrange(20))) for kind in (pa.binary(), pa.large_binary())),
    (pa.binary_view(), lambda chance: chance.randbytes(chance.randrange(20))),
    (pa.binary(3), lambda chance: chance.randbytes(3)),
    (pa.decimal128(20, 4), lambda chance: Decimal(chance.randrange(-(10**12), 10**12)) / 10_000),
    (pa.decimal256(40, 0), lambda chance: Decimal(chance.randrange(-(10**38), 10**38))),
    (pa.date32(), lambda chance: date(1970, 1, 1) + timedelta(chance.randrange(-100_000, 100_000))),
    (pa.time64("us"), lambda chance: time(chance.randrange(24), 1, 2, chance.choice((0, 5, 999_999)))),
    (pa.timestamp("us"), lambda chance: EPOCH.replace(tzinfo=None) + timedelta(milliseconds=chance.choice(TIMES_MS))),
    (pa.timestamp("ms", "UTC"), lambda chance: EPOCH + timedelta(milliseconds=chance.choice(TIMES_MS))),
    (pa.timestamp("us", "Asia/Tokyo"), lambda chance: EPOCH + timedelta(milliseconds=chance.choice(TIMES_MS))),
    (pa.dictionary(pa.int32(), pa.string()), lambda chance: chance.choice(TEXTS)),
    (pa.dictionary(pa.int8(), pa.int64()), lambda chance: chance.randrange(5)),
]
KEYS = [leaf for leaf in LEAVES if leaf[0] in (pa.string(), pa.int64(), pa.bool_(), pa.date32(), pa.string_view())]


def random_type(chance: random.Random, depth: int) -> tuple[pa.DataType, Values]:
    """A type, and a way to draw its values. Null turns up everywhere but in keys."""
    shape = chance.random() if depth else 0.0
    if shape < 0.4:
        kind, leaf = chance.choice(LEAVES)
        return kind, _or_null(leaf)
    if shape < 0.6:
        fields = [(name, *random_type(chance, depth - 1)) for name in chance.sample(NAMES, chance.randrange(1, 4))]
        kind = pa.struct([(name, inner) for name, inner, _ in fields])
        return kind, _or_null(lambda chance: {name: value(chance) for name, _, value in fields})
    inner, value = random_type(chance, depth - 1)
    if shape < 0.8:
        key, key_value = chance.choice(KEYS)
        entries = lambda chance: [*{key_value(chance): value(chance) for _ in range(_few(chance))}.items()]  # noqa: E731
        return pa.map_(key, inner), _or_null(entries)
    if shape < 0.85:
        return pa.list_(inner, 2), _or_null(lambda chance: [value(chance), value(chance)])
    kind = pa.large_list(inner) if shape < 0.9 else pa.list_(inner)
    return kind, _or_null(lambda chance: [value(chance) for _ in range(_few(chance))])


def _few(chance: random.Random) -> int:
    return chance.choice((0, 0, 1, 2, 5))


def _or_null(value: Values) -> Values:
    return lambda chance: None if chance.random() < 0.2 else value(chance)


def column_of(chance: random.Random, kind: pa.DataType, values: list[Any]) -> tuple[pa.Array, list[Any]]:
    """The values as a column: at times of a type of its own, a slice, with contents under its nulls, or all of it."""
    column = pa.array(values, kind)
    if chance.random() < 0.3 and len(values) and _can_hide(kind):
        hidden = [chance.random() < 0.5 for _ in values]
        values = [None if is_hidden else value for value, is_hidden in zip(values, hidden, strict=True)]
        column = _hide(column, [value is not None for value in values])
    if chance.random() < 0.2 and not pt.is_dictionary(kind):
        column = pa.ExtensionArray.from_storage(Tagged(kind), column)
    first = chance.randrange(len(values) + 1)
    count = chance.randrange(len(values) - first + 1)
    return column.slice(first, count), values[first : first + count]


def _can_hide(kind: pa.DataType) -> bool:
    return bool(pt.is_struct(kind) or pt.is_map(kind) or pt.is_list(kind))


def _hide(column: pa.Array, is_valid: list[bool]) -> pa.Array:
    """As it comes from a join: what stands under a null is not empty."""
    validity = pa.array(is_valid).buffers()[1]
    if pt.is_struct(column.type):
        children = [column.field(number) for number in range(column.type.num_fields)]
        return pa.StructArray.from_buffers(column.type, len(column), [validity], children=children)
    if pt.is_map(column.type):
        children = [pa.StructArray.from_arrays([column.keys, column.items], fields=list(_entry(column.type)))]
    else:
        children = [column.values]
    return pa.Array.from_buffers(column.type, len(column), [validity, column.buffers()[1]], children=children)


def _entry(kind: pa.DataType) -> tuple[pa.Field, pa.Field]:
    return kind.key_field, kind.item_field


# --- the second opinion -------------------------------------------------------------------------------


def agrees(kind: pa.DataType, value: Any, told: Any) -> bool:
    """Whether what was parsed from JSON is this value. Objects are parsed to lists of pairs in tuples."""
    if isinstance(kind, pa.ExtensionType):
        kind = kind.storage_type
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if value is None or told is None:
        return value is None and told is None
    if pt.is_struct(kind):
        there = [(field.name, value[field.name], field.type) for field in kind if value[field.name] is not None]
        return len(told) == len(there) and all(
            name == label and agrees(inner, one, text)
            for (name, one, inner), (label, text) in zip(there, told, strict=True)
        )
    if pt.is_map(kind):
        return len(told) == len(value) and all(
            _key_agrees(kind.key_type, key, label) and agrees(kind.item_type, item, text)
            for (key, item), (label, text) in zip(value, told, strict=True)
        )
    if pt.is_nested(kind):
        return len(told) == len(value) and all(
            agrees(kind.value_type, one, text) for one, text in zip(value, told, strict=True)
        )
    return _leaf_agrees(kind, value, told)


def _key_agrees(kind: pa.DataType, key: Any, label: str) -> bool:
    if pt.is_boolean(kind) or pt.is_integer(kind):
        return label == str(key).lower()
    return _leaf_agrees(kind, key, label)


def _leaf_agrees(kind: pa.DataType, value: Any, told: Any) -> bool:
    if pt.is_floating(kind):
        if not math.isfinite(value):
            return bool(told == ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"))
        narrow = {16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width]
        return isinstance(told, Decimal) and narrow(float(told)) == narrow(value)
    if pt.is_decimal(kind):
        return not isinstance(told, str) and Decimal(told) == value
    if isinstance(value, bytes):
        return base64.b64decode(told, validate=True) == value
    if isinstance(value, datetime):
        has_zone = value.tzinfo is not None
        return told.endswith("Z") == has_zone and datetime.fromisoformat(told) == value
    if isinstance(value, (date, time)):
        return bool(type(value).fromisoformat(told) == value)
    return type(told) is type(value) and told == value


def parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=tuple, parse_float=Decimal)


def try_one(seed: int) -> int:
    """How many values were compared."""
    chance = random.Random(seed)
    kind, value = random_type(chance, depth=3)
    column, values = column_of(chance, kind, [value(chance) for _ in range(chance.choice((0, 1, 2, 7, 40)))])
    texts = json_values(column)
    texts.validate(full=True)
    told = [None if text is None else parsed(text) for text in texts.to_pylist()]
    assert len(told) == len(values), f"seed {seed}: {len(told)} of {len(values)} rows of {column.type}"
    for row, (one, text) in enumerate(zip(values, told, strict=True)):
        assert agrees(kind, one, text), f"seed {seed}, row {row} of {column.type}: {one!r} became {text!r}"
    table = pa.table({"c": column, "row": pa.array(range(len(column)), pa.int64())})
    lines = b"".join(buffer.to_pybytes() for buffer in json_lines(table)).decode().split("\n")[:-1]
    for row, (one, line) in enumerate(zip(values, lines, strict=True)):
        wanted = pa.struct([("c", kind), ("row", pa.int64())])
        assert agrees(wanted, {"c": one, "row": row}, parsed(line)), f"seed {seed}: {one!r} became {line!r}"
    return len(values)


def main(first: int, last: int) -> None:
    compared = sum(try_one(seed) for seed in range(first, last))
    print(compared)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
