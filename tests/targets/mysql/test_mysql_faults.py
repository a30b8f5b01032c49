"""What a real server and a real network can do: lose a reply, die, stop answering, keep a dead client's connection."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from mysql_workspace import JOB, MySQLWorkspace

from onceward.connections.mysql import MySQLError, Session
from onceward.contracts import (
    AlreadyCommitted,
    Committed,
    Handle,
    Hooks,
    Lost,
    Receipt,
    RetryLater,
    SlotContext,
    SlotValues,
    TryAgain,
)
from onceward.epoch import PublishLimits
from onceward.errors import PublishFailed
from onceward.identity import Fingerprint, RunId
from onceward.sinks.mysql import xa
from onceward.testing import Behaviour, Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.conformance.base import AT, batches
from onceward.testing.engine import SCHEMA
from onceward.testing.servers import MariaDBServer, Proxy

pytestmark = pytest.mark.cluster

REPETITIONS = 200


@pytest.fixture
def proxy(workspace: MySQLWorkspace) -> Iterator[Proxy]:
    with Proxy(workspace.server.port) as proxy:
        yield proxy


@pytest.fixture(params=[{}, {"log-bin": "log", "server-id": 1, "sync-binlog": 1}], ids=["plain", "with a binary log"])
def own(request: pytest.FixtureRequest) -> Iterator[MySQLWorkspace]:
    """A server that a test may kill. The binary log takes part in every commit, and in the recovery from a crash."""
    server = MariaDBServer(**request.param).start()
    yield MySQLWorkspace(server, "test")
    server.close()


def context(sink: Any, epoch: int, slot: int = 0, attempt: int = 1) -> SlotContext:
    fingerprint = Fingerprint(f"fingerprintof{epoch:03d}")
    return SlotContext(JOB, sink.name, epoch, 0, slot, attempt, RunId("rrrrrr"), AT, fingerprint)


def stage(sink: Any, where: SlotContext) -> Handle:
    transaction = sink.begin_transaction(where)
    for batch in batches(where.epoch, where.slot):
        sink.invoke(transaction, batch)
    handle: Handle = sink.pre_commit(transaction)
    return handle


def values(sink: Any, epoch: int, *slots: int) -> list[SlotValues]:
    return [
        SlotValues(
            slot,
            2,
            Receipt(JOB.name, JOB.generation, sink.name, epoch, slot, Fingerprint("f")),
            lambda slot=slot: iter(batches(epoch, slot)),
        )
        for slot in slots
    ]


def appending(workspace: MySQLWorkspace, **options: Any) -> Any:
    sink = workspace.sink(**options)
    sink.check(SCHEMA, output_mode="append")
    return sink


def ids(workspace: MySQLWorkspace) -> list[int]:
    return sorted(row["id"] for row in workspace.rows())


def once(*epochs: int) -> list[int]:
    return sorted(10 * epoch + row for epoch in epochs for row in (0, 2))


# --- lost replies -------------------------------------------------------------------------------


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


def until_known(sink: Any, handle: Handle) -> Any:
    while True:
        with contextlib.suppress(MySQLError):
            outcome = sink.commit(handle)
            if not isinstance(outcome, RetryLater):
                return outcome


def test_a_job_whose_commits_lose_their_replies_delivers_each_row_once(quick: MySQLWorkspace, proxy: Proxy) -> None:
    sink = appending(quick, port=proxy.port)
    limits = PublishLimits(deadline_s=60.0)
    harness = Harness(SinkUnderTest(sink, quick.rows), source=Source(ends=(4, 8, 12)), limits=limits)
    proxy.cut_after(b"XA COMMIT", times=5)
    assert harness.life() == Finished()
    assert proxy.cuts == 5
    assert harness.problems() == []


# --- the server dies, or does not answer --------------------------------------------------------


def test_the_server_is_killed_between_pre_commit_and_publish(own: MySQLWorkspace) -> None:
    sink = appending(own)
    for epoch in range(3):
        handles = [stage(sink, context(sink, epoch, slot)) for slot in (0, 1)]
        own.server.kill()
        with pytest.raises(MySQLError):
            sink.commit(handles[0])
        own.server.start()
        assert {h["transaction"] for h in sink.pending(JOB)} == {h["transaction"] for h in handles}
        assert sink.commit(handles[0]) == Committed()
        own.server.kill()
        own.server.start()
        assert list(sink.commit_all(handles)) == [AlreadyCommitted(), Committed()]
    assert ids(own) == [10 * epoch + row for epoch in range(3) for row in range(4)]
    assert own.prepared() == []


def test_the_server_is_killed_at_random_moments(own: MySQLWorkspace, record_sweep: list[str]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sink = appending(own, timeout_s=10.0)
    done, stop = [], threading.Event()

    def deliver() -> None:
        for epoch in itertools.count():
            if stop.is_set():
                return
            deliver_epoch(sink, epoch)
            done.append(epoch)

    working = in_background(deliver)
    for _ in range(6):
        stop.wait(chance.uniform(0.05, 0.5))
        own.server.kill()
        own.server.start()
    stop.set()
    assert working.wait(60)
    assert ids(own) == once(*done)
    assert own.prepared() == []
    record_sweep.append(f"MySQL, server killed 6 times during {len(done)} epochs, seed {seed}")


def deliver_epoch(sink: Any, epoch: int) -> None:
    """As the protocol would: stage until it worked, then commit that until it is known to have worked."""
    handle = None
    for attempt in itertools.count(1):
        try:
            handle = handle or stage(sink, context(sink, epoch, attempt=attempt))
            for orphan in list(sink.pending(JOB)):
                if orphan["transaction"] != handle["transaction"]:
                    sink.abort(orphan)
            outcome = sink.commit(handle)
        except MySQLError:
            continue
        assert not isinstance(outcome, Lost), outcome
        if not isinstance(outcome, RetryLater):
            return


def test_a_server_that_is_down_for_longer_than_every_retry_keeps_the_epochs_waiting(own: MySQLWorkspace) -> None:
    sinks = [appending(own), appending(own, table="upserted", mode="upsert", keys="id")]
    tables = ("`rows`", "upserted")
    subjects = [
        SinkUnderTest(sink, lambda table=table: own.rows(table)) for sink, table in zip(sinks, tables, strict=True)
    ]
    harness = Harness(*subjects, source=Source(ends=(4, 8)))
    ending = harness.life(behaviour=Behaviour(hooks=Hooks(on_decision=lambda epoch: own.server.stop())))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, PublishFailed)
    own.server.start()
    assert (own.rows(), own.rows("upserted")) == ([], [])
    harness.drain()
    assert harness.problems() == []
    assert own.prepared() == []


def test_a_commit_that_is_carried_out_after_its_sender_gave_up_is_found(own: MySQLWorkspace) -> None:
    sink = appending(own)
    impatient = own.sink(timeout_s=1.0)
    handle = stage(sink, context(sink, 0))
    own.server.pause()
    try:
        with pytest.raises(MySQLError):
            impatient.commit(handle)
    finally:
        own.server.resume()
    assert isinstance(sink.commit(handle), Committed | AlreadyCommitted)
    assert ids(own) == once(0)


# --- connections that outlive their use ---------------------------------------------------------


def test_a_transaction_whose_connection_is_still_open_is_never_taken_for_lost(
    workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(xa, "_PATIENCE_S", 0.1)
    sink = appending(workspace)
    kept = sink.begin_transaction(context(sink, 0))
    monkeypatch.setattr(kept, "let_go", lambda: None)
    sink.invoke(kept, batches(0)[0])
    handle = sink.pre_commit(kept)
    assert isinstance(sink.commit(handle), RetryLater)
    with caplog.at_level("WARNING", logger="onceward"):
        sink.abort(handle)
    assert "cannot be rolled back" in caplog.text
    assert [h["transaction"] for h in sink.pending(JOB)] == [handle["transaction"]]
    kept._session.close()
    monkeypatch.setattr(xa, "_PATIENCE_S", 5.0)
    assert sink.commit(handle) == Committed()
    assert sink.commit(handle) == AlreadyCommitted()


def test_a_commit_right_behind_the_pre_commit_waits_for_the_connection_to_end(quick: MySQLWorkspace) -> None:
    """The server notices the end of a connection some milliseconds late, and says XAER_NOTA until then."""
    sink = appending(quick)
    for epoch in range(REPETITIONS):
        assert sink.commit(stage(sink, context(sink, epoch))) == Committed()
    assert ids(quick) == once(*range(REPETITIONS))


def test_a_commit_that_the_server_confirms_and_does_not_carry_out_is_not_believed(
    workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xa, "_PATIENCE_S", 0.0)
    sink = appending(workspace)
    handle = stage(sink, context(sink, 0))
    execute = Session.execute

    def lying(self: Session, statement: str) -> Any:
        return [] if statement.startswith("XA COMMIT") else execute(self, statement)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "execute", lying)
        assert isinstance(sink.commit(handle), RetryLater)
    assert sink.commit(handle) == Committed()


@pytest.mark.parametrize("own", [{}], indirect=True, ids=["plain"])
@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_the_server_lost_sight_of_is_neither_committed_nor_lost(
    verb: str, own: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch, record_sweep: list[str]
) -> None:
    """MariaDB answers OK and does nothing when it is asked just while the connection that prepared it ends."""
    monkeypatch.setattr(xa, "_PATIENCE_S", 0.0)
    own.query("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    sink = appending(own)
    epoch = lose_sight(sink, verb)
    if epoch is None:
        pytest.skip("this server does not have the flaw, or it was not met")
    record_sweep.append(f"MySQL, XA {verb} while a connection ends: OK without effect at try {epoch + 1}")
    handle = {"transaction": str(context(sink, epoch).transaction)}
    assert list(sink.pending(JOB)) == []
    for _ in range(2):
        outcome = sink.commit(handle)
        assert isinstance(outcome, RetryLater)
        assert "restart the server" in outcome.why
    own.server.kill()
    own.server.start()
    assert [pending["transaction"] for pending in sink.pending(JOB)] == [handle["transaction"]]
    assert sink.commit(handle) == Committed()
    assert sink.commit(handle) == AlreadyCommitted()


def lose_sight(sink: Any, verb: str, tries: int = 4000) -> int | None:
    """Ask for transactions while their connections end, until one is lost sight of: its epoch."""
    askers = [sink._options.connect() for _ in range(2)]
    with sink._options.connect(lock_wait_s=1) as looker:
        for epoch in range(tries):
            where = context(sink, epoch)
            done, name = threading.Event(), xa.xid(where.transaction)
            with sink._options.connect() as session:
                session.execute(f"XA START {name}")
                receipt = Receipt(JOB.name, JOB.generation, sink.name, epoch, 0, where.fingerprint)
                sink._receipts.write(session, receipt, transaction=where.transaction)
                session.execute(f"XA END {name}")
                session.execute(f"XA PREPARE {name}")
                asking = [in_background(partial(ask_until, asker, f"XA {verb} {name}", done)) for asker in askers]
            assert all(asked.wait(30) for asked in asking)
            try:
                sink._receipts.is_committed(looker, where.transaction)
            except MySQLError:
                return epoch
    return None


def ask_until(session: Session, statement: str, done: threading.Event) -> None:
    while not done.is_set():
        try:
            session.execute(statement)
            done.set()
        except MySQLError as error:
            if "XAER_NOTA" not in str(error):
                raise


def test_a_receipt_that_is_not_committed_yet_is_waited_for(
    workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver's commit, caught between leaving the list of prepared transactions and its end."""
    monkeypatch.setattr(xa, "_PATIENCE_S", 0.0)
    sink = appending(workspace)
    where = context(sink, 0)
    with sink._options.connect() as halfway:
        halfway.execute("START TRANSACTION")
        receipt = Receipt(JOB.name, JOB.generation, sink.name, 0, 0, where.fingerprint)
        sink._receipts.write(halfway, receipt, transaction=where.transaction)
        assert isinstance(sink.commit({"transaction": str(where.transaction)}), RetryLater)
        halfway.execute("COMMIT")
    assert sink.commit({"transaction": str(where.transaction)}) == AlreadyCommitted()
    gone = replace(where, slot=1)
    assert isinstance(sink.commit({"transaction": str(gone.transaction)}), Lost)


