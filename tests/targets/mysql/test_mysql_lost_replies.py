"""Replies of a real server that are lost on the way, of every statement: each row arrives once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from mysql_slots import REPETITIONS, appending, context, ids, once, stage, until_known, values
from mysql_workspace import JOB, MySQLWorkspace

from onceward.connections.mysql import MySQLError
from onceward.contracts import AlreadyCommitted, Committed, TryAgain
from onceward.epoch import PublishLimits
from onceward.testing import Finished, Harness, SinkUnderTest, Source
from onceward.testing.conformance.base import AT, batches
from onceward.testing.engine import SCHEMA
from onceward.testing.servers import Proxy

pytestmark = pytest.mark.cluster


@pytest.fixture
def proxy(workspace: MySQLWorkspace) -> Iterator[Proxy]:
    with Proxy(workspace.server.port) as proxy:
        yield proxy


def test_the_reply_to_a_commit_is_lost_again_and_again(
    quick: MySQLWorkspace, proxy: Proxy, record_sweep: list[str]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sink, plain = appending(quick, port=proxy.port), quick.sink()
    already = 0
    for epoch in range(REPETITIONS):
        handle = stage(plain, context(plain, epoch))
        proxy.cut_after(b"XA COMMIT", times=chance.randint(1, 3))
        outcome = None
        while outcome is None:
            try:
                outcome = sink.commit(handle)
            except MySQLError:
                continue
        # Now and then the lost reply was that of a server which had not noticed the end of the executor's connection.
        assert isinstance(outcome, Committed | AlreadyCommitted)
        already += outcome == AlreadyCommitted()
        proxy.cut_after(b"nothing", times=0)
    assert already > REPETITIONS * 0.8
    assert ids(quick) == once(*range(REPETITIONS))
    record_sweep.append(f"MySQL, XA COMMIT: {proxy.cuts} replies lost over {REPETITIONS} transactions, seed {seed}")


@pytest.mark.parametrize("dies", [True, False], ids=["executor dies", "executor discards"])
def test_the_reply_to_a_prepare_is_lost(
    dies: bool, quick: MySQLWorkspace, proxy: Proxy, record_sweep: list[str]
) -> None:
    sink = appending(quick, port=proxy.port)
    for epoch in range(REPETITIONS // 2):
        proxy.cut_after(b"XA PREPARE")
        transaction = sink.begin_transaction(context(sink, epoch))
        sink.invoke(transaction, batches(epoch)[0])
        with pytest.raises(MySQLError):
            sink.pre_commit(transaction)
        if dies:
            (handle,) = sink.pending(JOB)
            assert handle["transaction"] == str(context(sink, epoch).transaction)
            sink.abort(handle)
        else:
            sink.discard(transaction)
        assert list(sink.pending(JOB)) == []
    assert proxy.cuts == REPETITIONS // 2
    assert ids(quick) == []
    record_sweep.append(f"MySQL, XA PREPARE: {proxy.cuts} replies lost")


def test_the_reply_to_the_commit_of_an_upsert_is_lost(
    quick: MySQLWorkspace, proxy: Proxy, record_sweep: list[str]
) -> None:
    """Counted by a second sink, which appends by the same way: there a repetition would show."""
    for options in ({"mode": "upsert", "keys": "id", "table": "rows"}, {"table": "appended"}):
        sink = quick.sink(port=proxy.port, **options)
        sink = sink if options.get("keys") else sink.alternate
        sink.check(SCHEMA, output_mode="update")
        cuts = proxy.cuts
        for epoch in range(REPETITIONS // 2):
            proxy.cut_after(b"\x03COMMIT")
            with pytest.raises(TryAgain):
                sink.send_transaction(values(sink, epoch, 0, 1), JOB, epoch, AT)
            assert sink.send_transaction(values(sink, epoch, 0, 1), JOB, epoch, AT)
        assert proxy.cuts - cuts == REPETITIONS // 2
        found = sorted(row["id"] for row in quick.rows(f"`{options['table']}`"))
        assert found == [10 * epoch + row for epoch in range(REPETITIONS // 2) for row in range(4)]
    record_sweep.append(f"MySQL, COMMIT: {proxy.cuts} replies lost")


def test_any_reply_is_lost(quick: MySQLWorkspace, proxy: Proxy, record_sweep: list[str]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    patterns = [b"SET SESSION", b"XA START", b"LOAD DATA", b"INSERT INTO", b"XA END", b"XA PREPARE", b"XA COMMIT"]
    sink = appending(quick, port=proxy.port)
    for epoch in range(REPETITIONS):
        outcome, attempt = None, 0
        while not isinstance(outcome, Committed | AlreadyCommitted):
            proxy.cut_after(chance.choice(patterns), answers=chance.randint(0, 1))
            attempt += 1
            try:
                outcome = until_known(sink, stage(sink, context(sink, epoch, attempt=attempt)))
            except MySQLError:
                proxy.cut_after(b"nothing", times=0)
                for handle in list(sink.pending(JOB)):
                    sink.abort(handle)
    assert ids(quick) == once(*range(REPETITIONS))
    record_sweep.append(f"MySQL, any statement: {proxy.cuts} replies lost over {REPETITIONS} transactions, seed {seed}")


def test_a_job_whose_commits_lose_their_replies_delivers_each_row_once(quick: MySQLWorkspace, proxy: Proxy) -> None:
    sink = appending(quick, port=proxy.port)
    limits = PublishLimits(deadline_s=60.0)
    harness = Harness(SinkUnderTest(sink, quick.rows), source=Source(ends=(4, 8, 12)), limits=limits)
    proxy.cut_after(b"XA COMMIT", times=5)
    assert harness.life() == Finished()
    assert proxy.cuts == 5
    assert harness.problems() == []
