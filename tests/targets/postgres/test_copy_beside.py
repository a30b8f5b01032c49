"""Large slots of an append: rows are copied by a thread of their own while the next ones come in."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from onceward.connections.postgres import PostgresError, Session
from onceward.contracts import TwoPhaseCommitSink

from .conftest import Place
from .deliver import batch_of, context, deliver, staged

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _every_batch_is_worth_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.sinks.postgres.rows._BYTES_AT_ONCE", 1)


def appending(place: Place) -> TwoPhaseCommitSink[Any]:
    sink = place.sink().choose()
    assert isinstance(sink, TwoPhaseCommitSink)
    sink.check(numbers(0).schema, output_mode="append")
    return sink


def numbers(*values: int) -> pa.RecordBatch:
    return batch_of(id=pa.array(values, pa.int64()))


def test_every_row_arrives_and_only_after_the_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    copiers: set[str] = set()
    copy = Session.copy

    def watched(self: Session, *arguments: Any) -> int:
        copiers.add(threading.current_thread().name)
        return copy(self, *arguments)

    monkeypatch.setattr(Session, "copy", watched)
    sink = appending(place)
    deliver(sink, [numbers(n) for n in range(40)], [numbers(n) for n in range(40, 60)])
    assert place.query("SELECT count(*), count(DISTINCT id) FROM ~.rows") == [(60, 60)]
    assert threading.main_thread().name not in copiers


def test_a_copy_that_fails_beside_fails_the_attempt_and_leaves_nothing(place: Place) -> None:
    sink = appending(place)
    place.query("ALTER TABLE ~.rows ADD CHECK (id <> 7)")
    with pytest.raises(PostgresError, match="check constraint"):
        staged(sink, context(sink), [numbers(n) for n in range(40)])
    assert place.query("SELECT count(*) FROM ~.rows") == [(0,)]
    assert list(sink.pending(context(sink).job)) == []


def test_an_attempt_that_is_given_up_in_mid_copy_leaves_nothing(place: Place) -> None:
    sink = appending(place)
    transaction = sink.begin_transaction(context(sink))
    for n in range(5):
        sink.invoke(transaction, numbers(n))
    sink.discard(transaction)
    deliver(sink, [numbers(n) for n in range(3)])
    assert place.query("SELECT count(*) FROM ~.rows") == [(3,)]