def test_what_was_rolled_back_behind_our_back_is_lost_and_named(workspace: MySQLWorkspace) -> None:
    sink = appending(workspace)
    handle = stage(sink, context(sink, 3))
    sink.abort(handle)
    outcome = sink.commit(handle)
    assert isinstance(outcome, Lost)
    assert str(handle["transaction"]) in outcome.why


def test_transactions_that_are_not_ours_are_left_alone(workspace: MySQLWorkspace) -> None:
    sink = appending(workspace)
    mine = context(sink, 0)
    foreign = ["someone-else", str(replace(mine, job=replace(JOB, generation="bbbbbbbb")).transaction), "ow1_"]
    for name in foreign:
        with sink._options.connect() as session:
            prepare_elsewhere(session, f"'{name}'")
    # Our very name, but not in our form.
    for name in (f"'{mine.transaction}', 'branch', 7", f"'{replace(mine, slot=1).transaction}', '', 7"):
        with sink._options.connect() as session:
            prepare_elsewhere(session, name)
    assert list(sink.pending(JOB)) == []
    harness = Harness(SinkUnderTest(sink, workspace.rows), source=Source(ends=(4, 8)))
    harness.drain()
    assert harness.problems() == []
    foreign.append(str(replace(mine, slot=1).transaction))
    assert sorted(workspace.prepared()) == sorted(
        [*(n.encode() for n in foreign), f"{mine.transaction}branch".encode()]
    )
    for name in foreign:
        workspace.query(f"XA ROLLBACK '{name}'")
    workspace.query(f"XA ROLLBACK '{mine.transaction}', 'branch', 7")


