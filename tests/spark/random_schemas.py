"""Random schemas and rows of every type a Spark column can have, and whether they arrived as they left.

What arrived is given as the text that a server's own command-line client prints: no code of ours reads it.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from hypothesis import strategies as st

Values = st.SearchStrategy[Any]
Kind = tuple[pa.DataType, Values]
Row = dict[str, Any]

MOST_ROWS = 12
_WIDE = Context(prec=80)
_ZONES = ("UTC", "America/St_Johns", "Asia/Kathmandu")

# What means something to Spark or to a server when it stands in a name.
_SYNTAX = st.sampled_from(".`\"'\\ %")


@dataclass(frozen=True)
class Target:
    """What a server cannot keep, and says so: what is not drawn for it."""

    characters: st.SearchStrategy[str]
    names: st.SearchStrategy[str]
    is_finite: bool
    most_scale: int


POSTGRES = Target(
    characters=st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    names=_SYNTAX | st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    is_finite=False,
    most_scale=38,
)
MARIADB = Target(
    characters=st.sampled_from("\\\t\n\r\0\x1aNn'\"`%;, 🦆") | st.characters(exclude_categories=["Cs"]),
    names=_SYNTAX | st.characters(exclude_characters="\0", exclude_categories=["Cs"], max_codepoint=0xFFFF),
    is_finite=True,
    most_scale=30,
)


@dataclass(frozen=True)
class Stream:
    """Rows behind a key `k`, which counts them; those from `cut` on come in a second epoch."""

    schema: pa.Schema
    rows: list[Row]
    cut: int
    zone: str

    def write(self, folder: Path) -> None:
        """As source files, one an epoch, by a writer that is not Spark's."""
        folder.mkdir(parents=True)
        for number, rows in enumerate((self.rows[: self.cut], self.rows[self.cut :])):
            if rows:
                pq.write_table(pa.Table.from_pylist(rows, self.schema), folder / f"{number}.parquet")


# --- what a column can hold ---------------------------------------------------------------------


def integers(bits: int) -> Values:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def floats(width: int, *, is_finite: bool) -> Values:
    drawn: Values = st.floats(width=width, allow_nan=not is_finite, allow_infinity=not is_finite)
    special = [0.0, -0.0] if is_finite else [0.0, -0.0, math.nan, math.inf, -math.inf]
    return drawn | st.sampled_from(special)


def leaves(target: Target) -> list[Kind]:
    return [
        (pa.bool_(), st.booleans()),
        (pa.int8(), integers(8)),
        (pa.int16(), integers(16)),
        (pa.int32(), integers(32)),
        (pa.int64(), integers(64)),
        (pa.float32(), floats(32, is_finite=target.is_finite)),
        (pa.float64(), floats(64, is_finite=target.is_finite)),
        (pa.string(), st.text(target.characters, max_size=12)),
        (pa.binary(), st.binary(max_size=12)),
        (pa.date32(), st.dates()),
        (pa.timestamp("us"), st.datetimes()),
        # In some zone the first and the last day of these years are in others, which Python does not have.
        (
            pa.timestamp("us", "UTC"),
            st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC)),
        ),
    ]


@st.composite
def decimals(draw: st.DrawFn, most_scale: int) -> Kind:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, min(precision, most_scale)))
    largest = 10**precision - 1
    shifted = st.integers(-largest, largest).map(lambda digits: Decimal(digits).scaleb(-scale, _WIDE))
    return pa.decimal128(precision, scale), shifted


def kinds(target: Target) -> st.SearchStrategy[Kind]:
    """Plain ones, and arrays, maps and structs of them, and of each other."""
    plain = leaves(target)
    keys = st.sampled_from([kind for kind in plain if kind[0] in (pa.string(), pa.int32(), pa.int64(), pa.date32())])
    letters = st.text(st.sampled_from("abcdefgh é\"'\\.,"), max_size=4)

    def a_list(kind: Kind) -> Kind:
        return pa.list_(kind[0]), st.lists(st.none() | kind[1], max_size=3)

    def a_struct(fields: list[tuple[str, Kind]]) -> Kind:
        # Numbered, because Spark takes two names for one when they differ in case only.
        named = [(f"{number}{name}", kind) for number, (name, kind) in enumerate(fields)]
        values = {name: st.none() | of for name, (_, of) in named}
        return pa.struct([pa.field(name, kind) for name, (kind, _) in named]), st.fixed_dictionaries(values)

    def a_map(key: Kind, value: Kind) -> Kind:
        entries = st.lists(st.tuples(key[1], st.none() | value[1]), max_size=3, unique_by=lambda entry: entry[0])
        return pa.map_(key[0], value[0]), entries

    def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
        structs = st.lists(st.tuples(letters, inner), min_size=1, max_size=3).map(a_struct)
        return st.builds(a_list, inner) | structs | st.builds(a_map, keys, inner)

    single = st.sampled_from(plain) | decimals(target.most_scale)
    return single | st.recursive(single, nested, max_leaves=4)


