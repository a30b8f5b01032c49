"""Scenario 85: transactions of an old generation or removed sink are seen, told of, and ended if a person says so."""

import logging
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from onceward.admin import Verdict, abort_strays, in_doubt, propose_accept_loss, record, strays, to_abort
from onceward.epoch import RunContext
from onceward.errors import ConfigurationError
from onceward.identity import SinkName
from onceward.journal import Kind, Resolutions
from onceward.recovery import Accept, look_at
from onceward.testing import (
    Behaviour,
    DiesAt,
    FakeTwoPhaseSink,
    Harness,
    MemoryLogs,
    MemoryStorage,
    MemoryTarget,
    SinkUnderTest,
    Source,
)
from onceward.testing.faults import Faults, TargetError

AT = datetime(2026, 11, 16, tzinfo=UTC)
SIGNED: dict[str, Any] = {"by": "ann@host", "at": AT, "because": "nobody runs there"}


class SinksOfOneTarget:
    """One checkpoint, and jobs on it that differ in their sinks, all of which write into the same target."""

    def __init__(self) -> None:
        self.target = MemoryTarget()
        self.storage, self.logs = MemoryStorage(), MemoryLogs()

    def job(self, *sinks: str, ends: tuple[int, ...] = (4, 8, 12), **more: Any) -> Harness:
        subjects = [
            SinkUnderTest(FakeTwoPhaseSink(self.target, name=name), lambda: self.target.rows)
            for name in sinks or ("sink",)
        ]
        parts = {"storage": self.storage, "logs": self.logs, "directory_id": "here", **more}
        return Harness(*subjects, source=Source(ends=ends), **parts)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.target.rows)


def context_of(job: Harness) -> RunContext:
    parts = {"sinks": job.sinks, "storage": job.storage, "decisions": job.logs, "directory_id": job.directory_id}
    return look_at(**parts, clock=job.clock)[0]


def accepting(what: Accept) -> Behaviour:
    return Behaviour(accepted=frozenset({what}))


def after_an_accepted_rollback(town: SinksOfOneTarget) -> Harness:
    """Epoch 2 was staged and undecided when a snapshot from before epoch 1 was put back."""
    job = town.job()
    job.life(until=0)
    snapshot = {"storage": deepcopy(town.storage), "logs": deepcopy(town.logs)}
    job.life(until=1)
    job.life(DiesAt("log commit 2"))
    back = town.job(**snapshot)
    back.drain(accepting(Accept.ROLLBACK))
    return back


def after_an_accepted_copy(town: SinksOfOneTarget) -> tuple[Harness, Harness]:
    job = town.job()
    job.life(until=0)
    job.life(DiesAt("log commit 1"))
    copy = town.job(storage=deepcopy(town.storage), logs=deepcopy(town.logs), directory_id="elsewhere")
    copy.drain(accepting(Accept.COPY))
    return job, copy


def test_after_an_accepted_rollback_in_place_they_are_listed_as_nobodys_and_aborted() -> None:
    town = SinksOfOneTarget()
    back = after_an_accepted_rollback(town)
    assert in_doubt(context_of(back)) == []
    found = strays(context_of(back))
    assert {one.transaction for one in found} == set(town.target.transactions)
    assert found
    assert {one.verdict for one in found} == {Verdict.ABORT}
    assert "before a rollback was accepted" in found[0].why
    before = town.ids()
    abort_strays(context_of(back), to_abort(context_of(back)), **SIGNED)
    assert not town.target.transactions
    (kept,) = Resolutions(back.storage).history()
    assert (kept.kind, kept.by, kept.because) == (Kind.ABORT_TRANSACTIONS, "ann@host", "nobody runs there")
    assert set(kept.transactions) == {one.transaction for one in found}
    back.drain()
    assert town.ids() == before


def test_those_of_a_living_original_are_never_aborted_by_its_copy() -> None:
    town = SinksOfOneTarget()
    original, copy = after_an_accepted_copy(town)
    found = strays(context_of(copy))
    assert found
    assert {one.verdict for one in found} == {Verdict.ASK}
    assert "the original may be alive" in found[0].why
    assert to_abort(context_of(copy)) == []
    with pytest.raises(ConfigurationError, match="the original may be alive") as caught:
        to_abort(context_of(copy), name=found[0].transaction)
    assert f"--generation {found[0].generation}" in str(caught.value.hint)
    original.drain(accepting(Accept.FRESH_START))
    assert not town.target.transactions, "the original has ended them itself"


