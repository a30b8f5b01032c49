"""Scenario 78 on the real thing: a standby that lags is promoted, with an epoch prepared only, or without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from onceward.admin import replay
from onceward.epoch import PublishLimits
from onceward.errors import TargetRolledBack
from onceward.journal import Retention
from onceward.recovery import look_at
from onceward.testing import Faults, Finished, Harness
from onceward.testing.servers import PostgresServer

from .conftest import Place
from .jobs import error_of, finished_cleanly, job, publishing, subject

T = TypeVar("T")
SCHEMA_NAME = "replicated"


class Standby(PostgresServer):
    """Follows a primary until it is told to fall behind, and takes its place when it is promoted."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(fsync="off")
        self._primary = primary

    def prepare(self) -> None:
        """See `Server.prepare`."""
        self.run(
            self.find("pg_basebackup"),
            "--host=127.0.0.1",
            f"--port={self._primary.port}",
            "--username=owner",
            f"--pgdata={self.folder / 'data'}",
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--no-sync",
        )

    def fall_behind(self) -> None:
        """Take in all that the primary has so far, and nothing more."""
        (lsn,) = self._primary.query("SELECT pg_current_wal_lsn()::text")[0]
        self._wait("SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", lsn)
        self.query("ALTER SYSTEM SET primary_conninfo = ''")
        self.query("SELECT pg_reload_conf()")
        self._wait("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")

    def promote(self) -> None:
        """The primary is gone for good; this one takes writes now."""
        self._primary.kill()
        assert self.query("SELECT pg_promote(true, 60)") == [(True,)]

    def _wait(self, question: str, *parameters: object) -> None:
        # The server itself waits: no polling here.
        for _ in range(600):
            if self.query(question, *parameters) == [(True,)]:
                return
            self.query("SELECT pg_sleep(0.05)")
        raise TimeoutError(question)


class FallsBehind(Faults):
    """The standby falls behind just before the first operation that begins like this."""

    def __init__(self, standby: Standby, at: str) -> None:
        super().__init__()
        self._standby, self._at, self.fallen = standby, at, False

    def perform(
        self, what: str, call: Callable[[], T], *, writes: bool = True, torn: Callable[[], object] | None = None
    ) -> T:
        """See `Faults.perform`."""
        if what.startswith(self._at) and not self.fallen:
            self.fallen = True
            self._standby.fall_behind()
        return call()


@pytest.fixture
def pair(postgres: PostgresServer) -> Iterator[tuple[Place, Standby]]:
    """A primary with an empty schema, and its standby. (The session's own server tells whether there is PostgreSQL.)"""
    with PostgresServer(fsync="off") as primary:
        place = Place(primary, SCHEMA_NAME)
        place.clear()
        with Standby(primary) as standby:
            yield place, standby


def failed_over(pair: tuple[Place, Standby], variant: str, *, at: str, limits: PublishLimits) -> tuple[Harness, Place]:
    """Two epochs are published on the primary; the standby takes over with what it had at a moment of the second."""
    place, standby = pair
    harness = job(place, variant, 4, 8, 12, limits=limits)
    assert isinstance(harness.life(until=0), Finished)
    faults = FallsBehind(standby, at)
    assert isinstance(harness.life(faults, until=1), Finished)
    assert faults.fallen
    standby.promote()
    promoted = Place(standby, SCHEMA_NAME)
    harness.subjects = (subject(promoted, variant),)
    return harness, promoted


def test_s78_a_promoted_standby_with_the_prepare_alone_gets_its_commit(pair: tuple[Place, Standby]) -> None:
    harness, promoted = failed_over(
        pair, "two-phase", at=publishing("two-phase"), limits=PublishLimits(deadline_s=30.0)
    )
    assert len(promoted.prepared()) == 2
    assert {row["epoch"] for row in promoted.rows()} == {0}
    finished_cleanly(harness)
    assert promoted.prepared() == []


def test_s78_a_promoted_standby_that_lacks_an_epoch_is_noticed_and_replayed(pair: tuple[Place, Standby]) -> None:
    limits = PublishLimits(deadline_s=30.0, keep_published=Retention(epochs=10))
    harness, _ = failed_over(pair, "upsert", at=publishing("upsert"), limits=limits)
    error = error_of(harness, TargetRolledBack)
    assert "lacks epoch 1" in error.message
    context, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    assert [one.epoch for one in replay(context)] == [1]
    harness.limits = PublishLimits(deadline_s=30.0)
    finished_cleanly(harness)
