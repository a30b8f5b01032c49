"""Every value of every type a Spark column can have arrives as it left, by COPY and by upsert."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.connections.postgres import Address, pooled, quoted

from .conftest import Place
from .deliver import deliver

pytestmark = pytest.mark.cluster

VARIANTS: tuple[dict[str, Any], ...] = ({}, {"two_phase": False}, {"mode": "upsert", "keys": ["k"]})

# --- what a column can hold ---------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])
NARROW = st.floats(width=32) | st.sampled_from([-0.0, math.nan, math.inf, 1e-45])
MOMENTS = st.datetimes(datetime.min, datetime.max)
# Arrow has no value for the last hours of the year 9999 in every zone, nor Python.
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), NARROW),
    (pa.float64(), FLOATS),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), st.binary(max_size=12)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), INSTANTS),
    (pa.timestamp("us", "America/St_Johns"), INSTANTS),
    (pa.time64("us"), st.times()),
    (pa.null(), st.none()),
]
SPANS = (pa.duration("us"), st.integers(-(2**62), 2**62).map(lambda us: timedelta(microseconds=us)))
KEYS = [LEAVES[0], LEAVES[4], LEAVES[7], LEAVES[10]]
Kind = tuple[pa.DataType, st.SearchStrategy[Any]]
_WIDE = Context(prec=80)


@st.composite
def decimals(draw: st.DrawFn) -> Kind:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    largest = 10**precision - 1
    shifted = st.integers(-largest, largest).map(lambda digits: Decimal(digits).scaleb(-scale, _WIDE))
    return pa.decimal128(precision, scale), shifted


def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    def a_list(kind: Kind) -> Kind:
        return pa.list_(kind[0]), st.lists(st.none() | kind[1], max_size=3)

    def a_struct(kinds: dict[str, Kind]) -> Kind:
        fields = [pa.field(name, kind) for name, (kind, _) in kinds.items()]
        return pa.struct(fields), st.fixed_dictionaries({name: st.none() | of for name, (_, of) in kinds.items()})

    def a_map(key: Kind, value: Kind) -> Kind:
        entries = st.lists(st.tuples(key[1], st.none() | value[1]), max_size=3, unique_by=lambda entry: entry[0])
        return pa.map_(key[0], value[0]), entries

    structs = st.dictionaries(TEXTS.filter(bool), inner, min_size=1, max_size=3).map(a_struct)
    return st.builds(a_list, inner) | structs | st.builds(a_map, st.sampled_from(KEYS), inner)


PLAIN = st.sampled_from(LEAVES) | decimals()
KINDS = PLAIN | st.just(SPANS) | st.recursive(PLAIN, nested, max_leaves=4)
# The server's own, the upsert's own, and the key of this test.
TAKEN = ("k", "ctid", "xmin", "cmin", "xmax", "cmax", "tableoid", "onceward_row", "onceward_deleted")
NAMES = TEXTS.filter(lambda name: 0 < len(name.encode()) <= 63 and name not in TAKEN)


@st.composite
def streams(draw: st.DrawFn) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Some columns behind a key, some rows, cut into batches; slices too, whose buffers begin elsewhere."""
    columns = draw(st.dictionaries(NAMES, KINDS, min_size=1, max_size=4))
    rows = draw(st.integers(1, 5))
    schema = pa.schema([pa.field("k", pa.int64()), *(pa.field(name, kind) for name, (kind, _) in columns.items())])
    drawn = [draw(st.lists(st.none() | of, min_size=rows, max_size=rows)) for _, of in columns.values()]
    arrays = [pa.array(column, field.type) for column, field in zip([list(range(rows)), *drawn], schema, strict=True)]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    cut = draw(st.integers(0, rows))
    return schema, [piece for piece in (whole.slice(0, cut), whole.slice(cut)) if piece.num_rows]


# --- what arrived, against what left ------------------------------------------------------------


def asked(name: str, kind: pa.DataType) -> str:
    """How to read a column back so that the reading changes nothing."""
    if pt.is_duration(kind):
        return f"(extract(epoch FROM {quoted(name)}) * 1000000)::numeric(30, 0)::text"
    return f"{quoted(name)}::text" if pt.is_nested(kind) or pt.is_decimal(kind) else quoted(name)


def same(kind: pa.DataType, sent: Any, found: Any) -> bool:
    if sent is None or found is None:
        return sent is None and found is None
    if pt.is_nested(kind):
        return same_json(kind, sent, json.loads(found, parse_float=Decimal))
    if pt.is_duration(kind):
        return bool(sent == timedelta(microseconds=int(found)))
    if pt.is_decimal(kind):
        return bool(sent == Decimal(found))
    if pt.is_floating(kind):
        return (math.isnan(sent) and math.isnan(found)) or struct.pack("d", sent) == struct.pack("d", found)
    return bool(sent == found and type(sent) is type(found))


def same_json(kind: pa.DataType, sent: Any, found: Any) -> bool:
    """`found` is parsed JSON. Null fields are left out of objects, and keys are always texts."""
    if sent is None or found is None:
        return sent is None and found is None
    if pt.is_struct(kind):
        whole = {field.name: field.type for field in kind}
        assert set(found) == {name for name, value in sent.items() if value is not None}
        return all(same_json(whole[name], sent[name], found[name]) for name in found)
    if pt.is_map(kind):
        texts = {key_text(key): value for key, value in sent}
        return set(found) == set(texts) and all(same_json(kind.item_type, texts[key], found[key]) for key in found)
    if pt.is_list(kind):
        alike = (same_json(kind.value_type, one, other) for one, other in zip(sent, found, strict=True))
        return len(sent) == len(found) and all(alike)
    if pt.is_floating(kind):
        size = "f" if pt.is_float32(kind) else "d"
        words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
        number = words[found] if isinstance(found, str) else float(found)
        # JSON's zero has no sign.
        return (math.isnan(sent) and math.isnan(number)) or struct.pack(size, sent + 0.0) == struct.pack(size, number)
    if pt.is_binary(kind):
        return bool(base64.b64decode(found) == sent)
    if isinstance(sent, datetime):
        return datetime.fromisoformat(found) == sent
    if isinstance(sent, date | time):
        return type(sent).fromisoformat(found) == sent
    return bool(sent == found)


def key_text(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key.isoformat() if isinstance(key, date) else str(key)


@settings(max_examples=60, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(stream=streams())
def test_whatever_leaves_the_stream_arrives_unchanged(
    place: Place, stream: tuple[pa.Schema, list[pa.RecordBatch]]
) -> None:
    schema, batches = stream
    sent = [row for batch in batches for row in batch.to_pylist()]
    for variant in VARIANTS:
        sink = place.sink(**variant).choose()
        try:
            sink.check(schema, output_mode="append")
            deliver(sink, batches)
            columns = ", ".join(asked(field.name, field.type) for field in schema)
            with pooled(Address.parse(place.url)) as session:
                found = session.run(f"SELECT {columns} FROM rows ORDER BY k")
            assert len(found) == len(sent)
            for row, other in zip(sent, found, strict=True):
                for field, value in zip(schema, other, strict=True):
                    assert same(field.type, row[field.name], value), (variant, field, row[field.name], value)
        finally:
            place.empty()
            place.query("DROP TABLE ~.rows")
