"""Two drivers on one checkpoint, stopped and woken at chosen operations (scenarios 9, 28 to 30).

Each test is one interleaving of the list above `journal/register.py`. The random ones are in test_simulation.py, all
of them, in the small, in tests/model.
"""

from collections.abc import Callable
from typing import Any

import pytest
from sink_cases import fake

from onceward.contracts import Guarantee
from onceward.epoch import Publisher, RunContext
from onceward.errors import EpochLost, Fenced
from onceward.identity import RunId
from onceward.journal import IdentityFile
from onceward.testing import (
    Behaviour,
    ConcurrentUpdate,
    Crashed,
    DiesAt,
    Ending,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Faults,
    Finished,
    Harness,
    PausedAt,
    Source,
)
from onceward.testing.engine import COMMITS_ENTRY
from onceward.testing.wrappers import FaultyLogs, FaultyStorage, with_faults

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])


def job(kind: Callable[..., Any], *epochs: int) -> Harness:
    return Harness(fake(kind), source=Source(ends=epochs or (4,)))


def error_of(ending: Ending) -> Exception:
    assert isinstance(ending, Failed), ending
    return ending.error


@KINDS
def test_s30_a_driver_paused_while_staging_wakes_after_the_other_has_finished(kind: Callable[..., Any]) -> None:
    harness = job(kind, 4, 8)
    staging = "sink two-phase pre_commit" if kind is FakeTwoPhaseSink else "storage close wal"
    ending = harness.life(PausedAt(staging, harness.drain))
    assert isinstance(error_of(ending), Fenced)
    harness.drain()
    assert harness.problems() == []


@KINDS
@pytest.mark.parametrize(
    "at", ["storage create manifests/0.0", "storage create identity", "log plan 0", "log is_planned"]
)
def test_s30_a_driver_paused_at_any_of_its_own_writes_never_doubles(kind: Callable[..., Any], at: str) -> None:
    harness = job(kind, 4, 8)
    ending = harness.life(PausedAt(at, harness.drain))
    assert isinstance(error_of(ending), Fenced | ConcurrentUpdate)
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_s30_a_driver_paused_while_publishing_finds_everything_published(kind: Callable[..., Any]) -> None:
    harness = job(kind, 4, 8)
    publishing = "sink two-phase commit" if kind is FakeTwoPhaseSink else "sink transactional send"
    harness.life(PausedAt(publishing, harness.drain))
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_s29_a_second_driver_between_manifest_and_decision_ends_in_epoch_lost_or_one_copy(
    kind: Callable[..., Any],
) -> None:
    """The window that Spark leaves open: the epoch was taken over, then decided by the one who lost it."""
    harness = job(kind, 4, 8)
    taker = DiesAt("sink two-phase begin" if kind is FakeTwoPhaseSink else "storage open_new")
    overtaken = harness.life(PausedAt("log commit 0", lambda: harness.life(taker)))
    assert isinstance(error_of(overtaken), Fenced)
    ending = harness.life()
    assert isinstance(error_of(ending), EpochLost)
    assert error_of(ending).epoch == 0
    assert harness.subjects[0].read() == [], "nothing of it is visible"


@KINDS
def test_s29_an_epoch_lost_between_two_drivers_is_computed_again_after_a_rewind(kind: Callable[..., Any]) -> None:
    harness = job(kind, 4, 8)
    taker = DiesAt("sink two-phase begin" if kind is FakeTwoPhaseSink else "storage open_new")
    harness.life(PausedAt("log commit 0", lambda: harness.life(taker)))
    assert isinstance(error_of(harness.life()), EpochLost)
    harness.logs.forget_commit(0)
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_s29_a_driver_whose_barrier_was_written_over_does_not_decide(kind: Callable[..., Any]) -> None:
    harness = job(kind, 4)

    def another_one_plans_it() -> None:
        harness.logs.plan(0, f"{harness.logs.offsets[0]}\n")

    ending = harness.life(PausedAt("storage create manifests/0.0.json", another_one_plans_it))
    assert isinstance(error_of(ending), Fenced)
    assert harness.subjects[0].read() == []
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_s29_the_takers_output_is_published_when_its_manifest_is_complete(kind: Callable[..., Any]) -> None:
    harness = job(kind, 4, 8)
    taker = DiesAt("log commit 0")
    harness.life(PausedAt("log commit 0", lambda: harness.life(taker)))
    harness.drain()
    assert harness.problems() == []
    assert {row["version"] for row in harness.subjects[0].read() if row["epoch"] == 0} == {"life-2.1"}


