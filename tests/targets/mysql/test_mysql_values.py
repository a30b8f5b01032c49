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
from mysql_workspace import JOB, MySQLWorkspace, pre_committed, send

from onceward.connections.mysql import Session
from onceward.contracts import Committed, SlotContext
from onceward.errors import RowsRejected, TargetRefused
from onceward.identity import Fingerprint, RunId
from onceward.sinks.mysql.compatibility import _takes
from onceward.sinks.mysql.table import Column, Server
from onceward.sinks.mysql.table import declared as declared_as
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


def read_back(workspace: MySQLWorkspace) -> dict[str, list[Any]]:
    rows = workspace.rows(order="ORDER BY n")
    readers = {name: reader for name, (_, _, reader) in COLUMNS.items()}
    return {name: [None if row[name] is None else readers[name](row[name]) for row in rows] for name in readers}


@pytest.fixture(scope="module")
def sinks() -> dict[str, Any]:
    return {}


def ready(workspace: MySQLWorkspace, variant: str, made: dict[str, Any]) -> Any:
    if workspace.database not in made:
        options = {"mode": "upsert", "keys": ["n"]} if variant == "upsert" else {}
        made[workspace.database] = workspace.sink(**options)
        made[workspace.database].check(schema(), output_mode="append")
    workspace.query("DELETE FROM `rows`")
    return made[workspace.database]


def stage_and_commit(sink: Any, batch: pa.RecordBatch, attempts: Iterator[int]) -> None:
    context = SlotContext(JOB, sink.name, 0, 0, 0, next(attempts), RunId("rrrrrr"), AT, Fingerprint("f"))
    transaction = sink.begin_transaction(context)
    for start in range(0, batch.num_rows, 4):
        sink.invoke(transaction, batch.slice(start, 4))
    assert sink.commit(pre_committed(sink, transaction)) == Committed()


