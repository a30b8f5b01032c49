"""Other people and other drivers at the same tables: scenarios 29, 32, 42, 52, 55 and 56, and readers all the while."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from onceward.clock import SystemClock
from onceward.connections.postgres import Address, Session
from onceward.contracts import Guarantee, TryAgain
from onceward.epoch import Publisher, RunContext
from onceward.errors import OutputLost, ReceiptsMoved, RowsRejected, TargetChanged
from onceward.identity import Generation, JobIdentity, JobName, RunId, SinkName, TransactionName
from onceward.journal import IdentityFile
from onceward.sinks.postgres import receipts
from onceward.sinks.postgres.two_phase import PostgresTwoPhaseSink
from onceward.sinks.postgres.write_ahead import PostgresWriteAheadSink
from onceward.testing import Behaviour, Crashed, DiesAt, Finished, Harness, SinkUnderTest
from onceward.testing.engine import SCHEMA

from .conftest import Place
from .deliver import JOB, batch_of, context, deliver, staged, values
from .jobs import VARIANTS, dies_before_publishing, error_of, finished_cleanly, job

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

EACH_WAY = pytest.mark.parametrize("variant", VARIANTS)


def prepare(place: Place, gid: str) -> None:
    with Session(Address.parse(place.server.url)) as session:
        session.run("BEGIN")
        session.run(f"PREPARE TRANSACTION '{gid}'")


def test_s52_a_prepared_transaction_that_someone_rolled_back_is_named_with_its_slot(place: Place) -> None:
    harness = job(place, "two-phase")
    assert isinstance(harness.life(dies_before_publishing("two-phase")), Crashed)
    gone = next(gid for gid in place.prepared() if (name := TransactionName.parse(gid)) and name.slot == 1)
    place.query(f"ROLLBACK PREPARED '{gone}'")
    error = error_of(harness, OutputLost)
    assert f"slot 1: {gone} is not prepared in postgresql://127.0.0.1:" in str(error)
    assert (error.epoch, error.sink) == (0, "postgres:rows")
    assert "onceward rewind CHECKPOINT 0" in str(error.hint)
    assert {row["slot"] for row in place.rows()} <= {0}, "nothing is made up for it"


def test_s42_prepared_transactions_of_others_are_left_alone(place: Place) -> None:
    """Other names, other jobs whose name begins alike, other generations, other sinks."""

    def named(job: str, generation: str, sink: str) -> str:
        identity = JobIdentity(JobName(job), Generation(generation))
        name = TransactionName.of(identity, SinkName(sink), epoch=0, takeover=0, slot=0, attempt=1, run=RunId("bbbbbb"))
        return str(name)

    harness = job(place, "two-phase", name="app-1")
    assert isinstance(harness.life(dies_before_publishing("two-phase")), Crashed)
    record = IdentityFile(harness.storage).read()
    assert record is not None
    ours = set(place.prepared())
    generation = record.identity.generation
    mine = named("app-1", generation, "postgres:rows")
    foreign = {
        "theirs",
        "ow1_",
        f"{mine}x",
        mine.upper(),
        named("app-10", generation, "postgres:rows"),
        named("app-1", "zzzzzzzz", "postgres:rows"),
        named("app-1", generation, "postgres:rows2"),
    }
    for gid in foreign:
        prepare(place, gid)
    prepare(place, mine)
    finished_cleanly(harness)
    assert set(place.prepared()) == foreign, "the stray one of this very sink is reaped, the others are not ours"
    assert not ours & foreign


CHANGES = {
    "table": ("ALTER TABLE ~.rows RENAME TO gone", "ALTER TABLE ~.gone RENAME TO rows", '"rows" does not exist'),
    "column": (
        "ALTER TABLE ~.rows RENAME key TO gone",
        "ALTER TABLE ~.rows RENAME gone TO key",
        "column key was bigint and is not there",
    ),
    "type": (
        "ALTER TABLE ~.rows ALTER key TYPE date USING current_date",
        "ALTER TABLE ~.rows ALTER key TYPE bigint USING 0",
        "column key was bigint and is date",
    ),
    "index": (
        "ALTER TABLE ~.rows DROP CONSTRAINT rows_id_key",
        "ALTER TABLE ~.rows ADD UNIQUE (id)",
        "unique indexes was rows btree (id) and is none",
    ),
    "required": (
        "ALTER TABLE ~.rows ADD new int NOT NULL DEFAULT 0; ALTER TABLE ~.rows ALTER new DROP DEFAULT",
        "ALTER TABLE ~.rows DROP new",
        "columns that need a value was not there and is new",
    ),
}


@pytest.mark.parametrize(
    ("variant", "what"),
    [(variant, what) for variant in VARIANTS for what in CHANGES if what != "index" or variant == "upsert"],
)
def test_s56_a_table_changed_while_running_keeps_the_epoch_waiting_and_whole(
    variant: str, what: str, place: Place
) -> None:
    change, undo, told = CHANGES[what]
    harness = job(place, variant)
    assert isinstance(harness.life(until=0), Finished)
    for statement in change.split("; "):
        place.query(statement)
    table = "gone" if what == "table" else "rows"
    before = len(place.rows(table))
    assert told in str(error_of(harness, TargetChanged))
    assert len(place.rows(table)) == before == 4
    assert place.prepared() == []
    place.query(undo)
    finished_cleanly(harness)


def test_s55_a_row_that_a_deferred_constraint_rejects_is_a_rejected_row(place: Place) -> None:
    """The server tells it with the COMMIT only, and trying again would not help."""
    place.query("CREATE TABLE ~.parent (id bigint PRIMARY KEY)")
    place.query("CREATE TABLE ~.rows (id bigint REFERENCES ~.parent DEFERRABLE INITIALLY DEFERRED)")
    sink = place.sink().choose()
    batch = batch_of(id=pa.array([7]))
    sink.check(batch.schema, output_mode="append")
    with pytest.raises(RowsRejected, match="violates foreign key constraint"):
        deliver(sink, [batch])
    assert isinstance(sink, PostgresWriteAheadSink)
    assert [row.why for row in sink.find_rejected([values(sink, 0, [batch])], JOB, 0)]
    assert (place.prepared(), place.rows()) == ([], [])


def test_a_named_trigger_that_cannot_be_prepared_and_came_in_mid_run_stops_the_job_and_the_log_takes_over(
    place: Place,
) -> None:
    place.query("CREATE TABLE ~.rows (id bigint)")
    chosen_before = place.sink(triggers=["tell"]).choose()
    chosen_before.check(pa.schema({"id": pa.int64()}), output_mode="append")
    place.query("CREATE FUNCTION ~.tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NOTIFY news; RETURN NEW; END'")
    place.query("CREATE TRIGGER tell BEFORE INSERT ON ~.rows FOR EACH ROW EXECUTE FUNCTION ~.tell()")
    batch = batch_of(id=pa.array([7]))
    with pytest.raises(TargetChanged, match="triggers was none"):
        deliver(chosen_before, [batch])
    deliver(place.sink(triggers=["tell"]).choose(), [batch])
    assert place.rows() == [{"id": 7}]


# --- two drivers ----------------------------------------------------------------------------------


def publisher_of(harness: Harness) -> Publisher:
    """A publisher by itself, as a driver's publisher thread is."""
    record = IdentityFile(harness.storage).read()
    assert record is not None
    context = RunContext(
        job=record.identity,
        run=RunId("zzzzzz"),
        sinks=harness.sinks,
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=harness.storage,
        decisions=harness.logs,
        clock=SystemClock(),
        adopted=record.adopted,
    )
    return Publisher(context)


