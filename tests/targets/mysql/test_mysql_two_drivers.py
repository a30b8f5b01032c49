"""Two drivers, a pruner and readers at the same moment: each row once, and nobody sees half an epoch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mysql_slots import appending, context, ids, in_background, once, stage, until_known, values
from mysql_workspace import JOB, MySQLWorkspace

from onceward.contracts import AlreadyCommitted, Committed, Lost
from onceward.testing.conformance.base import AT, batches
from onceward.testing.engine import SCHEMA

pytestmark = pytest.mark.cluster


def both(first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """What two calls at the same moment came to."""
    gate, results = threading.Barrier(2), [None, None]

    def run(number: int, work: Callable[[], Any]) -> None:
        gate.wait()
        results[number] = work()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_drivers_commit_the_same_transactions_at_once(quick: MySQLWorkspace) -> None:
    sink, other = appending(quick), quick.sink()
    rounds = 60
    for epoch in range(rounds):
        handles = [stage(sink, context(sink, epoch, slot)) for slot in (0, 1)]
        for outcomes in both(lambda h=handles: sink.commit_all(h), lambda h=handles: other.commit_all(h)):
            assert all(isinstance(outcome, Committed | AlreadyCommitted) for outcome in outcomes), outcomes
    assert ids(quick) == [10 * epoch + row for epoch in range(rounds) for row in range(4)]


def test_one_driver_aborts_what_the_other_commits(quick: MySQLWorkspace) -> None:
    sink, other = appending(quick), quick.sink()
    visible = []
    for epoch in range(60):
        handle = stage(sink, context(sink, epoch))
        outcome, _ = both(lambda h=handle: until_known(sink, h), lambda h=handle: other.abort(h))
        if isinstance(outcome, Committed | AlreadyCommitted):
            visible.append(epoch)
        else:
            assert isinstance(outcome, Lost)
        assert ids(quick) == once(*visible)


def test_two_drivers_send_the_same_epoch_at_once(quick: MySQLWorkspace) -> None:
    sink, other = (quick.sink(table="rows").alternate for _ in range(2))
    sink.check(SCHEMA, output_mode="append")
    rounds = 40
    for epoch in range(rounds):
        sent = both(
            lambda e=epoch: sink.send_transaction(values(sink, e, 0, 1), JOB, e, AT),
            lambda e=epoch: other.send_transaction(values(other, e, 0, 1), JOB, e, AT),
        )
        assert sent == [True, True]
    assert ids(quick) == [10 * epoch + row for epoch in range(rounds) for row in range(4)]


def test_nothing_is_pruned_while_a_publisher_is_at_work(workspace: MySQLWorkspace) -> None:
    """A publisher that is paused after its look for receipts must find them still there when it goes on."""
    sink = workspace.sink().alternate
    sink.check(SCHEMA, output_mode="append")
    reading, go_on = threading.Event(), threading.Event()
    (slot,) = values(sink, 0, 0)

    def slowly() -> Any:
        reading.set()
        assert go_on.wait(60)
        yield from batches(0)

    sent = in_background(lambda: sink.send_transaction([replace(slot, read=slowly)], JOB, 0, AT))
    assert reading.wait(60)
    pruned = in_background(lambda: workspace.sink().forget(JOB, 5))
    assert not pruned.wait(0.5)
    go_on.set()
    assert sent.wait(60)
    assert pruned.wait(60)
    assert sink.send_transaction([slot], JOB, 0, AT)
    assert ids(workspace) == once(0)


def test_a_reader_sees_whole_slots_and_whole_epochs_and_nothing_early(quick: MySQLWorkspace) -> None:
    append = appending(quick)
    whole = quick.sink(table="result", mode="replace")
    whole.check(SCHEMA, output_mode="complete")
    reader = MySQLWorkspace(quick.server, quick.database)
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            counts = reader.query("SELECT epoch, slot, COUNT(*) FROM `rows` GROUP BY epoch, slot")
            wrong.extend(count for count in counts if count[2] != 2)
            result = reader.query("SELECT COUNT(*), COUNT(DISTINCT epoch) FROM result")
            wrong.extend(count for count in result if count not in ((0, 0), (4, 1)))

    reading = in_background(read)
    for epoch in range(40):
        handles = [stage(append, context(append, epoch, slot)) for slot in (0, 1)]
        assert (epoch, 0) not in reader_pairs(quick)
        append.commit_all(handles)
        whole.send_transaction(values(whole, epoch, 0, 1), JOB, epoch, AT)
    stop.set()
    assert reading.wait(60)
    reader.close()
    assert wrong == []
    assert sorted(row["id"] for row in quick.rows("result")) == [390, 391, 392, 393]


def reader_pairs(workspace: MySQLWorkspace) -> set[tuple[int, int]]:
    return {(row["epoch"], row["slot"]) for row in workspace.rows()}
