"""What goes in comes out: every type, any value, both ways; and what MySQL cannot store is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mysql_ground import JOB, Ground, send

from onceward.contracts import Committed, SlotContext
from onceward.errors import RowsRejected, TargetRefused
from onceward.identity import Fingerprint, RunId
from onceward.testing.conformance.base import AT

pytestmark = pytest.mark.cluster

FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
# Every text that UTF-8 can spell, and more often the characters that mean something to LOAD DATA.
TEXTS = st.text(st.one_of(st.sampled_from("\\\t\n\r\0\x1aNn'\"`%;, 🦆"), st.characters(exclude_categories=["Cs"])))


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(1 << (bits - 1)) if signed else 0
    return st.integers(low, low + (1 << bits) - 1)


def same(value: Any) -> Any:
    return value


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Any]] = {
    "bool": (pa.bool_(), st.booleans(), bool),
    "int8": (pa.int8(), integers(8), same),
    "int16": (pa.int16(), integers(16), same),
    "int32": (pa.int32(), integers(32), same),
    "int64": (pa.int64(), integers(64), same),
    "uint8": (pa.uint8(), integers(8, signed=False), same),
    "uint32": (pa.uint32(), integers(32, signed=False), same),
    "uint64": (pa.uint64(), integers(64, signed=False), same),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False), same),
    "double": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False), same),
    "decimal": (
        pa.decimal128(38, 18),
        st.decimals(min_value=-(10**19), max_value=10**19, places=18, allow_nan=False, allow_infinity=False),
        same,
    ),
    "small decimal": (pa.decimal128(20, 0), st.integers(-(10**20) + 1, 10**20 - 1).map(Decimal), same),
    "text": (pa.string(), TEXTS, same),
    "many texts": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["", "a\tb", "\\N", "NULL"]), same),
    "bytes": (pa.binary(), st.binary(), same),
    "date": (pa.date32(), st.dates(FIRST.date(), LAST.date()), same),
    "time": (pa.time64("us"), st.times(), lambda value: (datetime.min + value).time()),
    "instant": (
        pa.timestamp("us", "UTC"),
        st.datetimes(FIRST, LAST).map(lambda value: value.replace(tzinfo=UTC)),
        lambda value: value.replace(tzinfo=UTC),
    ),
    "local": (pa.timestamp("us"), st.datetimes(FIRST, LAST), same),
    "list": (pa.list_(pa.int32()), st.lists(st.one_of(st.none(), integers(32)), max_size=4), json.loads),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(TEXTS, integers(32), max_size=3).map(lambda value: list(value.items())),
        lambda text: list(json.loads(text).items()),
    ),
    "struct": (pa.struct([("a", pa.string())]), st.fixed_dictionaries({"a": TEXTS}), json.loads),
}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    count = draw(st.integers(1, 6))
    return {
        name: draw(st.lists(st.one_of(st.none(), values), min_size=count, max_size=count))
        for name, (_, values, _) in COLUMNS.items()
    }


def schema() -> pa.Schema:
    return pa.schema([("n", pa.int64())] + [(name, kind) for name, (kind, _, _) in COLUMNS.items()])


def batch_of(values: dict[str, list[Any]]) -> pa.RecordBatch:
    count = len(next(iter(values.values())))
    arrays = [pa.array(range(count), pa.int64())]
    arrays += [pa.array(values[name], kind) for name, (kind, _, _) in COLUMNS.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def read_back(ground: Ground) -> dict[str, list[Any]]:
    rows = ground.rows(order="ORDER BY n")
    readers = {name: reader for name, (_, _, reader) in COLUMNS.items()}
    return {name: [None if row[name] is None else readers[name](row[name]) for row in rows] for name in readers}


@pytest.fixture(scope="module")
def sinks() -> dict[str, Any]:
    return {}


def ready(ground: Ground, way: str, made: dict[str, Any]) -> Any:
    if ground.database not in made:
        options = {"mode": "upsert", "keys": ["n"]} if way == "upsert" else {}
        made[ground.database] = ground.sink(**options)
        made[ground.database].check(schema(), output_mode="append")
    ground.query("DELETE FROM `rows`")
    return made[ground.database]


def stage_and_commit(sink: Any, batch: pa.RecordBatch, attempts: Iterator[int]) -> None:
    context = SlotContext(JOB, sink.name, 0, 0, 0, next(attempts), RunId("rrrrrr"), AT, Fingerprint("f"))
    transaction = sink.begin_transaction(context)
    for start in range(0, batch.num_rows, 4):
        sink.invoke(transaction, batch.slice(start, 4))
    assert sink.commit(sink.pre_commit(transaction)) == Committed()


@pytest.mark.parametrize("way", ["append", "upsert"])
def test_every_value_comes_back_as_it_went_in(quick: Ground, way: str, sinks: dict[str, Any]) -> None:
    attempts = iter(range(1, 1 << 20))

    @settings(
        max_examples=150, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(tables())
    def holds(values: dict[str, list[Any]]) -> None:
        sink, batch = ready(quick, way, sinks), batch_of(values)
        if way == "append":
            stage_and_commit(sink, batch, attempts)
        else:
            send(sink, 0, batch)
        assert read_back(quick) == values

    holds()


@pytest.mark.parametrize("texts", [[""], ["", "", "x"], ["\\N"], ["NULL", None], ["\n"], ["\t\t", "\\"]], ids=repr)
def test_a_single_column_of_text(ground: Ground, texts: list[str | None]) -> None:
    """An empty line is a row, too."""
    sink = ground.sink().other_way
    batch = pa.record_batch({"text": pa.array(texts, pa.string())})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert [row["text"] for row in ground.rows()] == texts


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (pa.array([1.0, float("nan")]), "nan in row 2"),
        (pa.array([None, float("-inf")]), "-inf in row 2"),
        (pa.array([0, 253402300800000000], pa.timestamp("us")), "in row 2"),
        (pa.array([0, -62135596800000001], pa.timestamp("us", "UTC")), "in row 2"),
        (pa.array([0, None, 1500], pa.timestamp("ns")), "in row 3"),
        (pa.array([0, 2932897], pa.date32()), "in row 2"),
    ],
    ids=["nan", "infinity", "after 9999", "before 1", "nanoseconds", "date after 9999"],
)
def test_a_value_that_mysql_does_not_have_is_refused_with_its_row(ground: Ground, array: pa.Array, what: str) -> None:
    sink = ground.sink()
    batch = pa.record_batch({"x": array})
    sink.check(batch.schema, output_mode="append")
    context = SlotContext(JOB, sink.name, 0, 0, 0, 1, RunId("rrrrrr"), AT, Fingerprint("f"))
    transaction = sink.begin_transaction(context)
    sink.invoke(transaction, batch)
    with pytest.raises(TargetRefused, match=f"column 'x' .*{what}"):
        sink.pre_commit(transaction)
    sink.discard(transaction)
    assert ground.rows() == []


def test_values_that_are_not_finite_become_null_where_that_is_wished(ground: Ground) -> None:
    sink = ground.sink(non_finite="null").other_way
    batch = pa.record_batch({"x": [1.5, float("nan"), float("inf"), None]})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert [row["x"] for row in ground.rows()] == [1.5, None, None, None]


def test_instants_are_stored_in_utc_in_either_kind_of_column(ground: Ground) -> None:
    ground.query("CREATE TABLE `rows` (a DATETIME(6), b TIMESTAMP(6) NULL) ENGINE=InnoDB")
    at = datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=UTC)
    kind = pa.timestamp("us", "Europe/Berlin")
    sink = ground.sink().other_way
    batch = pa.record_batch({"a": pa.array([at], kind), "b": pa.array([at], kind)})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert ground.rows() == [{"a": at.replace(tzinfo=None), "b": at.replace(tzinfo=None)}]


def test_what_is_too_long_too_large_or_not_in_the_charset_is_refused(ground: Ground) -> None:
    ground.query(
        "CREATE TABLE `rows` (s VARCHAR(3) CHARACTER SET latin1, b VARBINARY(2), j JSON, u INT UNIQUE, "
        "t TIMESTAMP(6) NULL, e ENUM('x')) ENGINE=InnoDB"
    )
    ground.query("INSERT INTO `rows` (u) VALUES (1)")
    bad: dict[str, pa.Array] = {
        "s": pa.array(["abc", "abcd"]),
        "b": pa.array([b"12", b"123"]),
        "j": pa.array(["{}", "{"]),
        "u": pa.array([2, 1], pa.int32()),
        "t": pa.array([AT, AT + timedelta(days=366 * 100)], pa.timestamp("us", "UTC")),
        "e": pa.array(["x", "y"]),
    }
    for name, array in bad.items():
        sink = ground.sink(two_phase=False)
        batch = pa.record_batch({name: array})
        sink.check(batch.schema, output_mode="append")
        with pytest.raises(RowsRejected, match="does not take a row of slot 0 as it is"):
            send(sink, 0, batch)
    sink = ground.sink(two_phase=False)
    with pytest.raises(RowsRejected, match="does not take a row"):
        send(sink, 0, pa.record_batch({"s": ["é", "数"]}))
    assert [row["u"] for row in ground.rows()] == [1]
    send(sink, 0, pa.record_batch({"s": ["é"]}))
    assert [row["s"] for row in ground.rows(order="WHERE s IS NOT NULL")] == ["é"]


def test_booleans_fit_numbers_and_bits(ground: Ground) -> None:
    ground.query("CREATE TABLE `rows` (a BIT(1), b TINYINT(1), c BIGINT) ENGINE=InnoDB")
    sink = ground.sink().other_way
    batch = pa.record_batch({name: pa.array([True, False, None]) for name in "abc"})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert [tuple(row.values()) for row in ground.rows()] == [(b"\1", 1, 1), (b"\0", 0, 0), (None, None, None)]


def test_types_that_cannot_be_stored_are_refused_by_name(ground: Ground) -> None:
    for kind in (pa.duration("us"), pa.month_day_nano_interval(), pa.null(), pa.decimal128(38, 35)):
        with pytest.raises(TargetRefused, match="column 'odd'"):
            ground.sink().check(pa.schema([("odd", kind)]), output_mode="append")
    assert ground.query("SHOW TABLES") == []


def test_dates_and_times_read_as_they_are(ground: Ground) -> None:
    sink = ground.sink().other_way
    batch = pa.record_batch({"d": [date(2026, 2, 28)], "t": pa.array([time(23, 59, 59, 999_999)], pa.time64("us"))})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert ground.query("SELECT CAST(d AS CHAR), CAST(t AS CHAR) FROM `rows`") == [("2026-02-28", "23:59:59.999999")]


def test_a_slot_of_many_loads_is_loaded_while_its_rows_come_in(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.sinks.mysql.loader._BYTES_IN_A_LOAD", 1000)
    sink = ground.sink()
    batch = pa.record_batch({"n": pa.array(range(2000), pa.int64()), "t": [f"text {n}" for n in range(2000)]})
    sink.check(batch.schema, output_mode="append")
    stage_and_commit(sink, batch, iter([1]))
    assert [(row["n"], row["t"]) for row in ground.rows()] == [(n, f"text {n}") for n in range(2000)]


def test_a_row_refused_in_the_middle_of_a_slot_is_told_and_leaves_nothing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.sinks.mysql.loader._BYTES_IN_A_LOAD", 1000)
    sink = ground.sink()
    batch = pa.record_batch({"x": [float("nan") if n == 700 else float(n) for n in range(2000)]})
    sink.check(batch.schema, output_mode="append")
    context = SlotContext(JOB, sink.name, 0, 0, 0, 1, RunId("rrrrrr"), AT, Fingerprint("f"))
    transaction = sink.begin_transaction(context)

    def deliver() -> None:
        for start in range(0, 2000, 50):
            sink.invoke(transaction, batch.slice(start, 50))
        sink.pre_commit(transaction)

    with pytest.raises(TargetRefused, match="nan in row 701"):
        deliver()
    sink.discard(transaction)
    assert (ground.rows(), ground.prepared()) == ([], [])
