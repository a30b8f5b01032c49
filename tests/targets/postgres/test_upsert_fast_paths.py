"""The fast paths of an upsert: taken where they hold, abandoned where they do not, and the same rows either way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from onceward.connections.postgres import Session
from onceward.contracts import TransactionalWriteAheadSink
from onceward.errors import DamagedFile, RowsRejected

from .conftest import Place
from .deliver import AT, JOB, batch_of, deliver, values
from .test_upsert import rows_of, table, upsert

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _all_epochs_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.sinks.postgres.upsert._MANY", 1)
    monkeypatch.setattr("onceward.sinks.postgres.insert_only._MANY", 1)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables into which rows were copied from here on."""
    tables: list[str] = []
    copy = Session.copy

    def watched(self: Session, name: str, schema: str | None, rows: pa.Table | pa.RecordBatchReader) -> int:
        tables.append(name)
        return copy(self, name, schema, rows)

    monkeypatch.setattr(Session, "copy", watched)
    return tables


def test_new_keys_go_straight_into_the_table_and_known_ones_by_another(place: Place, copied: list[str]) -> None:
    sink = upsert(place, rows_of(k=[1], v=[""]))
    deliver(sink, [rows_of(k=[3, 1, 2], v=["c", "a", "b"])], [rows_of(k=[4], v=["d"])])
    assert copied[-1] == "rows"
    deliver(sink, [rows_of(k=[5, 1], v=["e", "A"])], epoch=1)
    assert copied[-1] != "rows"
    deliver(sink, [rows_of(k=[7, 6], v=["g", "f"])], epoch=2)
    assert copied[-1] == "rows"
    assert table(place, "k", "v") == [(1, "A"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f"), (7, "g")]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_row_that_does_not_fit_and_is_superseded_rejects_nothing(place: Place, is_known: bool) -> None:
    """No fast path judges a row that the long way would leave out: `poison` would find none to divert."""
    sink = upsert(place, rows_of(k=[1], v=[""]))
    place.query("ALTER TABLE ~.rows ADD CHECK (v <> 'bad')")
    deliver(sink, [rows_of(k=[1], v=["old"])] if is_known else [rows_of(k=[9], v=["other"])])
    deliver(sink, [rows_of(k=[1, 2, 1], v=["bad", "b", "good"])], epoch=1)
    assert {(1, "good"), (2, "b")} <= set(table(place, "k", "v"))
    with pytest.raises(RowsRejected):
        deliver(sink, [rows_of(k=[3, 4], v=["bad", "d"])], epoch=2)


def test_a_known_key_outside_the_sample_takes_everything_back_and_the_next_epochs_do_not_try(
    place: Place, copied: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.sinks.postgres.insert_only._SAMPLE", 1)
    monkeypatch.setattr("onceward.sinks.postgres.fast_path._EPOCHS_TO_WAIT", 1)
    sink = upsert(place, rows_of(k=[1], v=[""]))
    deliver(sink, [rows_of(k=[1], v=["a"])])
    deliver(sink, [rows_of(k=[2, 1], v=["b", "A"])], epoch=1)
    assert table(place, "k", "v") == [(1, "A"), (2, "b")]
    copied.clear()
    deliver(sink, [rows_of(k=[3], v=["c"])], epoch=2)
    assert "rows" not in copied
    deliver(sink, [rows_of(k=[4], v=["d"])], epoch=3)
    assert "rows" in copied
    assert table(place, "k", "v") == [(1, "A"), (2, "b"), (3, "c"), (4, "d")]


def test_what_another_rule_of_the_table_refuses_is_named_either_way(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (k bigint UNIQUE, v text UNIQUE)")
    sink = upsert(place, rows_of(k=[1], v=[""]))
    deliver(sink, [rows_of(k=[1], v=["a"])])
    with pytest.raises(RowsRejected, match="duplicate key"):
        deliver(sink, [rows_of(k=[2], v=["a"])], epoch=1)
    assert table(place, "k", "v") == [(1, "a")]


def test_a_stream_whose_keys_come_twice_is_not_tried_the_quick_way_every_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_back: list[str] = []
    run = Session.run

    def watched(self: Session, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        taken_back.extend([statement] if statement.startswith("ROLLBACK TO") else [])
        return run(self, statement, *parameters)

    monkeypatch.setattr(Session, "run", watched)
    sink = upsert(place, rows_of(k=[1], v=[""]))
    for epoch in range(6):
        deliver(sink, [rows_of(k=[epoch, epoch, -1], v=["old", "new", str(epoch)])], epoch=epoch)
    assert table(place, "k", "v") == [(-1, "5"), *((epoch, "new") for epoch in range(6))]
    assert len(taken_back) == 2, "once straight into the table, once unsorted, never again"


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.decimal128(22, 2), pa.timestamp("us", "UTC")], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_random_epochs_leave_what_a_dictionary_would_hold(place: Place, seed: int, kind: pa.DataType) -> None:
    chance = random.Random(f"{seed} {kind}")
    held: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    deletes, ordered = chance.random() < 0.5, chance.random() < 0.5
    options = {"deleted": "deleted" if deletes else None, "order_by": "at" if ordered else None}
    keys = ["k", "l"] if chance.random() < 0.5 else ["k"]

    def key(number: int | None) -> Any:
        return None if number is None else pa.scalar(number, pa.int64()).cast(kind).as_py()

    def some_rows(fresh: bool) -> pa.RecordBatch:
        numbers = range(chance.randrange(10_000), 20_000)
        count = chance.randrange(1, 12)
        ks = [chance.choice(numbers) if fresh else chance.randrange(8) for _ in range(count)]
        if chance.random() < 0.2:
            ks[chance.randrange(count)] = None
        columns = {
            "k": pa.array([key(k) for k in ks], kind),
            "l": pa.array([chance.randrange(2) for _ in ks]),
            "at": pa.array([chance.randrange(3) for _ in ks]),
            "v": pa.array([chance.randrange(1000) for _ in ks]),
        }
        if deletes:
            columns["deleted"] = pa.array([chance.random() < 0.1 and not fresh for _ in ks])
        return batch_of(**columns)

    sink = upsert(place, some_rows(True), keys=keys, **options)
    for epoch in range(12):
        fresh = chance.random() < 0.6
        slots = [[some_rows(fresh) for _ in range(chance.randrange(1, 3))] for _ in range(chance.randrange(1, 3))]
        deliver(sink, *slots, epoch=epoch)
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in (row for slot in slots for batch in slot for row in batch.to_pylist()):
            at = tuple(row[name] for name in keys)
            if at not in last or not ordered or row["at"] >= last[at]["at"]:
                last[at] = row
        for at, row in last.items():
            held.pop(at, None)
            if not row.get("deleted"):
                held[at] = (str(row["k"]), row["l"], row["at"], row["v"])
        found = [(str(k), *rest) for k, *rest in place.query("SELECT k, l, at, v FROM ~.rows")]
        assert sorted(found) == sorted(held.values())


def test_a_log_that_breaks_off_in_the_middle_of_a_copy_is_named_as_what_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read while the server takes in those before them. Scenario 62."""
    monkeypatch.setattr("onceward.sinks.postgres.rows._BYTES_AT_ONCE", 1)
    sink = upsert(place, rows_of(k=[1], v=[""]))
    assert isinstance(sink, TransactionalWriteAheadSink)
    whole = values(sink, 0, [rows_of(k=[n], v=["x"]) for n in range(5)])

    def torn() -> Iterator[pa.RecordBatch]:
        yield from list(whole.read())[:3]
        raise DamagedFile("segment is not what was staged")

    with pytest.raises(DamagedFile, match="segment is not what was staged"):
        sink.send_transaction([replace(whole, read=torn)], JOB, 0, AT)
    assert table(place, "k", "v") == []
    assert sink.send_transaction([whole], JOB, 0, AT)
    assert len(table(place, "k", "v")) == 5
