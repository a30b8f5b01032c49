"""Scenario 96: what is one key is for the unique index to say, not for an `=` that happens to be found."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from onceward.contracts import AnySink
from onceward.errors import TargetRefused

from .conftest import Place
from .deliver import batch_of, deliver

pytestmark = pytest.mark.cluster
IGNORES_CASE = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


@pytest.fixture(autouse=True, params=[10_000, 1], ids=["few", "many"])
def _many_rows_begin_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways for small epochs and those that only pay for large ones."""
    monkeypatch.setattr("onceward.sinks.postgres.upsert._MANY", request.param)
    monkeypatch.setattr("onceward.sinks.postgres.insert_only._MANY", request.param)


@pytest.fixture
def citext(place: Place) -> Any:
    """The extension in a schema that the sink's search path does not have."""
    place.query('CREATE SCHEMA "~_types"'.replace("~", place.schema))
    place.query(f'CREATE EXTENSION citext SCHEMA "{place.schema}_types"')
    yield f'"{place.schema}_types".citext'
    place.query("DROP EXTENSION citext CASCADE")
    place.query(f'DROP SCHEMA "{place.schema}_types" CASCADE')


def batch(keys: list[Any], values: list[str], kind: pa.DataType | None = None, **more: list[Any]) -> pa.RecordBatch:
    others = {name: pa.array(column) for name, column in more.items()}
    return batch_of(k=pa.array(keys, kind or pa.string()), v=pa.array(values), **others)


def upsert(place: Place, one: pa.RecordBatch, **options: Any) -> AnySink:
    sink = place.sink(**{"mode": "upsert", "keys": ["k"], **options}).choose()
    sink.check(one.schema, output_mode="update")
    return sink


def stored(place: Place) -> list[tuple[Any, ...]]:
    return place.query("SELECT k::text, v FROM ~.rows ORDER BY 1")


def test_a_delete_finds_its_row_by_a_type_outside_the_search_path(place: Place, citext: str) -> None:
    place.query(f"CREATE TABLE ~.rows (k {citext} UNIQUE, v text)")
    sink = upsert(place, batch(["a"], ["x"], deleted=[False]), deleted="deleted")
    deliver(sink, [batch(["Ada", "Bob"], ["1", "2"], deleted=[False, False])])
    deliver(sink, [batch(["ADA"], ["3"], deleted=[True])], epoch=1)
    assert stored(place) == [("Bob", "2")]


def test_the_last_of_several_spellings_of_one_key_stays_and_is_spelt_as_it_came(place: Place, citext: str) -> None:
    place.query(f"CREATE TABLE ~.rows (k {citext} UNIQUE, v text)")
    sink = upsert(place, batch(["a"], ["x"]))
    deliver(sink, [batch(["ada", "Ada"], ["1", "2"])])
    assert stored(place) == [("Ada", "2")]
    deliver(sink, [batch(["ADA"], ["3"])], epoch=1)
    assert stored(place) == [("ADA", "3")]


@pytest.mark.parametrize("order_by", [None, "at"])
def test_an_index_that_knows_case_over_a_column_that_does_not_keeps_both_rows(
    place: Place, order_by: str | None
) -> None:
    place.query(f"CREATE COLLATION ~.ignoring {IGNORES_CASE}")
    place.query("CREATE TABLE ~.rows (k text COLLATE ~.ignoring, v text, at bigint)")
    place.query('CREATE UNIQUE INDEX ON ~.rows (k COLLATE "C")')
    sink = upsert(place, batch(["a"], ["x"], at=[1]), order_by=order_by)
    deliver(sink, [batch(["a", "A", "b"], ["1", "2", "3"], at=[1, 2, 3])])
    wanted = [("A", "2"), ("a", "1"), ("b", "3")]
    assert sorted(stored(place)) == wanted
    deliver(sink, [batch(["a", "A", "b"], ["4", "5", "6"], at=[1, 2, 3])], epoch=1)
    assert sorted(stored(place)) == [("A", "5"), ("a", "4"), ("b", "6")]


@pytest.mark.parametrize("order_by", [None, "at"])
def test_an_index_that_ignores_case_over_a_column_that_knows_it_keeps_one_row(
    place: Place, order_by: str | None
) -> None:
    place.query(f"CREATE COLLATION ~.ignoring {IGNORES_CASE}")
    place.query("CREATE TABLE ~.rows (k text, v text, at bigint)")
    place.query("CREATE UNIQUE INDEX ON ~.rows (k COLLATE ~.ignoring)")
    sink = upsert(place, batch(["a"], ["x"], at=[1], deleted=[False]), order_by=order_by, deleted="deleted")
    deliver(sink, [batch(["a", "A", "b"], ["1", "2", "3"], at=[1, 2, 3], deleted=[False] * 3)])
    assert stored(place) == [("A", "2"), ("b", "3")]
    deliver(sink, [batch(["a", "B"], ["4", "5"], at=[3, 4], deleted=[False, True])], epoch=1)
    assert stored(place) == [("a", "4")]


