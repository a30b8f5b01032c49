"""Scenario 92: random streams into random tables. What stands there is what was sent, or it was refused by name.

`ONCEWARD_SEED=123 pytest tests/targets/postgres/test_any_table.py -k replay` plays one of them again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward.connections.postgres import PostgresError
from onceward.contracts import AnySink, TransactionalWriteAheadSink, TwoPhaseCommitSink
from onceward.errors import RowsRejected, TargetRefused
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.postgres.errors import classify

from .conftest import Place
from .deliver import JOB, deliver, values
from .expected_rows import comparable, expected, reading
from .random_tables import TYPES, RandomTable, Row, batch, random_table

pytestmark = pytest.mark.cluster
TABLES = 60
SOAK = 2_000
MODES = {"upsert": "update", "replace": "complete"}


@pytest.fixture
def ready(place: Place) -> Iterator[Place]:
    for statement in TYPES:
        place.query(statement)
    yield place
    place.query("DROP EXTENSION citext CASCADE")


@pytest.fixture(autouse=True)
def _large_epochs_begin_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the paths for large epochs are taken too."""
    monkeypatch.setattr("onceward.sinks.postgres.upsert._MANY", 6)
    monkeypatch.setattr("onceward.sinks.postgres.insert_only._MANY", 6)


def play(place: Place, one: RandomTable, counts: Counter[str]) -> None:
    for statement in one.statements:
        place.query(statement)
    sink = place.sink(**one.options).choose()
    schema = batch(one, []).schema
    mode = MODES.get(one.options.get("mode", ""), "append")
    refused = raised(lambda: sink.check(schema, output_mode=mode), TargetRefused)
    if refused is not None:
        assert any(name in str(refused) for name in (*one.columns, one.table, "act", "off")), refused
        counts["tables refused by name"] += 1
        return
    assert one.must_be_refused is None, f"taken, in spite of {one.must_be_refused}"
    written: list[list[list[Row]]] = []
    for number, slots in enumerate(one.epochs):
        kept = publish(sink, one, slots, number, counts)
        written += [kept] if kept is not None else []
        if written:
            compare(place, one, written, number)
    assert place.prepared() == []
    counts["tables compared"] += 1


def raised(call: Callable[[], object], *kinds: type[Exception]) -> Exception | None:
    try:
        call()
    except kinds as error:
        return error
    return None


def publish(
    sink: AnySink, one: RandomTable, slots: list[list[Row]], epoch: int, counts: Counter[str]
) -> list[list[Row]] | None:
    """Deliver, without the rows that the sink names when it refuses; what was delivered."""
    batches = [[batch(one, slot)] for slot in slots]
    error = raised(lambda: deliver(sink, *batches, epoch=epoch), RowsRejected, PostgresError, ValueError)
    if error is None:
        counts["rows"] += sum(map(len, slots))
        return slots
    if isinstance(sink, TwoPhaseCommitSink):
        # It fails before anything is decided, and the epoch is aborted.
        assert classify(error) in (ErrorClass.ROW, ErrorClass.UNKNOWN), error
        for handle in list(sink.pending(JOB)):
            sink.abort(handle)
        counts["epochs failed before the decision"] += 1
        return None
    assert isinstance(sink, TransactionalWriteAheadSink)
    # What the table of errors does not know is looked for, as the publisher does.
    assert isinstance(error, RowsRejected) or classify(error) is ErrorClass.UNKNOWN, error
    waiting = [values(sink, number, [batch(one, slot)], epoch=epoch) for number, slot in enumerate(slots)]
    bad = {(row.slot, row.row) for row in sink.find_rejected(waiting, JOB, epoch)}
    assert bad, "rows are rejected, and none is named"
    kept = [[row for n, row in enumerate(slot) if (number, n) not in bad] for number, slot in enumerate(slots)]
    deliver(sink, *([batch(one, slot)] for slot in kept), epoch=epoch)
    counts["rows named and left out"] += len(bad)
    counts["rows"] += sum(map(len, kept))
    return kept


def compare(place: Place, one: RandomTable, written: list[list[list[Row]]], epoch: int) -> None:
    is_there, should_be = Counter(found(place, one)), Counter(wanted(one, written))
    if is_there != should_be:
        # Not by assert: pytest would look for ever for the differences of two long texts.
        missing, foreign = (list((a - b).elements()) for a, b in ((should_be, is_there), (is_there, should_be)))
        raise AssertionError(f"after epoch {epoch}: missing {missing}\n    foreign {foreign}"[:2_000])


def found(place: Place, one: RandomTable) -> list[str]:
    columns = {name: one.schema[name] for name in one.columns}
    texts = ", ".join(reading(name, kind, one.columns[name]) for name, kind in columns.items())
    rows = place.query(f"SELECT {texts} FROM ~.{one.table}")
    return sorted(_line(one, dict(zip(columns, row, strict=True))) for row in rows)


def wanted(one: RandomTable, written: list[list[list[Row]]]) -> list[str]:
    return sorted(_line(one, row) for row in expected(one, written))


def _line(one: RandomTable, row: dict[str, Any]) -> str:
    return repr({name: comparable(row[name], one.schema[name], column) for name, column in one.columns.items()})


def play_all(place: Place, seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    failed = []
    for seed in seeds:
        one = random_table(seed)
        try:
            play(place, one, counts)
        except Exception as error:
            failed.append(f"{one}\n    {type(error).__name__}: {error}")
        place.query(f"DROP TABLE IF EXISTS ~.{one.table}")
    assert not failed, "\n\n".join(failed)
    return counts


def test_what_stands_in_any_table_is_what_was_sent(ready: Place, record_sweep: list[str]) -> None:
    counts = play_all(ready, range(TABLES))
    # The tables must be taken and must refuse often enough, or they prove nothing.
    assert counts["tables compared"] > TABLES / 2
    assert counts["rows named and left out"] > TABLES / 10
    record_sweep.append(f"PostgreSQL, {TABLES} random tables: {_told(counts)}")


@pytest.mark.soak
def test_what_stands_in_thousands_of_tables_is_what_was_sent(ready: Place, record_sweep: list[str]) -> None:
    counts = play_all(ready, range(TABLES, TABLES + SOAK))
    record_sweep.append(f"PostgreSQL, {SOAK} random tables: {_told(counts)}")


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_seed(ready: Place) -> None:
    one = random_table(int(os.environ["ONCEWARD_SEED"]))
    print(one, *one.epochs, sep="\n")
    play(ready, one, Counter())


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
