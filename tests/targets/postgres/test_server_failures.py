"""The server dies, is stopped, hangs, is full, or is started with other settings (scenarios 45, 46, 50, 51)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onceward.connections.postgres import Address, Session
from onceward.epoch import PublishLimits
from onceward.errors import ConfigurationError, PublishFailed, TargetUnavailable
from onceward.sinks.postgres.two_phase import PostgresTwoPhaseSink
from onceward.sinks.postgres.write_ahead import PostgresWriteAheadSink
from onceward.testing import Behaviour, Crashed, Finished, ManualClock, PausedAt
from onceward.testing.servers import PostgresServer

from .conftest import Place
from .jobs import (
    VARIANTS,
    ServerErrorsAsFaults,
    dies_before_publishing,
    error_of,
    finished_cleanly,
    job,
    publishing,
    subject,
)

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

EACH_WAY = pytest.mark.parametrize("variant", VARIANTS)
PATIENT = PublishLimits(deadline_s=600.0)


@contextmanager
def place_on(server: PostgresServer, name: str) -> Iterator[Place]:
    place = Place(server, name)
    place.clear()
    yield place


@pytest.fixture(scope="module")
def mortal(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server of our own, which writes to the disk before it confirms, unless its clients say otherwise."""
    with PostgresServer(synchronous_commit="off", wal_writer_delay="10s") as server:
        yield server


@pytest.fixture
def there(mortal: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_on(mortal, f"test_{abs(hash(request.node.name))}") as place:
        yield place


def restarted(server: PostgresServer, **settings: str | int) -> None:
    server.stop()
    server.settings = {**server.settings, **settings}
    server.start()


@EACH_WAY
def test_s51_a_server_killed_between_pre_commit_and_publish_has_everything_after_its_restart(
    variant: str, there: Place
) -> None:
    harness = job(there, variant)
    assert isinstance(harness.life(dies_before_publishing(variant)), Crashed)
    assert len(there.prepared()) == (2 if variant == "two-phase" else 0)
    there.server.kill()
    there.server.start()
    assert len(there.prepared()) == (2 if variant == "two-phase" else 0), "prepared transactions survive"
    assert there.rows() == []
    finished_cleanly(harness)


@EACH_WAY
def test_what_was_settled_survives_the_death_of_a_server_that_confirms_before_it_writes(
    variant: str, there: Place
) -> None:
    """With synchronous_commit = off the server would forget the last commits, and nobody would send them again."""
    harness = job(there, variant)
    finished_cleanly(harness)
    there.server.kill()
    there.server.start()
    assert harness.problems() == []


class Watched(ManualClock):
    """Does something when the publisher has paused that often."""

    def __init__(self, after: int, then: Callable[[], object]) -> None:
        super().__init__()
        self.pauses, self._after, self._then = 0, after, then

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        self.pauses += 1
        if self.pauses == self._after:
            self._then()


@EACH_WAY
def test_s50_a_server_that_comes_back_while_the_publisher_tries_again_gets_everything(
    variant: str, there: Place
) -> None:
    clock = Watched(3, there.server.start)
    harness = job(there, variant, clock=clock, limits=PATIENT)
    assert isinstance(harness.life(PausedAt(publishing(variant), there.server.stop)), Finished)
    assert clock.pauses >= 3, "the server was away"
    assert harness.problems() == []


@EACH_WAY
def test_s50_a_server_that_stays_away_stops_the_job_and_the_next_start_publishes_first(
    variant: str, there: Place
) -> None:
    harness = job(there, variant)
    ending = harness.life(PausedAt(publishing(variant), there.server.stop))
    there.server.start()
    assert isinstance(ending.error, PublishFailed), ending
    assert "the epoch stays staged" in str(ending.error)
    assert there.rows() == []
    finished_cleanly(harness)


def test_a_start_without_a_server_says_where_it_was_looked_for(there: Place) -> None:
    harness = job(there, "two-phase")
    there.server.stop()
    try:
        assert "Connection refused" in str(error_of(harness, TargetUnavailable))
        with pytest.raises(TargetUnavailable, match=rf"cannot connect to postgresql://127.0.0.1:{there.server.port}/"):
            there.sink().choose()
    finally:
        there.server.start()
    finished_cleanly(harness)


def signal_all(server: PostgresServer, number: signal.Signals) -> None:
    """To the server and its sessions, each of which has made itself a process group of its own."""
    process = server._process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, number)


@EACH_WAY
def test_a_server_that_hangs_for_a_while_only_takes_longer(variant: str, there: Place) -> None:
    harness = job(there, variant)
    hangs = threading.Event()

    def hang() -> None:
        signal_all(there.server, signal.SIGSTOP)
        hangs.set()

    endings: list[object] = []
    driver = threading.Thread(target=lambda: endings.append(harness.life(PausedAt(publishing(variant), hang))))
    driver.start()
    try:
        assert hangs.wait(60)
        driver.join(0.3)
        assert driver.is_alive(), "the driver waits for an answer"
    finally:
        signal_all(there.server, signal.SIGCONT)
    driver.join(60)
    assert [type(ending) for ending in endings] == [Finished]
    assert harness.problems() == []