def at_once(*calls: Callable[[], object]) -> list[BaseException]:
    """All of them in threads that start together; what they raised."""
    raised: list[BaseException] = []
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        gate.wait(60)
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return raised


@EACH_WAY
def test_s29_drivers_that_publish_one_epoch_at_the_same_moment_publish_it_once(variant: str, place: Place) -> None:
    for _ in range(8):
        harness = job(place, variant, 40)
        place.empty()
        assert isinstance(harness.life(dies_before_publishing(variant)), Crashed)
        assert at_once(*[publisher_of(harness).publish_decided] * 3) == []
        assert harness.audits()["postgres:rows"].exactly_once, harness.audits()
        finished_cleanly(harness)


def test_one_transaction_committed_from_many_sessions_at_once_is_committed_once(place: Place) -> None:
    sink = place.sink().choose()
    assert isinstance(sink, PostgresTwoPhaseSink)
    batch = batch_of(id=pa.array([7]))
    sink.check(batch.schema, output_mode="append")
    outcomes: Counter[str] = Counter()
    for epoch in range(10):
        handle = staged(sink, context(sink, epoch=epoch), [batch])

        def commit(handle: Any = handle) -> None:
            outcomes[type(sink.commit(handle)).__name__] += 1

        assert at_once(*[commit] * 4) == []
    assert outcomes["Committed"] == 10
    assert set(outcomes) <= {"Committed", "AlreadyCommitted", "RetryLater"}
    assert len(place.rows()) == 10


