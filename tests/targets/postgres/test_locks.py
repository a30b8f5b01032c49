"""Prepared transactions and locks, scenarios 75 to 77: no wait is without end.

Calls that waited for ever, before, are made in a thread of their own, so that a test of them fails and does not hang.
"""

from __future__ import annotations

import threading

import pytest

from onceward.admin import find_poison
from onceward.connections.postgres import Address, PostgresError, Session
from onceward.contracts import Committed, TryAgain
from onceward.epoch import PublishLimits
from onceward.errors import PublishFailed, RowsRejected, TargetChanged, TargetUnavailable
from onceward.recovery import look_at
from onceward.sinks.postgres.two_phase import PostgresTwoPhaseSink
from onceward.sinks.postgres.write_ahead import PostgresWriteAheadSink
from onceward.testing import Crashed, Failed, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA

from .conftest import Place
from .deliver import JOB, context, deliver, staged, values
from .jobs import VARIANTS, ServerErrorsAsFaults, dies_before_publishing, error_of, finished_cleanly, job, subject
from .locks import PATIENCE_S, SEVEN, SHORT, again, locked, within

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

COLUMNS = "id bigint, key bigint, version text, epoch bigint, slot bigint, attempt bigint"


# --- 75: one key in two slots -------------------------------------------------------------------


@pytest.mark.parametrize("deferred", ["", " DEFERRABLE INITIALLY DEFERRED"], ids=["at once", "deferred"])
def test_s75_one_key_in_two_slots_of_an_epoch_ends_as_a_rejected_row(deferred: str, place: Place) -> None:
    half = "half bigint GENERATED ALWAYS AS (id / 2) STORED"
    place.query(f"CREATE TABLE ~.rows ({COLUMNS}, {half}, UNIQUE (half){deferred})")
    sink = place.sink(**SHORT).choose()
    sink.check(SCHEMA, output_mode="append")
    harness = Harness(
        SinkUnderTest(sink, place.rows, ordered=False), source=Source(ends=(4,), keys=2), rows_in_a_batch=1
    )
    ending = within(lambda: harness.life(ServerErrorsAsFaults()))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, RowsRejected), ending
    assert "rows_half_key" in str(ending.error)
    context, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    found = within(lambda: find_poison(context))
    assert [(row.values["id"], row.values["slot"]) for row in found] == [(1, 1), (3, 1)], "0 and 2 are in slot 0"
    assert all("rows_half_key" in row.why for row in found)
    assert (place.rows(), place.prepared()) == ([], [])
    place.query("ALTER TABLE ~.rows DROP CONSTRAINT rows_half_key")
    # As every start does.
    sink.check(SCHEMA, output_mode="append")
    finished_cleanly(harness)


# --- 76: a second attempt, and an index that comes in mid-run -----------------------------------


