"""Tables that exist, with other types than we would have chosen: what fits goes in exactly, all else is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from onceward.connections.postgres import PostgresError
from onceward.errors import RowsRejected, TargetRefused
from onceward.testing.servers import PostgresServer

from .conftest import Place
from .deliver import batch_of, deliver

pytestmark = pytest.mark.cluster

VARIANTS = pytest.mark.parametrize("variant", [{}, {"mode": "upsert", "keys": ["k"]}], ids=["two-phase", "upsert"])
US, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
AN_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
NOON = datetime(2026, 7, 1, 12, 0, 0, 500_000)
TYPES = """
CREATE TYPE ~.mood AS ENUM ('sad', 'glad');
CREATE TYPE ~._under AS ENUM ('a');
CREATE DOMAIN ~.cents AS numeric(5, 2);
CREATE DOMAIN ~.price AS ~.cents CHECK (value >= 0);
CREATE DOMAIN ~.second AS timestamp(0);
CREATE DOMAIN ~.label AS varchar(3)
"""


def wide_table(place: Place, columns: list[str]) -> None:
    """A table with a key and a column `c<n>` for every case: far faster than a table for each."""
    for statement in TYPES.split(";"):
        place.query(statement)
    every = ", ".join(f"c{n} {column.replace('@', '~.')}" for n, column in enumerate(columns))
    place.query(f"CREATE TABLE ~.rows (k bigint PRIMARY KEY, {every})")


FIT: list[tuple[str, pa.DataType, list[Any], list[str | None]]] = [
    ("bigint", pa.int8(), [-128, None], ["-128", None]),
    ("smallint", pa.int64(), [32767], ["32767"]),
    ("numeric", pa.int64(), [-(2**63)], ["-9223372036854775808"]),
    ("numeric(19, 0)", pa.int64(), [2**63 - 1], ["9223372036854775807"]),
    ("numeric(12, 4)", pa.decimal128(10, 2), [Decimal("12345678.90")], ["12345678.9000"]),
    ("numeric(5, 1)", pa.decimal128(10, 4), [Decimal("1.5000")], ["1.5"]),
    ("numeric(60, 10)", pa.decimal128(38, 10), [Decimal(10**27)], ["1" + "0" * 27 + "." + "0" * 10]),
    ("@cents", pa.decimal128(5, 2), [Decimal("123.45")], ["123.45"]),
    ("@price", pa.decimal128(10, 4), [Decimal("123.4500")], ["123.45"]),
    ("double precision", pa.int32(), [2**31 - 1], ["2147483647"]),
    ("double precision", pa.float32(), [0.5], ["0.5"]),
    ("varchar(3)", pa.string(), ["äöü", None], ["äöü", None]),
    ("@label", pa.string(), ["abc"], ["abc"]),
    ("name", pa.string(), ["x" * 63], ["x" * 63]),
    ("@mood", pa.string(), ["glad", None], ["glad", None]),
    ("@_under", pa.string(), ["a"], ["a"]),
    ("uuid", pa.string(), [str(AN_ID), None, AN_ID.hex.upper()], [str(AN_ID), None, str(AN_ID)]),
    ("uuid", pa.binary(), [AN_ID.bytes], [str(AN_ID)]),
    ("json", pa.string(), ['{"a":  1}', None], ['{"a":  1}', None]),
    ("jsonb", pa.string(), ['{"b": 2, "a": 1}'], ['{"a": 1, "b": 2}']),
    ("json", pa.struct({"a": pa.int8()}), [{"a": 1}], ['{"a":1}']),
    ("xml", pa.string(), ["<a/>"], ["<a/>"]),
    ("int[]", pa.list_(pa.int64()), [[1, None, -(2**31)], None, []], ["{1,NULL,-2147483648}", None, "{}"]),
    ("text[]", pa.list_(pa.string()), [['a"b', None, "", "null"]], ['{"a\\"b",NULL,"","null"}']),
    ("varchar(2)[]", pa.list_(pa.string()), [["ab"]], ["{ab}"]),
    ("double precision[]", pa.list_(pa.float32()), [[0.5]], ["{0.5}"]),
    ("timestamp[]", pa.list_(US), [[NOON]], ['{"2026-07-01 12:00:00.5"}']),
    ("timestamp(1)", US, [NOON], ["2026-07-01 12:00:00.5"]),
    ("time(0)", pa.time64("us"), [time(23, 59, 59)], ["23:59:59"]),
    ("time", pa.time64("ns"), [time(1, 2, 3, 4)], ["01:02:03.000004"]),
    ("interval(3)", pa.duration("us"), [timedelta(days=-2, milliseconds=1)], ["-47:59:59.999"]),
    ("interval day to second", pa.duration("us"), [timedelta(seconds=90)], ["00:01:30"]),
    ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)], ["0001-01-01", "9999-12-31"]),
    ("bytea", pa.binary(2), [b"\0\xff"], ["\\x00ff"]),
    *(
        (column, pa.null(), [None, None], [None, None])
        for column in ("numeric(5, 2)", "jsonb", "int[]", "uuid", "@mood")
    ),
]


@VARIANTS
def test_a_column_of_another_fitting_type_takes_it_exactly(place: Place, variant: dict[str, Any]) -> None:
    wide_table(place, [column for column, _, _, _ in FIT])
    rows = max(len(values) for _, _, values, _ in FIT)
    padded = {
        f"c{n}": pa.array(values + [None] * (rows - len(values)), kind) for n, (_, kind, values, _) in enumerate(FIT)
    }
    batch = batch_of(k=pa.array(range(rows), pa.int64()), **padded)
    sink = place.sink(**variant).choose()
    sink.check(batch.schema, output_mode="append")
    deliver(sink, [batch])
    for n, (column, kind, _, wanted) in enumerate(FIT):
        found = [text for (text,) in place.query(f"SELECT c{n}::text FROM ~.rows ORDER BY k")]
        assert found[: len(wanted)] == wanted, (column, kind)


LOSES: list[tuple[str, pa.DataType, Any]] = [
    ("smallint", pa.int32(), 40_000),
    ("numeric(5, 1)", pa.decimal128(10, 4), Decimal("1.2345")),
    ("numeric(5, 2)", pa.decimal128(10, 2), Decimal("12345.00")),
    ("numeric(3, 0)", pa.int64(), 1000),
    ("@cents", pa.decimal128(10, 4), Decimal("1.2345")),
    ("@price", pa.decimal128(10, 4), Decimal("1.2345")),
    ("@price", pa.decimal128(10, 4), Decimal("-1.0000")),
    ("varchar(3)", pa.string(), "abcd"),
    ("varchar(3)", pa.string(), "abc "),
    ("@label", pa.string(), "abc "),
    ("char(3)", pa.string(), "abcd"),
    ("char(3)", pa.string(), "ab"),
    ("char(3)", pa.string(), "ab "),
    ("char(3)[]", pa.list_(pa.string()), ["ab"]),
    ("date", pa.date32(), -(2**31) + 10_957),
    ("date[]", pa.list_(pa.date32()), [-(2**31) + 10_957]),
    ("timestamp", US, -(2**63) + 1),
    ("timestamptz", UTC, -(2**63) + 1),
    ("jsonb", pa.string(), '{"a": 1, "a": 2}'),
    ("xml", pa.string(), '<?xml version="1.0" encoding="ISO-8859-1"?><a>ä</a>'),
    ("name", pa.string(), "x" * 64),
    ("timestamp(0)", US, NOON),
    ("@second", US, NOON),
    ("timestamptz(0)", UTC, NOON),
    ("timestamp(0)[]", pa.list_(US), [None, NOON]),
    ("varchar(2)[]", pa.list_(pa.string()), ["ab "]),
    ("time(2)", pa.time64("us"), time(1, 2, 3, 4)),
    ("time", pa.time64("ns"), 1),
    ("interval(0)", pa.duration("us"), timedelta(milliseconds=1)),
    ("@mood", pa.string(), "angry"),
    ("uuid", pa.string(), "no uuid"),
    ("uuid", pa.string(), "0" * 15 + "  " + "0" * 15),
    ("uuid", pa.string(), ""),
    ("uuid", pa.binary(), b"short"),
    ("json", pa.string(), "{"),
    ("jsonb", pa.string(), ""),
    ("xml", pa.string(), "<a>"),
    ("smallint[]", pa.list_(pa.int32()), [1, 40_000]),
    ("text", pa.string(), "a\0b"),
    ("@mood", pa.string(), "sad\0"),
    ("jsonb", pa.struct({"a": pa.string()}), {"a": "\0"}),
    ("text[]", pa.list_(pa.string()), ["a", "\0"]),
]


@VARIANTS
def test_a_value_that_does_not_fit_fails_loudly_and_names_the_column(place: Place, variant: dict[str, Any]) -> None:
    wide_table(place, [column for column, _, _ in LOSES])
    sink = place.sink(**variant).choose()
    for n, (column, kind, value) in enumerate(LOSES):
        batch = batch_of(k=pa.array([0, 1], pa.int64()), **{f"c{n}": pa.array([None, value], kind)})
        sink.check(batch.schema, output_mode="append")
        with pytest.raises((ValueError, PostgresError, RowsRejected), match=rf"column '?c{n}\b"):
            deliver(sink, [batch])
        assert place.rows() == [], (column, value)
    assert place.prepared() == []


REFUSED: list[tuple[str, pa.DataType]] = [
    *((column, pa.string()) for column in ("money", "oid", "inet", "point", "timetz", "bit(8)", '"char"', "pg_lsn")),
    *((column, pa.string()) for column in ("bytea", "bigint", "date", "int4range", "boolean", "tsvector")),
    ("text", pa.int32()),
    ("text", pa.binary()),
    ("bigint", pa.float64()),
    ("bigint", pa.decimal128(5, 0)),
    ("real", pa.float64()),
    ("double precision", pa.int64()),
    ("date", US),
    ("interval day", pa.duration("us")),
    ("interval hour to minute", pa.duration("us")),
    ("int[]", pa.int32()),
    ("int", pa.list_(pa.int32())),
    ("int[]", pa.list_(pa.list_(pa.int32()))),
    ("@mood[]", pa.list_(pa.string())),
    ("numeric[]", pa.list_(pa.decimal128(5, 2))),
    ("bigint GENERATED ALWAYS AS IDENTITY", pa.int64()),
    ("bigint GENERATED ALWAYS AS (k + 1) STORED", pa.int64()),
]


def test_a_type_that_cannot_hold_the_streams_is_refused_before_the_start(place: Place) -> None:
    wide_table(place, [column for column, _ in REFUSED])
    sink = place.sink().choose()
    for n, (_, kind) in enumerate(REFUSED):
        with pytest.raises(TargetRefused, match=rf"column 'c{n}' .* cannot faithfully take"):
            sink.check(pa.schema([("k", pa.int64()), (f"c{n}", kind)]), output_mode="append")


def test_timestamps_with_and_without_a_zone_are_not_mixed(place: Place) -> None:
    wide_table(place, ["timestamp", "timestamptz"])
    hints = {
        UTC: "make the column timestamptz, or cast it to timestamp_ntz in the query",
        US: "make the column timestamp, or cast it to timestamp in the query",
    }
    for n, kind in enumerate((UTC, US)):
        with pytest.raises(TargetRefused, match=f"'c{n}'") as refused:
            place.sink().choose().check(pa.schema([("k", pa.int64()), (f"c{n}", kind)]), output_mode="append")
        assert refused.value.hint == hints[kind]


@pytest.fixture
def latin(postgres: PostgresServer) -> Iterator[str]:
    postgres.query("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    yield postgres.url.replace("/postgres", "/latin").replace("postgresql:/latin", "postgresql:/")
    postgres.query("DROP DATABASE latin WITH (FORCE)")


@pytest.mark.parametrize("variant", [{}, {"two_phase": False}], ids=str)
def test_a_database_of_another_encoding_gets_the_same_characters(latin: str, variant: dict[str, Any]) -> None:
    from onceward.connections.postgres import Address, pooled
    from onceward.sinks import PostgresSink

    sink = PostgresSink(latin, table="rows", **variant).choose()
    batch = batch_of(c=pa.array(["Zoë"]))
    sink.check(batch.schema, output_mode="append")
    deliver(sink, [batch])
    with pooled(Address.parse(latin)) as session:
        assert session.run("SELECT length(c), ascii(right(c, 1)) FROM rows") == [(3, 0xEB)]
    with pytest.raises((PostgresError, RowsRejected), match="no equivalent in encoding"):
        deliver(sink, [batch_of(c=pa.array(["π"]))], epoch=1)