def test_a_driver_that_was_stopped_in_the_middle_keeps_others_from_publishing_and_they_say_so(
    place: Place,
) -> None:
    sink = place.sink(two_phase=False, lock_timeout_s=0.2).choose()
    batch = batch_of(id=pa.array([7]))
    sink.check(batch.schema, output_mode="append")
    with Session(Address.parse(place.url)) as stopped:
        stopped.begin()
        receipts.lock(stopped, JOB, sink.name)
        with pytest.raises(TryAgain, match="another driver is publishing for this job and sink"):
            deliver(sink, [batch])
        assert place.rows() == []
        stopped.run("ROLLBACK")
    deliver(sink, [batch])
    assert place.rows() == [{"id": 7}]


def test_the_statement_that_takes_the_lock_bounds_every_wait_behind_it(place: Place) -> None:
    """And for the transaction only: behind a pooler the session is the next one's."""
    limits = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
    with Session(Address.parse(place.url, lock_timeout_s=7, timeout_s=90)) as session:
        before = session.run(limits)
        with session.transaction():
            receipts.lock(session, JOB, SinkName("sink"))
            assert session.run(limits) == [("7s", "90s")]
        assert session.run(limits) == before == [("0", "0")]


# --- readers --------------------------------------------------------------------------------------


@EACH_WAY
def test_a_reader_sees_no_row_twice_none_undecided_and_from_the_log_only_whole_epochs(
    variant: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks between any two statements that the job sends, while staging and while publishing."""
    harness = job(place, variant, 6, 6, 12, 18)
    run, copy = Session.run, Session.copy
    looks: list[int] = []

    def look() -> None:
        found = run(reader, "SELECT id, epoch FROM rows")
        decided = harness.logs.decided()
        ids, epochs = Counter(row[0] for row in found), defaultdict(set)
        for number, epoch in found:
            epochs[epoch].add(number)
        assert all(count == 1 for count in ids.values()), ids
        assert all(epoch <= decided for epoch in epochs), (decided, dict(epochs))
        if variant != "two-phase":
            assert all(numbers == set(harness.source.rows_of(epoch)) for epoch, numbers in epochs.items()), epochs
        looks.append(len(found))

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def passed(self: Session, *args: Any) -> Any:
            result = call(self, *args)
            look()
            return result

        return passed

    with Session(Address.parse(place.url)) as reader:
        monkeypatch.setattr(Session, "run", watched(run))
        monkeypatch.setattr(Session, "copy", watched(copy))
        assert isinstance(harness.life(behaviour=Behaviour(publishes=lambda epoch: epoch != 0)), Finished)
        monkeypatch.undo()
    assert harness.problems() == []
    assert {0, 12, 18} <= set(looks), "it looked before, between and after"
    assert len(looks) > 40


@EACH_WAY
def test_s79_receipts_in_another_schema_are_refused_while_an_epoch_is_unsettled(place: Place, variant: str) -> None:
    harness = job(place, variant)
    harness.life(DiesAt("storage create settled/0"))
    place.query("CREATE SCHEMA IF NOT EXISTS elsewhere")
    moved = place.sink(**VARIANTS[variant], receipts_schema="elsewhere").choose()
    moved.check(SCHEMA, output_mode="append")
    before, harness.subjects = harness.subjects, (SinkUnderTest(moved, place.rows, ordered=False),)
    error = error_of(harness, ReceiptsMoved)
    assert f"schema {place.schema}" in error.message
    harness.subjects = before
    finished_cleanly(harness)
    place.query("DROP SCHEMA elsewhere CASCADE")