def test_s76_a_second_attempt_does_not_meet_the_first_ones_locks_where_keys_are_unique(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (id bigint PRIMARY KEY)")
    sink = place.sink(**SHORT).choose()
    sink.check(SEVEN.schema, output_mode="append")
    within(lambda: deliver(sink, [SEVEN]))
    within(lambda: deliver(sink, [SEVEN]))
    assert place.rows() == [{"id": 7}], "the second finds the receipt of the first"
    assert place.prepared() == []


def test_s76_after_an_index_came_in_mid_run_the_attempt_fails_in_time_and_a_start_takes_the_log(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (id bigint)")
    sink, unchecked = place.sink(**SHORT).choose(), place.sink(**SHORT).choose()
    assert isinstance(sink, PostgresTwoPhaseSink)
    assert isinstance(unchecked, PostgresTwoPhaseSink)
    sink.check(SEVEN.schema, output_mode="append")
    place.query("CREATE UNIQUE INDEX late ON ~.rows (id)")
    first = context(sink)
    with pytest.raises(TargetChanged, match="unique indexes was none"):
        staged(sink, first, [SEVEN])
    # One that has not seen the table before does not know that the index is new.
    sink = unchecked
    handle = staged(sink, first, [SEVEN])
    with pytest.raises(TargetUnavailable) as failed:
        within(lambda: staged(sink, again(first), [SEVEN]))
    assert "lock_timeout_s = 0.3" in str(failed.value)
    assert f"the prepared transaction {first.transaction}" in str(failed.value)
    assert (failed.value.epoch, failed.value.sink) == (0, "postgres:rows")
    assert "start again" in str(failed.value.hint)
    restarted = place.sink(**SHORT).choose()
    assert isinstance(restarted, PostgresWriteAheadSink)
    assert isinstance(restarted.alternate, PostgresTwoPhaseSink)
    restarted.alternate.abort(handle)
    within(lambda: deliver(restarted, [SEVEN]))
    assert place.rows() == [{"id": 7}]


def test_what_was_prepared_before_the_constraint_came_is_published_by_a_start_that_takes_the_log(place: Place) -> None:
    """A partition can be attached while transactions are prepared; an index on the table itself would wait for them."""
    place.query(f"CREATE TABLE ~.rows ({COLUMNS}) PARTITION BY RANGE (id)")
    place.query("CREATE TABLE ~.low PARTITION OF ~.rows FOR VALUES FROM (0) TO (6)")
    harness = job(place, "two-phase", 4, 8)
    assert isinstance(harness.sinks[0], PostgresTwoPhaseSink)
    assert isinstance(harness.life(dies_before_publishing("two-phase")), Crashed)
    assert len(place.prepared()) == 2
    place.query(f"CREATE TABLE ~.high ({COLUMNS}, UNIQUE (id))")
    place.query("ALTER TABLE ~.rows ATTACH PARTITION ~.high FOR VALUES FROM (6) TO (100)")
    harness.subjects = (subject(place, "two-phase"),)
    assert isinstance(harness.sinks[0], PostgresWriteAheadSink)
    finished_cleanly(harness)
    assert place.prepared() == []
    variants = place.query("SELECT epoch, transaction <> '' FROM ~.onceward_receipts GROUP BY 1, 2 ORDER BY 1")
    assert variants == [(0, True), (1, False)]


# --- 77: a table that others hold locked ---------------------------------------------------------


@pytest.mark.parametrize("table", ["rows", "onceward_receipts"])
def test_s77_staging_into_a_locked_table_fails_in_time_and_names_who_holds_it(table: str, place: Place) -> None:
    sink = place.sink(**SHORT).choose()
    assert isinstance(sink, PostgresTwoPhaseSink)
    sink.check(SEVEN.schema, output_mode="append")
    with locked(place, table) as pid:
        with pytest.raises(TargetUnavailable) as failed:
            within(lambda: staged(sink, context(sink), [SEVEN]))
        assert f"AccessExclusiveLock of session {pid} (someone else)" in str(failed.value)
    deliver(sink, [SEVEN])
    assert place.rows() == [{"id": 7}]
    assert place.prepared() == []


@pytest.mark.parametrize("variant", ["write-ahead", "upsert"])
def test_s77_publishing_into_a_locked_table_stops_at_the_deadline_and_goes_on_when_it_is_free(
    variant: str, place: Place
) -> None:
    place.sink(**VARIANTS[variant]).check(SCHEMA, output_mode="append")
    sink = place.sink(**SHORT, **VARIANTS[variant]).choose()
    limits = PublishLimits(deadline_s=1.0)
    made = SinkUnderTest(sink, place.rows, ordered=False)
    harness = Harness(made, source=Source(ends=(4, 8), keys=4), rows_in_a_batch=1, limits=limits)
    with locked(place, "rows") as pid:
        began = harness.clock.monotonic()
        ending = within(lambda: harness.life(ServerErrorsAsFaults()))
        assert isinstance(ending, Failed)
        assert isinstance(ending.error, PublishFailed), ending
        assert f"session {pid} (someone else)" in str(ending.error)
        assert harness.clock.monotonic() - began <= limits.deadline_s
    finished_cleanly(harness)


def test_s77_prepared_transactions_are_committed_also_while_others_wait_for_the_table(place: Place) -> None:
    sink = place.sink().choose()
    assert isinstance(sink, PostgresTwoPhaseSink)
    sink.check(SEVEN.schema, output_mode="append")
    handle = staged(sink, context(sink), [SEVEN])
    held = threading.Event()

    def hold() -> None:
        with locked(place, "rows"):
            held.set()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert not held.wait(0.2), "it waits for the prepared transaction"
    assert within(lambda: sink.commit(handle)) == Committed()
    assert held.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


@pytest.mark.parametrize("two_phase", [None, False])
def test_s77_questions_about_locked_receipts_are_answered_in_time_or_not_at_all(
    two_phase: bool | None, place: Place
) -> None:
    """At a start, and when it stops."""
    sink = place.sink(**SHORT, two_phase=two_phase).choose()
    sink.check(SEVEN.schema, output_mode="append")
    with locked(place, "onceward_receipts", "onceward_watermarks"):
        with pytest.raises(PostgresError, match="lock timeout"):
            within(lambda: list(sink.receipts(JOB)))
        with pytest.raises(PostgresError, match="lock timeout"):
            within(lambda: sink.forget(JOB, 1))
    assert list(sink.receipts(JOB)) == []


def test_s77_a_start_while_the_table_is_locked_is_refused_in_time_or_goes_on(place: Place) -> None:
    """The choice reads the catalog, which the lock does not cover."""
    place.sink().check(SEVEN.schema, output_mode="append")
    with locked(place, "rows"):
        within(lambda: place.sink(**SHORT).check(SEVEN.schema, output_mode="append"))
    with Session(Address.parse(place.url)) as other:
        other.begin()
        other.run("CREATE TABLE coming (id bigint)")
        with pytest.raises(TargetUnavailable, match=r"lock_timeout_s = 0\.3"):
            within(lambda: place.sink(table="coming", **SHORT).check(SEVEN.schema, output_mode="append"))


@pytest.mark.parametrize(
    "options", [{"two_phase": False}, {"mode": "upsert", "keys": ["id"]}], ids=["append", "upsert"]
)
def test_a_statement_that_takes_too_long_is_no_rows_fault_and_is_tried_again(
    options: dict[str, object], place: Place
) -> None:
    place.query("CREATE TABLE ~.rows (id bigint UNIQUE)")
    place.query(
        "CREATE FUNCTION ~.tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NEW; END'"
    )
    place.query("CREATE TRIGGER tell BEFORE INSERT ON ~.rows FOR EACH ROW EXECUTE FUNCTION ~.tell()")
    sink = place.sink(triggers=["tell"], **options).choose()
    hasty = place.sink(timeout_s=0.3, triggers=["tell"], **options).choose()
    assert isinstance(hasty, PostgresWriteAheadSink)
    sink.check(SEVEN.schema, output_mode="append")
    with pytest.raises(TryAgain, match=r"timeout_s = 0\.3"):
        within(lambda: deliver(hasty, [SEVEN]))
    with pytest.raises(PostgresError, match="statement timeout"):
        within(lambda: hasty.find_rejected([values(hasty, 0, [SEVEN])], JOB, 0))
    place.query("DROP TRIGGER tell ON ~.rows")
    sink.check(SEVEN.schema, output_mode="append")
    deliver(sink, [SEVEN])
    assert place.rows() == [{"id": 7}]


def test_a_commit_of_a_prepared_transaction_has_no_statement_timeout(place: Place) -> None:
    """While it waits for a synchronous standby, to cancel it is to confirm it, and nobody would have a copy."""
    sink = place.sink(timeout_s=60.0).choose()
    assert isinstance(sink, PostgresTwoPhaseSink)
    sink.check(SEVEN.schema, output_mode="append")
    handle = staged(sink, context(sink), [SEVEN])
    seen: list[object] = []
    run = Session.run

    def watched(self: Session, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        if statement.startswith("COMMIT PREPARED"):
            seen.extend(run(self, "SELECT current_setting('statement_timeout')"))
        return run(self, statement, *parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "run", watched)
        assert sink.commit(handle) == Committed()
    assert seen == [("0",)]


def test_the_driver_error_of_a_locked_table_reaches_the_job(place: Place) -> None:
    harness = job(place, "two-phase", 4, 8)
    impatient = place.sink(**SHORT).choose()
    harness.subjects = (SinkUnderTest(impatient, place.rows, ordered=False),)
    with locked(place, "rows", mode="SHARE"):
        error = within(lambda: error_of(harness, TargetUnavailable))
        assert "ShareLock" in str(error)
    assert place.prepared() == []
    finished_cleanly(harness)