def test_s46_a_server_that_runs_out_of_prepared_transactions_in_mid_run_is_named_and_nothing_is_lost(
    postgres: PostgresServer,
) -> None:
    with PostgresServer(fsync="off", max_prepared_transactions=3) as server, place_on(server, "full") as place:
        harness = job(place, "two-phase", 4, 8, 12)
        assert isinstance(harness.life(until=0), Finished)
        with Session(Address.parse(server.url)) as other:
            for gid in ("one", "two"):
                other.run("BEGIN")
                other.run(f"PREPARE TRANSACTION '{gid}'")
        error = error_of(harness, TargetUnavailable)
        assert "no room for another prepared transaction" in str(error)
        assert "max_prepared_transactions" in str(error.hint)
        assert (error.epoch, error.sink) == (1, "postgres:rows")
        assert sorted(place.prepared()) == ["one", "two"], "what was staged for the epoch is gone"
        assert len(place.rows()) == 4
        # As the hint says: fewer partitions, or more room.
        assert isinstance(harness.life(behaviour=Behaviour(partitions=lambda epoch: 1), until=1), Finished)
        restarted(server, max_prepared_transactions=8)
        finished_cleanly(harness)
        assert sorted(place.prepared()) == ["one", "two"]


def test_a_server_without_prepared_transactions_gets_rows_from_the_log_until_it_has_them(
    postgres: PostgresServer,
) -> None:
    with PostgresServer(fsync="off", max_prepared_transactions=0) as server, place_on(server, "without") as place:
        assert isinstance(place.sink().choose(), PostgresWriteAheadSink)
        with pytest.raises(ConfigurationError, match="max_prepared_transactions = 0") as refused:
            place.sink(two_phase=True).choose()
        assert "ALTER SYSTEM SET max_prepared_transactions" in str(refused.value.hint)
        harness = job(place, "two-phase", 4, 8, 12)
        assert isinstance(harness.life(dies_before_publishing("write-ahead")), Crashed)
        restarted(server, max_prepared_transactions=64)
        harness.subjects = (subject(place, "two-phase"),)
        assert isinstance(harness.sinks[0], PostgresTwoPhaseSink)
        finished_cleanly(harness)
        assert len(place.query("SELECT slot FROM ~.onceward_receipts WHERE transaction = ''")) == 2, (
            "epoch 0, from the log"
        )
        assert len(place.query("SELECT slot FROM ~.onceward_receipts WHERE transaction <> ''")) == 4


def test_work_that_waits_in_prepared_transactions_is_published_by_a_job_that_uses_the_log_now(place: Place) -> None:
    harness = job(place, "two-phase", 4, 8)
    assert isinstance(harness.life(dies_before_publishing("two-phase")), Crashed)
    harness.subjects = (subject(place, "write-ahead"),)
    assert isinstance(harness.sinks[0], PostgresWriteAheadSink)
    finished_cleanly(harness)
    assert place.prepared() == []


@EACH_WAY
def test_s45_no_prepared_transaction_and_no_lock_is_left_after_a_clean_stop(variant: str, place: Place) -> None:
    finished_cleanly(job(place, variant))
    held = place.query(
        "SELECT locktype, mode FROM pg_locks WHERE pid IS DISTINCT FROM pg_backend_pid() AND "
        "(locktype = 'advisory' OR relation = '~.rows'::regclass)"
    )
    idle = place.query(
        "SELECT state FROM pg_stat_activity WHERE application_name = 'onceward' AND state LIKE '%in tr%'"
    )
    assert (place.prepared(), held, idle) == ([], [], [])


def test_a_transaction_sees_what_was_committed_while_it_waited_whatever_the_servers_default(place: Place) -> None:
    """Else a publisher that waited for the lock would not see the receipts of the one it waited for."""
    address = Address.parse(f"{place.url}%20-cdefault_transaction_isolation=serializable")
    with Session(address) as session:
        assert session.run("SELECT current_setting('default_transaction_isolation')") == [("serializable",)]
        session.begin()
        before = session.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'meanwhile'")
        place.query("CREATE SCHEMA meanwhile")
        try:
            after = session.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'meanwhile'")
        finally:
            place.query("DROP SCHEMA meanwhile")
    assert (before, after) == ([(0,)], [(1,)])


@pytest.mark.parametrize("default", ["serializable", "repeatable read"])
@EACH_WAY
def test_a_stricter_default_isolation_changes_nothing(variant: str, default: str, place: Place) -> None:
    place.query(f"ALTER ROLE owner SET default_transaction_isolation = '{default}'")
    try:
        harness = job(place, variant)
        assert isinstance(harness.life(ServerErrorsAsFaults()), Finished)
        assert harness.problems() == []
    finally:
        place.query("ALTER ROLE owner RESET default_transaction_isolation")