@pytest.mark.parametrize("variant", ["append", "upsert"])
def test_every_value_comes_back_as_it_went_in(quick: MySQLWorkspace, variant: str, sinks: dict[str, Any]) -> None:
    attempts = iter(range(1, 1 << 20))

    @settings(
        max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(tables())
    def holds(values: dict[str, list[Any]]) -> None:
        sink, batch = ready(quick, variant, sinks), batch_of(values)
        if variant == "append":
            stage_and_commit(sink, batch, attempts)
        else:
            send(sink, 0, batch)
        assert read_back(quick) == values

    holds()


@pytest.mark.parametrize("texts", [[""], ["", "", "x"], ["\\N"], ["NULL", None], ["\n"], ["\t\t", "\\"]], ids=repr)
def test_a_single_column_of_text(workspace: MySQLWorkspace, texts: list[str | None]) -> None:
    """An empty line is a row, too."""
    sink = workspace.sink().alternate
    batch = pa.record_batch({"text": pa.array(texts, pa.string())})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert [row["text"] for row in workspace.rows()] == texts


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
def test_a_value_that_mysql_does_not_have_is_refused_with_its_row(
    workspace: MySQLWorkspace, array: pa.Array, what: str
) -> None:
    sink = workspace.sink()
    batch = pa.record_batch({"x": array})
    sink.check(batch.schema, output_mode="append")
    context = SlotContext(JOB, sink.name, 0, 0, 0, 1, RunId("rrrrrr"), AT, Fingerprint("f"))
    transaction = sink.begin_transaction(context)
    sink.invoke(transaction, batch)
    with pytest.raises(TargetRefused, match=f"column 'x' .*{what}"):
        sink.pre_commit(transaction)
    sink.discard(transaction)
    assert workspace.rows() == []


def test_values_that_are_not_finite_become_null_where_that_is_wished(workspace: MySQLWorkspace) -> None:
    sink = workspace.sink(non_finite="null").alternate
    batch = pa.record_batch({"x": [1.5, float("nan"), float("inf"), None]})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert [row["x"] for row in workspace.rows()] == [1.5, None, None, None]


def test_instants_are_stored_in_utc_in_either_kind_of_column(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (a DATETIME(6), b TIMESTAMP(6) NULL) ENGINE=InnoDB")
    at = datetime(2026, 7, 1, 12, 0, 0, 1, tzinfo=UTC)
    kind = pa.timestamp("us", "Europe/Berlin")
    sink = workspace.sink().alternate
    batch = pa.record_batch({"a": pa.array([at], kind), "b": pa.array([at], kind)})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert workspace.rows() == [{"a": at.replace(tzinfo=None), "b": at.replace(tzinfo=None)}]


def test_what_is_too_long_too_large_or_not_in_the_charset_is_refused(workspace: MySQLWorkspace) -> None:
    workspace.query(
        "CREATE TABLE `rows` (s VARCHAR(3) CHARACTER SET latin1, b VARBINARY(2), j JSON, u INT UNIQUE, "
        "t TIMESTAMP(6) NULL, e ENUM('x')) ENGINE=InnoDB"
    )
    workspace.query("INSERT INTO `rows` (u) VALUES (1)")
    bad: dict[str, pa.Array] = {
        "s": pa.array(["abc", "abcd"]),
        "b": pa.array([b"12", b"123"]),
        "j": pa.array(["{}", "{"]),
        "u": pa.array([2, 1], pa.int32()),
        "t": pa.array([AT, AT + timedelta(days=366 * 100)], pa.timestamp("us", "UTC")),
        "e": pa.array(["x", "y"]),
    }
    for name, array in bad.items():
        sink = workspace.sink(two_phase=False)
        batch = pa.record_batch({name: array})
        sink.check(batch.schema, output_mode="append")
        with pytest.raises(RowsRejected, match="does not take a row of slot 0 as it is"):
            send(sink, 0, batch)
    sink = workspace.sink(two_phase=False)
    with pytest.raises(RowsRejected, match="does not take a row"):
        send(sink, 0, pa.record_batch({"s": ["é", "数"]}))
    assert [row["u"] for row in workspace.rows()] == [1]
    send(sink, 0, pa.record_batch({"s": ["é"]}))
    assert [row["s"] for row in workspace.rows(order="WHERE s IS NOT NULL")] == ["é"]


def test_booleans_fit_numbers_and_bits(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (a BIT(1), b TINYINT(1), c BIGINT) ENGINE=InnoDB")
    sink = workspace.sink().alternate
    batch = pa.record_batch({name: pa.array([True, False, None]) for name in "abc"})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert [tuple(row.values()) for row in workspace.rows()] == [(b"\1", 1, 1), (b"\0", 0, 0), (None, None, None)]


def test_types_that_cannot_be_stored_are_refused_by_name(workspace: MySQLWorkspace) -> None:
    for kind in (pa.duration("us"), pa.month_day_nano_interval(), pa.null(), pa.decimal128(38, 35)):
        with pytest.raises(TargetRefused, match="column 'odd'"):
            workspace.sink().check(pa.schema([("odd", kind)]), output_mode="append")
    assert workspace.query("SHOW TABLES") == []


def test_dates_and_times_read_as_they_are(workspace: MySQLWorkspace) -> None:
    sink = workspace.sink().alternate
    batch = pa.record_batch({"d": [date(2026, 2, 28)], "t": pa.array([time(23, 59, 59, 999_999)], pa.time64("us"))})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert workspace.query("SELECT CAST(d AS CHAR), CAST(t AS CHAR) FROM `rows`") == [("2026-02-28", "23:59:59.999999")]


def test_a_slot_of_many_loads_is_loaded_while_its_rows_come_in(
    workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.sinks.mysql.loader._BYTES_IN_A_LOAD", 1000)
    sink = workspace.sink()
    batch = pa.record_batch({"n": pa.array(range(2000), pa.int64()), "t": [f"text {n}" for n in range(2000)]})
    sink.check(batch.schema, output_mode="append")
    stage_and_commit(sink, batch, iter([1]))
    assert [(row["n"], row["t"]) for row in workspace.rows()] == [(n, f"text {n}") for n in range(2000)]


def test_a_row_refused_in_the_middle_of_a_slot_is_told_and_leaves_nothing(
    workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.sinks.mysql.loader._BYTES_IN_A_LOAD", 1000)
    sink = workspace.sink()
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
    assert (workspace.rows(), workspace.prepared()) == ([], [])


# --- scenario 92: what the server would change without a word ------------------------------------

CHANGED: dict[str, tuple[str, pa.Array, str]] = {
    "a time for null": (
        "TIMESTAMP(6) NOT NULL DEFAULT NOW(6)",
        pa.array([AT, None], pa.timestamp("us", "UTC")),
        "NOT NULL",
    ),
    "a number for null": ("BIGINT NOT NULL AUTO_INCREMENT, KEY (x)", pa.array([7, None], pa.int64()), "NOT NULL"),
    "a default for null": ("BIGINT NOT NULL DEFAULT 5", pa.array([7, None], pa.int64()), "NOT NULL"),
    "zero for null": ("BIGINT NOT NULL", pa.array([7, None], pa.int64()), "NOT NULL"),
    "nothing for null": ("VARCHAR(9) NOT NULL", pa.array(["", None]), "NOT NULL"),
    "a flag for null": ("BOOLEAN NOT NULL", pa.array([True, None]), "NOT NULL"),
    "the third member": ("ENUM('x','y','z')", pa.array(["z", "3"]), "enum"),
    "another spelling": ("ENUM('x')", pa.array(["x", "X"]), "enum"),
    "members in order": ("SET('x','y')", pa.array(["x,y", "y,x"]), "set"),
    "no blanks in a CHAR": ("CHAR(9)", pa.array(["x", "x "]), "blanks at the end"),
    "blanks that are too many": ("VARCHAR(3)", pa.array(["x  ", "x   "]), "longer"),
    "blanks too many for bytes": ("TINYTEXT", pa.array(["x", "x" + " " * 255]), "longer"),
    "blanks too many for latin1": ("TINYTEXT CHARACTER SET latin1", pa.array(["é" * 255, "é" + " " * 255]), "longer"),
    "nanoseconds": ("TIME(6)", pa.array([1_000, 1_001], pa.time64("ns")), "nanoseconds"),
}


@pytest.mark.parametrize("notes", ["basic", ""])
@pytest.mark.parametrize("what", CHANGED)
def test_s92_a_value_that_the_server_would_change_without_a_word_is_rejected_with_its_row(
    workspace: MySQLWorkspace, what: str, notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, array, said = CHANGED[what]
    workspace.query(f"CREATE TABLE `rows` (x {declared}) CHARACTER SET utf8mb4")
    connect = Session.__init__

    def noting(self: Session, *args: Any, **options: Any) -> None:
        connect(self, *args, **options)
        self.execute(f"SET SESSION note_verbosity = '{notes}', explicit_defaults_for_timestamp = 0")

    monkeypatch.setattr(Session, "__init__", noting)
    sink, batch = workspace.sink(two_phase=False), pa.record_batch({"x": array})
    sink.check(batch.schema, output_mode="append")
    with pytest.raises(RowsRejected, match=rf"column 'x' has .* in row 2, and .*{said}"):
        send(sink, 0, batch)
    assert workspace.rows() == []
    send(sink, 0, batch.slice(0, 1))
    assert len(workspace.rows()) == 1


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("DOUBLE(10,2)", pa.float64()),
        ("FLOAT(7,3)", pa.float32()),
        ("DOUBLE(10,2)", pa.int32()),
        ("TIME(3)", pa.time64("us")),
        ("DATETIME(3)", pa.timestamp("us")),
        ("DECIMAL(9,2)", pa.decimal128(9, 3)),
        ("BINARY(9)", pa.binary()),
        ("BIT(8)", pa.int8()),
        ("VARCHAR(9) CHARACTER SET cp932", pa.string()),
        ("SET('a')", pa.list_(pa.string())),
        ("VARCHAR(9) AS ('a')", pa.string()),
    ],
)
def test_s92_a_column_that_would_change_values_is_refused_by_name(
    workspace: MySQLWorkspace, declared: str, kind: pa.DataType
) -> None:
    workspace.query(f"CREATE TABLE `rows` (odd {declared})")
    with pytest.raises(TargetRefused, match="column 'odd'"):
        workspace.sink().check(pa.schema([("odd", kind)]), output_mode="append")


def test_s92_the_members_of_an_enum_are_read_as_they_are_declared(workspace: MySQLWorkspace) -> None:
    members = ["a", "b'c", "d,e", "x\\y", "n\nl", "", "')"]
    literals = ", ".join(
        "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'" for text in members
    )
    workspace.query(f"CREATE TABLE `rows` (x ENUM({literals}))")
    sink, batch = workspace.sink(two_phase=False), pa.record_batch({"x": pa.array(members)})
    sink.check(batch.schema, output_mode="append")
    send(sink, 0, batch)
    assert [row["x"] for row in workspace.rows()] == members


@pytest.mark.parametrize("name", ["onceward_row", "ONCEWARD_ROW", "onceward_rank", "number", "is_there"])
@pytest.mark.parametrize("deleted", [None, "gone"])
def test_s93_a_column_that_has_a_name_of_ours_is_a_column_like_any_other(
    workspace: MySQLWorkspace, name: str, deleted: str | None
) -> None:
    sink = workspace.sink(mode="upsert", keys=["id"], deleted=deleted)
    flags = {"gone": pa.array([False] * 4)} if deleted else {}
    batch = pa.record_batch({"id": pa.array([1, 1, 2, 2]), name: pa.array([9, 3, 5, 4]), **flags})
    sink.check(batch.schema, output_mode="update")
    send(sink, 0, batch)
    assert [(row["id"], row[name]) for row in workspace.rows(order="ORDER BY id")] == [(1, 3), (2, 4)]


def test_json_of_mysql_8_is_refused_where_it_would_not_keep_the_value() -> None:
    """MySQL keeps what a JSON text says, and every fraction as a double. By its manual: no such server is at hand."""
    mysql, mariadb = Server((8, 0, 36), False, False, True, False), Server((10, 11, 0), True, False, True, False)
    column = Column("x", "json", "json", None, None, None, None, True, None, False, False, None, None)
    exact, rounded = pa.list_(pa.int64()), pa.struct([("a", pa.map_(pa.string(), pa.decimal128(30, 5)))])
    assert [_takes(column, kind, mysql) for kind in (pa.string(), exact, rounded)] == [False, True, False]
    assert [_takes(column, kind, mariadb) for kind in (pa.string(), exact, rounded)] == [True, True, True]
    assert [declared_as(kind, mysql).partition(" ")[0] for kind in (exact, rounded)] == ["JSON", "LONGTEXT"]