@st.composite
def streams(draw: st.DrawFn, target: Target) -> Stream:
    columns = draw(st.lists(st.tuples(st.text(target.names, max_size=6), kinds(target)), min_size=1, max_size=8))
    named = {f"{number}{name}_": kind for number, (name, kind) in enumerate(columns)}
    count = draw(st.integers(1, MOST_ROWS))
    drawn = {name: draw(st.lists(st.none() | of, min_size=count, max_size=count)) for name, (_, of) in named.items()}
    rows = [{"k": k, **{name: values[k] for name, values in drawn.items()}} for k in range(count)]
    schema = pa.schema([pa.field("k", pa.int64()), *(pa.field(name, kind) for name, (kind, _) in named.items())])
    return Stream(schema, rows, draw(st.integers(0, count)), draw(st.sampled_from(_ZONES)))


# --- what arrived, against what left ------------------------------------------------------------


def differences(stream: Stream, found: list[list[str | None]], judge: Callable[[pa.DataType, Any, str], bool]) -> str:
    """What is not as it left; empty when all is. `found` has the rows in the order of their keys, as text."""
    if len(found) != len(stream.rows):
        return f"{len(stream.rows)} rows left and {len(found)} arrived"
    wrong = []
    for row, texts in zip(stream.rows, found, strict=True):
        for field, text in zip(stream.schema, texts, strict=True):
            sent = row[field.name]
            if (sent is None) != (text is None) or (text is not None and not judge(field.type, sent, text)):
                wrong.append(f"row {row['k']}, column {field.name!r} ({field.type}): {sent!r} became {text!r}")
    return "\n".join(wrong)


def same_in_postgres(kind: pa.DataType, sent: Any, text: str) -> bool:
    """As `COPY ... TO STDOUT` writes it."""
    if pt.is_boolean(kind):
        return text == ("t" if sent else "f")
    if pt.is_binary(kind):
        return text == "\\x" + sent.hex()
    if pt.is_floating(kind):
        return same_number(kind, sent, float(text), keeps_sign=True)
    if pt.is_timestamp(kind):
        # The server leaves the zeros at the end of the seconds away, and writes the zone as +00.
        return datetime.fromisoformat(text) == sent
    return same_otherwise(kind, sent, text)


def same_in_mariadb(kind: pa.DataType, sent: Any, text: str) -> bool:
    """As the column cast to text reads; bytes in hexadecimal."""
    if pt.is_boolean(kind):
        return text == ("1" if sent else "0")
    if pt.is_binary(kind):
        return text == sent.hex().upper()
    if pt.is_floating(kind):
        # A DOUBLE, also for float32: so it is the very number and not only the same one after rounding.
        return same_number(pa.float64(), sent, float(text), keeps_sign=False)
    if pt.is_timestamp(kind):
        return text == sent.strftime("%Y-%m-%d %H:%M:%S.%f").zfill(26)
    return same_otherwise(kind, sent, text)


def same_otherwise(kind: pa.DataType, sent: Any, text: str) -> bool:
    if pt.is_nested(kind):
        return same_json(kind, sent, json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant))
    if pt.is_decimal(kind):
        digits = text.partition(".")[2]
        return Decimal(text) == sent and len(digits) == kind.scale
    if pt.is_date(kind):
        return bool(text == sent.isoformat())
    return text == str(sent)


def same_number(kind: pa.DataType, sent: float, found: float, *, keeps_sign: bool) -> bool:
    if math.isnan(sent) or math.isnan(found):
        return math.isnan(sent) and math.isnan(found)
    size = "f" if pt.is_float32(kind) else "d"
    if not keeps_sign:
        sent, found = sent + 0.0, found + 0.0
    return struct.pack(size, sent) == struct.pack(size, found)


def same_json(kind: pa.DataType, sent: Any, found: Any) -> bool:
    """`found` is parsed JSON. Null fields are left out of objects, and keys are always texts."""
    if sent is None or found is None:
        return sent is None and found is None
    if pt.is_struct(kind):
        types = {field.name: field.type for field in kind}
        here = {name: value for name, value in sent.items() if value is not None}
        return set(found) == set(here) and all(same_json(types[name], here[name], found[name]) for name in here)
    if pt.is_map(kind):
        here = {key.isoformat() if isinstance(key, date) else str(key): value for key, value in sent}
        return set(found) == set(here) and all(same_json(kind.item_type, here[key], found[key]) for key in here)
    if pt.is_list(kind):
        return len(sent) == len(found) and all(map(lambda a, b: same_json(kind.value_type, a, b), sent, found))
    if pt.is_floating(kind):
        words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        # JSON's zero has no sign.
        number = words[found] if isinstance(found, str) else float(found)
        return same_number(kind, sent, number, keeps_sign=False)
    if pt.is_binary(kind):
        return bool(base64.b64decode(found) == sent)
    if pt.is_timestamp(kind):
        return datetime.fromisoformat(found) == sent
    if pt.is_date(kind):
        return bool(found == sent.isoformat())
    if pt.is_decimal(kind):
        return bool(Decimal(found) == sent)
    return bool(found == sent and type(found) is type(sent))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