def test_of_a_generation_that_a_person_declares_dead_they_are_aborted() -> None:
    town = SinksOfOneTarget()
    _, copy = after_an_accepted_copy(town)
    found = strays(context_of(copy))
    dead = found[0].generation
    assert to_abort(context_of(copy), generation="zzzzzzzz") == []
    assert to_abort(context_of(copy), generation=dead) == found
    abort_strays(context_of(copy), to_abort(context_of(copy), generation=dead), **SIGNED)
    assert not town.target.transactions


def test_ones_own_generation_is_never_declared_dead() -> None:
    town = SinksOfOneTarget()
    job = town.job("sink", "removed")
    job.life(until=0)
    job.life(DiesAt("storage create manifests/1.0.json"))
    without = town.job("sink")
    own = context_of(without)
    assert {one.verdict for one in strays(own)} == {Verdict.WAIT}, "its epoch may be being staged"
    assert to_abort(own, generation=own.job.generation) == []


def test_those_of_a_sink_that_was_removed_before_its_manifest_are_seen_and_aborted() -> None:
    town = SinksOfOneTarget()
    job = town.job("sink", "removed")
    job.life(until=0)
    job.life(DiesAt("storage create manifests/1.0.json"))
    without = town.job("sink")
    without.drain()
    found = strays(context_of(without))
    assert {one.verdict for one in found} == {Verdict.ABORT}
    assert all(one.sink.startswith("removed (") for one in found)
    assert {one.transaction for one in found} == set(town.target.transactions) != set()
    abort_strays(context_of(without), to_abort(context_of(without), name=found[0].transaction), **SIGNED)
    assert set(town.target.transactions) == {one.transaction for one in found[1:]}


def test_those_that_a_manifest_names_wait_until_they_are_given_up() -> None:
    town = SinksOfOneTarget()
    job = town.job("sink", "removed")
    job.life(until=0)
    job.life(DiesAt("log commit 1", after=True))
    without = town.job("sink")
    found = strays(context_of(without))
    assert {one.verdict for one in found} == {Verdict.WAIT}
    assert to_abort(context_of(without)) == []
    proposal = propose_accept_loss(context_of(without), epoch=1, sink=SinkName("removed"))
    record(without.storage, proposal, **SIGNED)
    without.drain()
    assert {one.verdict for one in strays(context_of(without))} == {Verdict.ABORT}
    abort_strays(context_of(without), to_abort(context_of(without)), **SIGNED)
    assert not town.target.transactions


def test_a_start_says_that_they_exist(caplog: pytest.LogCaptureFixture) -> None:
    town = SinksOfOneTarget()
    back = after_an_accepted_rollback(town)
    caplog.set_level(logging.WARNING, logger="onceward")
    caplog.clear()
    back.drain()
    (said,) = [one.getMessage() for one in caplog.records if "transactions list" in one.getMessage()]
    assert "2 transactions of generation" in said
    abort_strays(context_of(back), to_abort(context_of(back)), **SIGNED)
    caplog.clear()
    back.drain()
    assert "transactions list" not in caplog.text


class NotListing(Faults):
    """A target that has trouble with this one question."""

    def perform(self, what: str, call: Any, **options: Any) -> Any:
        if what.endswith("pending_of_job"):
            raise TargetError(what)
        return call()


def test_a_target_that_cannot_list_them_does_not_stop_a_start() -> None:
    job = SinksOfOneTarget().job()
    assert type(job.life(NotListing())).__name__ == "Finished"
    assert job.problems() == []


def test_those_that_a_start_looks_at_are_not_among_them() -> None:
    town = SinksOfOneTarget()
    job = town.job()
    job.life(until=0)
    job.life(DiesAt("log commit 1"))
    assert len(in_doubt(context_of(job))) == 2
    assert strays(context_of(job)) == []


def test_what_belongs_to_another_jobs_name_is_not_seen() -> None:
    town = SinksOfOneTarget()
    other = town.job(storage=MemoryStorage(), logs=MemoryLogs(), name="other")
    other.life(DiesAt("log commit 0"))
    job = town.job()
    job.drain()
    assert strays(context_of(job)) == []
    assert town.target.transactions