def test_a_key_with_a_null_in_it_goes_by_the_same_equality(place: Place, citext: str) -> None:
    place.query(f"CREATE TABLE ~.rows (k {citext}, n bigint, v text, UNIQUE (k, n))")
    one = batch(["Ada", "Bob"], ["1", "2"], n=pa.array([None, None], pa.int64()))
    sink = upsert(place, one, keys=["k", "n"])
    deliver(sink, [one])
    deliver(sink, [batch(["ADA"], ["3"], n=pa.array([None], pa.int64()))], epoch=1)
    assert stored(place) == [("ADA", "3"), ("Bob", "2")]


SAME: list[tuple[str, pa.DataType, Any, Any]] = [
    ("numeric", pa.decimal128(10, 2), Decimal("1.00"), Decimal("1.00")),
    ("double precision", pa.float64(), 0.0, -0.0),
    ("double precision", pa.float64(), float("nan"), float("nan")),
    ("real", pa.float32(), -0.0, 0.0),
    ("jsonb", pa.string(), '{"a": 1, "b": 2}', '{"b": 2.0, "a": 1}'),
    ("double precision[]", pa.list_(pa.float64()), [0.0], [-0.0]),
    ("char(2)", pa.string(), "ab", "ab"),
    ("uuid", pa.string(), "01234567-89ab-cdef-0123-456789abcdef", "0123456789ABCDEF0123456789ABCDEF"),
    ("~.word", pa.string(), "x", "x"),
    ("bytea", pa.binary(), b"\0", b"\0"),
]


@pytest.mark.parametrize(("column", "kind", "first", "second"), SAME, ids=[one[0] for one in SAME])
def test_each_kind_of_key_is_one_key_where_its_index_says_so(
    place: Place, column: str, kind: pa.DataType, first: Any, second: Any
) -> None:
    place.query("CREATE DOMAIN ~.word AS varchar(5) CHECK (value <> '')")
    place.query(f"CREATE TABLE ~.rows (k {column} UNIQUE, v text)")
    sink = upsert(place, batch([first], ["1"], kind, deleted=[False]), deleted="deleted")
    deliver(sink, [batch([first, second], ["1", "2"], kind, deleted=[False, False])])
    assert [v for _, v in stored(place)] == ["2"]
    again = place.query("SELECT k FROM ~.rows")
    deliver(sink, [batch([first], ["3"], kind, deleted=[False])], epoch=1)
    assert [v for _, v in stored(place)] == ["3"]
    deliver(sink, [batch([second], ["4"], kind, deleted=[False])], epoch=2)
    assert repr(place.query("SELECT k FROM ~.rows")) == repr(again), "it is spelt as it came last"
    deliver(sink, [batch([first], ["5"], kind, deleted=[True])], epoch=3)
    assert stored(place) == []


def test_two_indexes_that_disagree_are_refused_by_name(place: Place) -> None:
    place.query(f"CREATE COLLATION ~.ignoring {IGNORES_CASE}")
    place.query("CREATE TABLE ~.rows (k text, v text)")
    place.query('CREATE UNIQUE INDEX strict ON ~.rows (k COLLATE "C")')
    place.query("CREATE UNIQUE INDEX loose ON ~.rows (k COLLATE ~.ignoring)")
    with pytest.raises(TargetRefused, match=r"'loose' and 'strict' .* do not take the same keys for equal"):
        upsert(place, batch(["a"], ["x"]))
    place.query("DROP INDEX ~.loose")
    place.query('CREATE UNIQUE INDEX second ON ~.rows (k COLLATE "C")')
    upsert(place, batch(["a"], ["x"]))


def test_an_operator_class_with_an_equality_of_its_own_is_refused_by_name(place: Place) -> None:
    function = "CREATE FUNCTION ~.{}(bigint, bigint) RETURNS {} IMMUTABLE LANGUAGE sql AS '{}'"
    place.query(function.format("alike", "boolean", "SELECT $1 % 10 = $2 % 10"))
    place.query(function.format("compared", "int", "SELECT sign($1 % 10 - $2 % 10)::int"))
    place.query("CREATE OPERATOR ~.=== (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = ~.alike)")
    place.query(
        "CREATE OPERATOR CLASS ~.last_digit FOR TYPE bigint USING btree AS "
        "OPERATOR 3 ~.===, FUNCTION 1 ~.compared(bigint, bigint)"
    )
    place.query("CREATE TABLE ~.rows (k bigint, v text)")
    place.query("CREATE UNIQUE INDEX ON ~.rows (k ~.last_digit)")
    with pytest.raises(TargetRefused, match="column 'k' by the operator class last_digit"):
        upsert(place, batch([1], ["x"], pa.int64()))


def test_an_index_that_compares_a_column_as_another_type_is_gone_by(place: Place, citext: str) -> None:
    place.query(f"CREATE TABLE ~.rows (k {citext}, v text)")
    place.query("CREATE UNIQUE INDEX ON ~.rows (k text_ops)")
    sink = upsert(place, batch(["a"], ["x"]))
    deliver(sink, [batch(["a", "A", "a"], ["1", "2", "3"])])
    assert sorted(stored(place)) == [("A", "2"), ("a", "3")]