@KINDS
def test_s29_a_publisher_refuses_an_open_reservation_and_the_taker_aborts_nothing(kind: Callable[..., Any]) -> None:
    """D has reserved and read the log; Z decides; P publishes. D's fate must lose."""
    harness = job(kind, 4, 8)
    harness.life(DiesAt("log commit 0"))

    def zombie_decides_and_another_publishes_one_slot() -> None:
        harness.logs.commit(0, COMMITS_ENTRY)
        at = "sink two-phase commit" if kind is FakeTwoPhaseSink else "storage create settled"
        publisher = DiesAt(at)
        assert isinstance(harness.life(publisher), Crashed)

    taker = PausedAt("storage create manifests/0.1.fate", zombie_decides_and_another_publishes_one_slot)
    assert isinstance(harness.life(taker), Finished)
    assert harness.problems() == []
    assert {row["version"] for row in harness.subjects[0].read() if row["epoch"] == 0} == {"life-1.1"}


@KINDS
def test_s30_a_taker_that_dies_after_its_reservation_stops_nobody(kind: Callable[..., Any]) -> None:
    harness = job(kind)
    harness.life(DiesAt("storage create manifests/0.0.json"))
    for _ in range(3):
        harness.life(DiesAt("storage create manifests/0.1.fate"))
        harness.life(DiesAt("storage create manifests/0.2.fate"))
    harness.drain()
    assert harness.problems() == []


@KINDS
def test_s30_a_manifest_that_arrives_after_its_epoch_was_settled_is_not_published(kind: Callable[..., Any]) -> None:
    """Settling frees the file's name, so the late one is created; a slow publisher must not believe it."""
    harness = job(kind)
    zombie = DiesAt("storage create manifests/0.0.json")
    harness.life(zombie)
    taker = DiesAt("storage create settled/0")
    harness.life(taker)

    def settle_then_let_the_late_manifest_arrive() -> None:
        harness.drain()
        assert zombie.arrive() is True

    late = PausedAt("storage names manifests", settle_then_let_the_late_manifest_arrive)
    publisher_of(harness, late).publish_decided()
    assert harness.audits()[str(harness.sinks[0].name)].exactly_once
    harness.drain()
    assert harness.problems() == []


def publisher_of(harness: Harness, faults: Faults) -> Publisher:
    """A publisher by itself, as a driver's publisher thread is."""
    record = IdentityFile(harness.storage).read()
    assert record is not None
    context = RunContext(
        job=record.identity,
        run=RunId("zzzzzz"),
        sinks=tuple(with_faults(sink, faults) for sink in harness.sinks),
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=FaultyStorage(harness.storage, faults),
        decisions=FaultyLogs(harness.logs, faults),
        clock=harness.clock,
        adopted=record.adopted,
    )
    return Publisher(context, harness.limits)


@KINDS
def test_s29_two_drivers_that_start_together_are_told_so_and_not_to_accept_anything(kind: Callable[..., Any]) -> None:
    """The survey of one is older than the progress of the other: no refusal may come of that."""
    receipts = f"sink {'two-phase' if kind is FakeTwoPhaseSink else 'transactional'} receipts"
    for at in ("storage names settled", receipts, "log planned"):
        for times in (1, 2):
            harness = job(kind, 4, 8, 12)
            harness.life(until=0)
            pauses = iter([lambda: None] * (times - 1) + [harness.drain])
            ending = harness.life(PausedAt(at, lambda pauses=pauses: next(pauses)(), times=times))
            if isinstance(ending, Failed):
                assert isinstance(ending.error, Fenced | ConcurrentUpdate), (at, times, ending)
            harness.drain()
            assert harness.problems() == []


@KINDS
def test_s28_an_attempt_that_writes_after_recovery_cleaned_up_is_reaped(kind: Callable[..., Any]) -> None:
    harness = job(kind, 4, 8)
    stray = Behaviour(leaves_zombie=lambda epoch, slot: True)
    harness.life(DiesAt("storage create manifests/0.0"), stray)
    harness.drain(stray)
    harness.release_zombies()
    assert harness.leftovers(), "the zombies did write"
    assert harness.audits()[str(harness.sinks[0].name)].exactly_once
    harness.drain()
    assert harness.problems() == []
