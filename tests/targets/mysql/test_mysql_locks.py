"""Prepared XA transactions and locks, scenarios 75 to 77: which way an append takes, and that every wait ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from mysql_workspace import JOB, MySQLWorkspace, pre_committed

from onceward.admin import find_poison
from onceward.connections.mysql import MySQLError, Session
from onceward.contracts import Committed, Handle, Receipt, Severity, SlotContext, SlotValues, TryAgain, Workload
from onceward.epoch import PublishLimits
from onceward.errors import PublishFailed, RowsRejected, TargetRefused, TargetUnavailable
from onceward.identity import Fingerprint, RunId
from onceward.recovery import look_at
from onceward.sinks import MySQLSink
from onceward.sinks.mysql.session import connect
from onceward.sinks.mysql.two_phase import MySQLTwoPhaseSink
from onceward.sinks.mysql.write_ahead import MySQLWriteAheadSink
from onceward.testing import Crashed, DiesAt, Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.conformance.base import AT
from onceward.testing.engine import SCHEMA

pytestmark = pytest.mark.cluster

SHORT = {"lock_timeout_s": 1.0}
COLUMNS = "id bigint, `key` bigint, version text, epoch bigint, slot bigint, attempt bigint"
PRINT = Fingerprint("abcdefghijklmnop")
SEVEN = pa.RecordBatch.from_pydict({"id": [7], "key": [7]})

PLAIN = "CREATE TABLE `rows` (id bigint, `key` bigint)"
LOGGED = {
    "primary key": (["CREATE TABLE `rows` (id bigint PRIMARY KEY, `key` bigint)"], "index 'PRIMARY' is unique"),
    "composite primary key": (["CREATE TABLE `rows` (id bigint, `key` bigint, PRIMARY KEY (id, `key`))"], "'PRIMARY'"),
    "unique": ([PLAIN, "CREATE UNIQUE INDEX once ON `rows` (`key`)"], "index 'once' is unique"),
    "unique prefix": (
        ["CREATE TABLE `rows` (id bigint, `key` bigint, t varchar(99), UNIQUE once (t(5)))"],
        "index 'once' is unique",
    ),
    "foreign key out": (
        [
            "CREATE TABLE other (id bigint PRIMARY KEY)",
            PLAIN,
            "ALTER TABLE `rows` ADD CONSTRAINT refers FOREIGN KEY (`key`) REFERENCES other (id)",
        ],
        "foreign key 'refers' locks the rows it refers to",
    ),
    "foreign key in": (
        [
            "CREATE TABLE `rows` (id bigint UNIQUE, `key` bigint)",
            "CREATE TABLE other (id bigint, FOREIGN KEY (id) REFERENCES `rows` (id))",
        ],
        "index 'id' is unique",
    ),
    "trigger": (
        [PLAIN, "CREATE TRIGGER tell BEFORE INSERT ON `rows` FOR EACH ROW SET NEW.`key` = NEW.`key`"],
        "trigger 'tell' may lock anything",
    ),
    "partitions with a unique index": (
        ["CREATE TABLE `rows` (id bigint PRIMARY KEY, `key` bigint) PARTITION BY HASH (id) PARTITIONS 2"],
        "index 'PRIMARY' is unique",
    ),
    "counted, with another unique index": (
        ["CREATE TABLE `rows` (n bigint AUTO_INCREMENT PRIMARY KEY, id bigint UNIQUE, `key` bigint)"],
        "index 'id' is unique",
    ),
}
PREPARED = {
    "plain": [PLAIN],
    "missing": [],
    "an index that is not unique": [PLAIN, "CREATE INDEX some ON `rows` (`key`)"],
    "a key that counts": [
        "CREATE TABLE `rows` (n bigint AUTO_INCREMENT PRIMARY KEY, id bigint, `key` bigint, KEY (`key`))"
    ],
    "a key that counts, referred to": [
        "CREATE TABLE `rows` (n bigint AUTO_INCREMENT PRIMARY KEY, id bigint, `key` bigint)",
        "CREATE TABLE other (n bigint, FOREIGN KEY (n) REFERENCES `rows` (n))",
    ],
    "a key by uuid": ["CREATE TABLE `rows` (n char(36) DEFAULT uuid() PRIMARY KEY, id bigint, `key` bigint)"],
    "a trigger on updates": [
        PLAIN,
        "CREATE TRIGGER tell BEFORE UPDATE ON `rows` FOR EACH ROW SET NEW.`key` = NEW.`key`",
    ],
    "partitions": ["CREATE TABLE `rows` (id bigint, `key` bigint) PARTITION BY HASH (id) PARTITIONS 2"],
}


def made(workspace: MySQLWorkspace, statements: list[str]) -> MySQLWorkspace:
    for statement in statements:
        workspace.query(statement)
    return workspace


def context(sink: Any, *, slot: int = 0, attempt: int = 1, epoch: int = 0) -> SlotContext:
    return SlotContext(JOB, sink.name, epoch, 0, slot, attempt, RunId("rrrrrr"), AT, PRINT)


def stage(sink: Any, where: SlotContext, batch: pa.RecordBatch = SEVEN) -> Handle:
    transaction = sink.begin_transaction(where)
    try:
        sink.invoke(transaction, batch)
        handle = pre_committed(sink, transaction)
    except BaseException:
        sink.discard(transaction)
        raise
    return handle


def values(sink: Any, *slots: int, batch: pa.RecordBatch = SEVEN) -> list[SlotValues]:
    def receipt(slot: int) -> Receipt:
        return Receipt(JOB.name, JOB.generation, sink.name, 0, slot, PRINT)

    return [SlotValues(slot, batch.num_rows, receipt(slot), lambda: iter([batch])) for slot in slots]


@contextmanager
def locked(workspace: MySQLWorkspace, *tables: str) -> Iterator[None]:
    """By someone else."""
    with connect(workspace.sink(two_phase=False)._options) as other:
        other.execute("LOCK TABLES " + ", ".join(f"{table} WRITE" for table in tables))
        yield
        # The server notices the end of a connection later, and what comes next waits for no lock for long.
        other.execute("UNLOCK TABLES")


@contextmanager
def in_time() -> Iterator[None]:
    """Every session here waits for a second; before, they waited for twenty, or for a day."""
    waits, opened = list[int](), Session.__init__

    def noted(self: Session, *arguments: Any, lock_wait_s: int, **named: Any) -> None:
        waits.append(lock_wait_s)
        opened(self, *arguments, lock_wait_s=lock_wait_s, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "__init__", noted)
        yield
    assert {*waits} == {1}


# --- which way ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", LOGGED)
def test_a_table_in_which_inserts_wait_for_each_other_is_served_from_the_log_and_the_reason_is_told(
    shape: str, workspace: MySQLWorkspace, caplog: pytest.LogCaptureFixture
) -> None:
    statements, why = LOGGED[shape]
    sink = made(workspace, statements).sink(before_triggers="allow")
    assert isinstance(sink, MySQLWriteAheadSink)
    assert isinstance(sink.alternate, MySQLTwoPhaseSink), "for what an earlier start has prepared"
    with caplog.at_level(logging.WARNING, "onceward"):
        sink.check(SEVEN.schema, output_mode="append")
    assert [why in record.getMessage() for record in caplog.records] == [True]
    found = {finding.about: finding for finding in sink.diagnose(Workload(2, 10))}
    assert found["mechanism"].severity is Severity.OK
    assert why in found["mechanism"].detail
    with pytest.raises(TargetRefused) as refused:
        workspace.sink(two_phase=True)
    assert why in str(refused.value)
    assert refused.value.sink == "mysql:rows"
    assert "two_phase=False" in str(refused.value.hint)


@pytest.mark.parametrize("shape", PREPARED)
def test_a_table_in_which_they_do_not_is_served_by_xa_and_none_waits(
    shape: str, workspace: MySQLWorkspace, caplog: pytest.LogCaptureFixture
) -> None:
    sink = made(workspace, PREPARED[shape]).sink(**SHORT)
    assert isinstance(sink, MySQLTwoPhaseSink)
    assert isinstance(workspace.sink(two_phase=True), MySQLTwoPhaseSink)
    with caplog.at_level(logging.WARNING, "onceward"):
        sink.check(SEVEN.schema, output_mode="append")
    assert caplog.records == []
    with in_time():
        handles = [stage(sink, context(sink, slot=slot)) for slot in (0, 1)]
        handles.append(stage(sink, context(sink, slot=1, attempt=2)))
        assert list(sink.commit_all(handles)) == [Committed()] * 3
    assert len(workspace.rows()) == 3


def test_a_key_that_the_server_would_count_and_the_stream_fills_is_refused_with_the_way(
    workspace: MySQLWorkspace,
) -> None:
    made(workspace, PREPARED["a key that counts"])
    filled = pa.schema({"id": pa.int64(), "N": pa.int64()})
    with pytest.raises(TargetRefused, match="index 'PRIMARY' is unique, and the stream fills it") as refused:
        workspace.sink().check(filled, output_mode="append")
    assert "two_phase=False" in str(refused.value.hint)
    workspace.sink(two_phase=False).check(filled, output_mode="append")


def test_only_appends_can_be_asked_to_be_prepared(workspace: MySQLWorkspace) -> None:
    with pytest.raises(Exception, match="mode upsert cannot wait in prepared transactions"):
        MySQLSink(workspace.url(), table="rows", mode="upsert", keys=["id"], two_phase=True)


# --- 75 and 76 ----------------------------------------------------------------------------------


def test_s75_one_key_in_two_slots_of_an_epoch_ends_as_a_rejected_row(workspace: MySQLWorkspace) -> None:
    workspace.query(f"CREATE TABLE `rows` ({COLUMNS}, half bigint AS (id DIV 2) STORED, UNIQUE once (half))")
    sink = workspace.sink(**SHORT)
    sink.check(SCHEMA, output_mode="append")
    harness = Harness(
        SinkUnderTest(sink, workspace.rows, ordered=False), source=Source(ends=(4,), keys=2), rows_in_a_batch=1
    )
    with in_time():
        ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, RowsRejected), ending
    assert "Duplicate entry" in str(ending.error)
    seen, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    found = find_poison(seen)
    assert [(row.values["id"], row.values["slot"]) for row in found] == [(1, 1), (3, 1)], "0 and 2 are in slot 0"
    assert all("Duplicate entry" in row.why for row in found)
    assert (list(workspace.rows()), workspace.prepared()) == ([], [])
    workspace.query("DROP INDEX once ON `rows`")
    harness.drain()
    assert harness.problems() == []


def test_s76_a_second_attempt_does_not_meet_the_first_ones_locks_where_keys_are_unique(
    workspace: MySQLWorkspace,
) -> None:
    workspace.query("CREATE TABLE `rows` (id bigint PRIMARY KEY, `key` bigint)")
    sink = workspace.sink(**SHORT)
    sink.check(SEVEN.schema, output_mode="append")
    with in_time():
        assert sink.send_transaction(values(sink, 0), JOB, 0, AT)
        assert sink.send_transaction(values(sink, 0), JOB, 0, AT)
    assert workspace.rows() == [{"id": 7, "key": 7}], "the second finds the receipt of the first"


def test_s76_after_an_index_came_in_mid_run_the_attempt_fails_in_time_and_a_start_takes_the_log(
    workspace: MySQLWorkspace,
) -> None:
    workspace.query(PLAIN)
    sink = workspace.sink(**SHORT)
    assert isinstance(sink, MySQLTwoPhaseSink)
    sink.check(SEVEN.schema, output_mode="append")
    workspace.query("CREATE UNIQUE INDEX late ON `rows` (id)")
    first = context(sink)
    handle = stage(sink, first)
    with in_time(), pytest.raises(TargetUnavailable) as failed:
        stage(sink, context(sink, attempt=2))
    assert "lock_timeout_s = 1" in str(failed.value)
    assert f"the prepared transaction {first.transaction}" in str(failed.value)
    assert (failed.value.epoch, failed.value.sink) == (0, "mysql:rows")
    assert "start again" in str(failed.value.hint)
    restarted = workspace.sink(**SHORT)
    assert isinstance(restarted, MySQLWriteAheadSink)
    assert isinstance(restarted.alternate, MySQLTwoPhaseSink)
    restarted.alternate.abort(handle)
    assert restarted.send_transaction(values(restarted, 0), JOB, 0, AT)
    assert workspace.rows() == [{"id": 7, "key": 7}]


def test_what_was_prepared_before_is_published_by_a_start_that_takes_the_log(workspace: MySQLWorkspace) -> None:
    """An index would wait for the prepared transactions; so it comes while the first ones are not loaded yet."""
    workspace.query(f"CREATE TABLE `rows` ({COLUMNS})")
    sink = workspace.sink()
    sink.check(SCHEMA, output_mode="append")
    workspace.query("CREATE UNIQUE INDEX late ON `rows` (id)")
    harness = Harness(
        SinkUnderTest(sink, workspace.rows, ordered=False), source=Source(ends=(4, 8), keys=4), rows_in_a_batch=1
    )
    assert isinstance(harness.life(DiesAt("sink mysql:rows commit_all")), Crashed)
    assert len(workspace.prepared()) == 2
    restarted = workspace.sink()
    assert isinstance(restarted, MySQLWriteAheadSink)
    harness.subjects = (SinkUnderTest(restarted, workspace.rows, ordered=False),)
    harness.drain()
    assert harness.problems() == []
    assert workspace.prepared() == []
    variants = workspace.query("SELECT DISTINCT epoch, receipt LIKE 'wal%' FROM onceward_receipts ORDER BY epoch")
    assert variants == [(0, 0), (1, 1)]


# --- 77: a table that others hold locked --------------------------------------------------------


@pytest.mark.parametrize("table", ["`rows`", "onceward_receipts"])
def test_s77_staging_into_a_locked_table_fails_in_time(table: str, workspace: MySQLWorkspace) -> None:
    sink = workspace.sink(**SHORT)
    assert isinstance(sink, MySQLTwoPhaseSink)
    sink.check(SEVEN.schema, output_mode="append")
    with locked(workspace, table), in_time(), pytest.raises(TargetUnavailable, match="lock_timeout_s = 1"):
        stage(sink, context(sink))
    assert sink.commit(stage(sink, context(sink))) == Committed()
    assert len(workspace.rows()) == 1


def test_s77_rows_that_another_transaction_holds_are_told_with_its_session(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (id bigint PRIMARY KEY, `key` bigint)")
    sink = workspace.sink(**SHORT)
    sink.check(SEVEN.schema, output_mode="append")
    with connect(sink._options) as other:
        number = other.execute("SELECT CONNECTION_ID()")[0][0]
        other.execute("START TRANSACTION")
        other.execute("INSERT INTO `rows` VALUES (7, 0)")
        with in_time(), pytest.raises(TryAgain, match=rf"the transaction of session {number} \(root\)"):
            sink.send_transaction(values(sink, 0), JOB, 0, AT)
        with in_time(), pytest.raises(MySQLError, match="Lock wait timeout"):
            sink.find_rejected(values(sink, 0), JOB, 0)
        other.execute("ROLLBACK")
    assert sink.send_transaction(values(sink, 0), JOB, 0, AT), "no row was to blame"


@pytest.mark.parametrize(
    "options", [{"two_phase": False}, {"mode": "upsert", "keys": ["id"]}], ids=["append", "upsert"]
)
def test_s77_publishing_into_a_locked_table_stops_at_the_deadline_and_goes_on_when_it_is_free(
    options: dict[str, Any], workspace: MySQLWorkspace
) -> None:
    sink = workspace.sink(**SHORT, **options)
    sink.check(SCHEMA, output_mode="update" if options.get("mode") else "append")
    harness = Harness(
        SinkUnderTest(sink, workspace.rows, ordered=False),
        source=Source(ends=(4, 8), keys=4),
        rows_in_a_batch=1,
        limits=PublishLimits(deadline_s=0.5),
    )
    began = harness.clock.monotonic()
    with locked(workspace, "`rows`"), in_time():
        ending = harness.life()
        assert harness.clock.monotonic() - began <= harness.limits.deadline_s
        assert isinstance(ending, Failed)
        assert isinstance(ending.error, PublishFailed), ending
        assert "lock_timeout_s = 1" in str(ending.error)
    assert isinstance(harness.life(), Finished)
    assert harness.problems() == []


def test_s77_questions_about_locked_receipts_are_answered_in_time_or_not_at_all(workspace: MySQLWorkspace) -> None:
    """At a start, and when it stops."""
    sink = workspace.sink(**SHORT)
    sink.check(SEVEN.schema, output_mode="append")
    with locked(workspace, "onceward_receipts", "onceward_watermarks"):
        with in_time(), pytest.raises(MySQLError, match="Lock wait timeout"):
            list(sink.receipts(JOB))
        with in_time(), pytest.raises(MySQLError, match="Lock wait timeout"):
            sink.forget(JOB, 1)
        assert list(sink.pending(JOB)) == []
    assert list(sink.receipts(JOB)) == []


def test_s77_a_start_while_the_table_is_locked_ends_in_time(workspace: MySQLWorkspace) -> None:
    workspace.sink().check(SEVEN.schema, output_mode="append")
    with locked(workspace, "`rows`"), in_time(), pytest.raises(TargetUnavailable, match="lock_timeout_s = 1"):
        workspace.sink(**SHORT).check(SEVEN.schema, output_mode="append")


def test_a_statement_that_takes_too_long_is_no_rows_fault(workspace: MySQLWorkspace) -> None:
    workspace.query(PLAIN)
    workspace.query("CREATE TRIGGER tell BEFORE INSERT ON `rows` FOR EACH ROW SET NEW.`key` = NEW.`key` + SLEEP(30)")
    sink = workspace.sink(before_triggers="allow")
    assert isinstance(sink, MySQLWriteAheadSink)
    sink.check(SEVEN.schema, output_mode="append")
    # It asks nothing before it is told to send.
    hasty = workspace.sink(timeout_s=1.0, before_triggers="allow", two_phase=False)
    with pytest.raises(TryAgain):
        hasty.send_transaction(values(hasty, 0), JOB, 0, AT)
    with pytest.raises(MySQLError):
        hasty.find_rejected(values(hasty, 0), JOB, 0)
    workspace.query("DROP TRIGGER tell")
    sink.check(SEVEN.schema, output_mode="append")
    assert sink.send_transaction(values(sink, 0), JOB, 0, AT)
    assert workspace.rows() == [{"id": 7, "key": 7}]


def test_every_session_has_its_limits(workspace: MySQLWorkspace) -> None:
    with connect(workspace.sink(lock_timeout_s=7, timeout_s=90.0)._options) as session:
        assert isinstance(session, Session)
        limits = "SELECT @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@max_statement_time, @@wait_timeout"
        assert session.execute(limits) == [(7, 7, 90.0, 90)]
