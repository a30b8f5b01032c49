"""Upsert and replace: which row stays, what is left alone, and what a reader sees meanwhile."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onceward.connections.postgres import Session
from onceward.contracts import TransactionalWriteAheadSink
from onceward.errors import RowsRejected, TargetRefused

from .conftest import Place
from .deliver import JOB, batch_of, context, deliver, values

pytestmark = pytest.mark.cluster


def rows_of(**columns: list[Any]) -> pa.RecordBatch:
    kinds = {"deleted": pa.bool_(), "at": pa.int64(), "k": pa.int64(), "v": pa.string()}
    return batch_of(**{name: pa.array(column, kinds.get(name)) for name, column in columns.items()})


def upsert(place: Place, batch: pa.RecordBatch, **options: Any) -> TransactionalWriteAheadSink:
    sink = place.sink(**{"mode": "upsert", "keys": ["k"], **options}).choose()
    sink.check(batch.schema, output_mode="update")
    assert isinstance(sink, TransactionalWriteAheadSink)
    return sink


def table(place: Place, *columns: str) -> list[tuple[Any, ...]]:
    return place.query(f"SELECT {', '.join(columns)} FROM ~.rows ORDER BY 1 NULLS FIRST, 2 NULLS FIRST")


@pytest.fixture(autouse=True, params=[10_000, 1], ids=["few", "many"])
def _many_rows_begin_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways for small epochs and those that only pay for large ones."""
    monkeypatch.setattr("onceward.sinks.postgres.upsert._MANY", request.param)
    monkeypatch.setattr("onceward.sinks.postgres.insert_only._MANY", request.param)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent to the server from here on."""
    sent: list[str] = []
    run = Session.run

    def watched(self: Session, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        sent.append(statement)
        return run(self, statement, *parameters)

    monkeypatch.setattr(Session, "run", watched)
    return sent


def test_of_one_key_the_row_that_came_last_stays_over_batches_slots_and_epochs(place: Place) -> None:
    sink = upsert(place, rows_of(k=[1], v=[""]))
    deliver(
        sink,
        [rows_of(k=[1, 2, 1], v=["a", "b", "c"]), rows_of(k=[3, 2], v=["d", "e"])],
        [rows_of(k=[3], v=["f"]), rows_of(k=[4], v=["g"])],
    )
    assert table(place, "k", "v") == [(1, "c"), (2, "e"), (3, "f"), (4, "g")]
    deliver(sink, [rows_of(k=[1], v=["h"])], epoch=1)
    deliver(sink, [rows_of(k=[2], v=[None])], epoch=2)
    assert table(place, "k", "v") == [(1, "h"), (2, None), (3, "f"), (4, "g")]


@pytest.mark.parametrize(("keys", "sorts"), [([1, 2, 3], False), ([1, 2, 1], True)], ids=["each once", "one twice"])
def test_only_an_epoch_with_a_key_twice_is_sorted(
    place: Place, statements: list[str], keys: list[int], sorts: bool
) -> None:
    sink = upsert(place, rows_of(k=[1], v=[""]))
    deliver(sink, [rows_of(k=keys, v=["a", "b", "c"])])
    assert any("row_number()" in statement for statement in statements) == sorts
    assert dict(table(place, "k", "v")) == dict(zip(keys, "abc", strict=True))


def test_order_by_decides_and_nulls_lose_and_the_last_of_equals_stays(place: Place) -> None:
    sink = upsert(place, rows_of(k=[1], at=[1], v=[""]), order_by="at")
    deliver(
        sink,
        [rows_of(k=[1, 1, 2, 2, 3, 3, 4], at=[9, 5, None, 1, None, None, 7], v=["a", "b", "c", "d", "e", "f", "g"])],
        [rows_of(k=[1, 4, 2], at=[8, 7, None], v=["h", "i", "j"])],
    )
    assert table(place, "k", "at", "v") == [(1, 9, "a"), (2, 1, "d"), (3, None, "f"), (4, 7, "i")]


def test_a_row_that_is_deleted_removes_its_key_and_the_last_row_decides(place: Place) -> None:
    sink = upsert(place, rows_of(k=[1], v=[""], deleted=[False]), deleted="deleted")
    assert "deleted" not in {
        name for (name,) in place.query("SELECT attname::text FROM pg_attribute WHERE attrelid = '~.rows'::regclass")
    }
    deliver(sink, [rows_of(k=[1, 2, 3, None], v=["a", "b", "c", "n"], deleted=[False, None, False, False])])
    assert table(place, "k", "v") == [(None, "n"), (1, "a"), (2, "b"), (3, "c")]
    deliver(
        sink,
        [rows_of(k=[1, 1, 2, 9, 4], v=[None, "again", None, None, "d"], deleted=[True, False, True, True, False])],
        [rows_of(k=[4, 3, None], v=["x", "y", None], deleted=[True, None, True])],
        epoch=1,
    )
    assert table(place, "k", "v") == [(1, "again"), (3, "y")]


def test_deletes_follow_order_by_too(place: Place) -> None:
    sink = upsert(place, rows_of(k=[1], at=[1], v=[""], deleted=[False]), deleted="deleted", order_by="at")
    deliver(sink, [rows_of(k=[1, 2], at=[1, 1], v=["a", "b"], deleted=[False, False])])
    late = rows_of(k=[1, 1, 2, 2], at=[5, 4, 4, 5], v=["x", None, "y", None], deleted=[False, True, False, True])
    deliver(sink, [late], epoch=1)
    assert table(place, "k", "at", "v") == [(1, 5, "x")]


@pytest.mark.parametrize("index", ["UNIQUE (a, b)", "UNIQUE NULLS NOT DISTINCT (a, b)"])
def test_a_key_that_is_null_is_a_key_and_columns_beside_the_stream_keep_their_values(place: Place, index: str) -> None:
    place.query(f"CREATE TABLE ~.rows (a text, b bigint, v text, note text DEFAULT 'new', {index})")
    batch = batch_of(a=pa.array(["x", None, None, "x"]), b=pa.array([1, 1, None, None]), v=pa.array(list("pqrs")))
    sink = upsert(place, batch, keys=["a", "b"])
    deliver(sink, [batch])
    place.query("UPDATE ~.rows SET note = 'kept'")
    more = batch_of(
        a=pa.array(["x", None, None, "x", "y", None]),
        b=pa.array([1, 1, None, None, None, 2]),
        v=pa.array(list("PQRSTU")),
    )
    deliver(sink, [more, more.slice(1, 1)], epoch=1)
    assert table(place, "a", "b", "v", "note") == [
        (None, None, "R", "kept"),
        (None, 1, "Q", "kept"),
        (None, 2, "U", "new"),
        ("x", None, "S", "kept"),
        ("x", 1, "P", "kept"),
        ("y", None, "T", "new"),
    ]


def test_a_stream_of_keys_alone_adds_each_once(place: Place) -> None:
    sink = upsert(place, rows_of(k=[1]))
    deliver(sink, [rows_of(k=[1, 2, 1, None])])
    deliver(sink, [rows_of(k=[2, 3, None])], epoch=1)
    assert [k for (k,) in place.query("SELECT k FROM ~.rows ORDER BY k")] == [1, 2, 3, None]


def test_key_and_order_and_columns_are_found_in_lower_case(place: Place) -> None:
    place.query('CREATE TABLE ~.rows (userid bigint PRIMARY KEY, "At" bigint, v text)')
    batch = batch_of(UserId=pa.array([1, 1]), At=pa.array([2, 1]), V=pa.array(["new", "old"]))
    sink = upsert(place, batch, keys=["UserId"], order_by="At")
    deliver(sink, [batch])
    assert table(place, "userid", '"At"', "v") == [(1, 2, "new")]


def test_two_columns_of_the_stream_for_one_column_of_the_table_are_refused(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (k bigint PRIMARY KEY)")
    with pytest.raises(TargetRefused, match="two of the stream's columns are one column of the table"):
        upsert(place, batch_of(k=pa.array([1]), K=pa.array([2])))


def test_what_the_table_fills_in_itself_is_left_alone(place: Place) -> None:
    place.query(
        "CREATE TABLE ~.rows (id bigint GENERATED ALWAYS AS IDENTITY, k bigint PRIMARY KEY, v text, "
        "size int GENERATED ALWAYS AS (length(v)) STORED, made int DEFAULT 7 NOT NULL)"
    )
    sink = upsert(place, rows_of(k=[1], v=[""]))
    deliver(sink, [rows_of(k=[1], v=["a"])])
    place.query("UPDATE ~.rows SET made = 8")
    deliver(sink, [rows_of(k=[1, 1], v=["x", "bcd"])], epoch=1)
    assert table(place, "id", "k", "v", "size", "made") == [(1, 1, "bcd", 3, 8)]


def test_a_table_with_the_name_of_our_own_temporary_one_is_refused_and_one_with_its_columns_too(place: Place) -> None:
    from onceward.errors import ConfigurationError

    for name in ("onceward_stage", "onceward_receipts", "public.onceward_watermarks", "pg_temp.rows"):
        with pytest.raises(ConfigurationError, match="is not for rows of yours"):
            place.sink(table=name, mode="upsert", keys=["k"])
    with pytest.raises(TargetRefused, match="onceward_row"):
        upsert(place, rows_of(k=[1], onceward_row=[1]))


def test_columns_that_an_index_only_carries_along_are_no_key(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (k bigint, v text)")
    place.query("CREATE UNIQUE INDEX ON ~.rows (k) INCLUDE (v)")
    deliver(upsert(place, rows_of(k=[1], v=[""])), [rows_of(k=[1, 1], v=["a", "b"])])
    assert table(place, "k", "v") == [(1, "b")]
    with pytest.raises(TargetRefused, match="no unique index on k, v"):
        upsert(place, rows_of(k=[1], v=[""]), keys=["k", "v"])


@pytest.mark.parametrize("index", ["UNIQUE (k) DEFERRABLE", "EXCLUDE USING btree (k WITH =)"])
def test_an_index_that_cannot_take_an_upsert_is_refused_before_the_start(place: Place, index: str) -> None:
    place.query(f"CREATE TABLE ~.rows (k bigint, v text, {index})")
    place.query("CREATE UNIQUE INDEX ON ~.rows (k) WHERE k > 0")
    place.query("CREATE UNIQUE INDEX ON ~.rows ((k + 1))")
    with pytest.raises(TargetRefused, match="no unique index on k") as refused:
        upsert(place, rows_of(k=[1], v=[""]))
    assert refused.value.hint == 'run: CREATE UNIQUE INDEX ON "rows" ("k")'


def test_an_order_that_the_server_does_not_have_is_refused_before_the_start(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (k bigint PRIMARY KEY, v json)")
    with pytest.raises(TargetRefused, match="none is greater than another"):
        upsert(place, rows_of(k=[1], v=["1"]), order_by="v")


def test_a_partitioned_table_is_written_through_its_root(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (k bigint PRIMARY KEY, v text) PARTITION BY RANGE (k)")
    place.query("CREATE TABLE ~.low PARTITION OF ~.rows FOR VALUES FROM (0) TO (10)")
    place.query("CREATE TABLE ~.high PARTITION OF ~.rows FOR VALUES FROM (10) TO (20)")
    deliver(upsert(place, rows_of(k=[1], v=[""])), [rows_of(k=[1, 11, 1], v=["a", "b", "c"])])
    deliver(place.sink(name="append").choose(), [rows_of(k=[2, 12], v=["d", "e"])])
    assert table(place, "k", "v") == [(1, "c"), (2, "d"), (11, "b"), (12, "e")]
    with pytest.raises(RowsRejected, match="no partition of relation"):
        deliver(place.sink(name="append").choose(), [rows_of(k=[99], v=["x"])], epoch=1)
    assert len(table(place, "k", "v")) == 4


def test_replace_exchanges_the_whole_table_and_an_empty_epoch_empties_it(place: Place) -> None:
    sink = place.sink(mode="replace").choose()
    sink.check(rows_of(k=[1], v=[""]).schema, output_mode="complete")
    assert sink.takes_empty_epochs
    deliver(sink, [rows_of(k=[1, 2], v=["a", "b"])], [rows_of(k=[3], v=["c"])])
    deliver(sink, [rows_of(k=[2], v=["B"])], epoch=1)
    assert table(place, "k", "v") == [(2, "B")]
    deliver(sink, [], epoch=2)
    assert table(place, "k", "v") == []


def test_replacing_leaves_readers_with_the_whole_old_table_until_the_whole_new_one_is_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = place.sink(mode="replace").choose()
    sink.check(rows_of(k=[1], v=[""]).schema, output_mode="complete")
    deliver(sink, [rows_of(k=[1, 2], v=["a", "b"])])
    seen = []
    run, copy = Session.run, Session.copy

    def watched_run(self: Session, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        result = run(self, statement, *parameters)
        if statement.startswith(("DELETE", "INSERT", "COMMIT")):
            seen.append((statement[:6], [k for k, _ in run(reader, "SELECT k, v FROM rows ORDER BY k")]))
        return result

    def watched_copy(self: Session, *args: Any) -> int:
        result = copy(self, *args)
        seen.append(("COPY", [k for k, _ in run(reader, "SELECT k, v FROM rows ORDER BY k")]))
        return result

    with Session(sink._options.address) as reader:
        monkeypatch.setattr(Session, "run", watched_run)
        monkeypatch.setattr(Session, "copy", watched_copy)
        deliver(sink, [rows_of(k=[3], v=["c"])], [rows_of(k=[4], v=["d"])], epoch=1)
    old, new = [1, 2], [3, 4]
    assert seen == [("DELETE", old), ("COPY", old), ("INSERT", old), ("INSERT", old), ("COMMIT", new)]


def test_a_second_publisher_of_an_epoch_writes_nothing_even_where_values_changed_since(place: Place) -> None:
    """An upsert repeated late would bring old values back, though no row is there twice."""
    sink = upsert(place, rows_of(k=[1], v=[""]))
    deliver(sink, [rows_of(k=[1], v=["old"])])
    deliver(sink, [rows_of(k=[1], v=["new"])], epoch=1)
    late = values(sink, 0, [rows_of(k=[1], v=["old"])])
    assert sink.send_transaction([late], JOB, 0, context(sink).timestamp)
    assert table(place, "k", "v") == [(1, "new")]