def prepare_elsewhere(session: Session, name: str) -> None:
    session.execute("CREATE TABLE IF NOT EXISTS theirs (id INT) ENGINE=InnoDB")
    for statement in (f"XA START {name}", "INSERT INTO theirs VALUES (1)", f"XA END {name}", f"XA PREPARE {name}"):
        session.execute(statement)


def test_receipts_are_pruned_while_transactions_are_prepared(workspace: MySQLWorkspace) -> None:
    """A delete that scanned the table would wait for every receipt that is not committed yet."""
    sink = appending(workspace)
    for epoch in range(3):
        assert sink.commit(stage(sink, context(sink, epoch))) == Committed()
    waiting = [stage(sink, context(sink, epoch, attempt=9)) for epoch in (0, 3, 4)]
    finished = in_background(lambda: sink.forget(JOB, 2))
    assert finished.wait(10)
    assert {receipt.epoch for receipt in sink.receipts(JOB)} == {2}
    for handle in waiting:
        sink.abort(handle)


# --- two drivers, and readers -------------------------------------------------------------------


def in_background(work: Callable[[], object]) -> threading.Event:
    finished = threading.Event()

    def run() -> None:
        work()
        finished.set()

    threading.Thread(target=run, daemon=True).start()
    return finished


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
        assert go_on.wait(30)
        yield from batches(0)

    sent = in_background(lambda: sink.send_transaction([replace(slot, read=slowly)], JOB, 0, AT))
    assert reading.wait(30)
    pruned = in_background(lambda: workspace.sink().forget(JOB, 5))
    assert not pruned.wait(0.5)
    go_on.set()
    assert sent.wait(30)
    assert pruned.wait(30)
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
    assert reading.wait(30)
    reader.close()
    assert wrong == []
    assert sorted(row["id"] for row in quick.rows("result")) == [390, 391, 392, 393]


def reader_pairs(workspace: MySQLWorkspace) -> set[tuple[int, int]]:
    return {(row["epoch"], row["slot"]) for row in workspace.rows()}
