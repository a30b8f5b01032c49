"""What a start reads, in which order, and what it does when another driver goes on meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
from lone_driver import Watched, context_of, job, publisher_of

from onceward.contracts import Hooks
from onceward.epoch import Coordinator, Publish
from onceward.errors import Fenced
from onceward.recovery import TakeOver, take_survey
from onceward.testing import (
    Behaviour,
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    MemoryTarget,
    PausedAt,
    SinkUnderTest,
    Source,
)

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])
Kind = Callable[..., Any]


@KINDS
def test_the_survey_reads_the_decisions_first_then_the_register_and_the_targets_last(kind: Kind) -> None:
    """Whatever another driver does meanwhile then makes the survey look older than it is, never newer."""
    harness = job(kind)
    harness.life(DiesAt("log commit 1"))
    watched = Watched()
    take_survey(context_of(harness, faults=watched), known_generations=frozenset())
    asked = [
        "log decided",
        "log planned",
        "storage names manifests",
        "storage names settled",
        f"sink {harness.sinks[0].name} receipts",
        "sink two-phase pending" if kind is FakeTwoPhaseSink else "storage names wal",
    ]
    assert sorted(asked, key=watched.first) == asked


@KINDS
def test_an_epoch_decided_while_it_was_being_taken_over_is_surveyed_again(kind: Kind) -> None:
    harness = job(kind)
    zombie = DiesAt("log commit 0")
    harness.life(zombie)
    harness.plans.clear()
    ending = harness.life(PausedAt("storage create manifests/0.1.reserved", lambda: zombie.arrive()))
    assert isinstance(ending, Finished)
    assert [type(plan.steps[0]) for plan in harness.plans] == [TakeOver, Publish]
    assert harness.problems() == []


@KINDS
def test_a_forgotten_decision_that_another_driver_has_settled_meanwhile_needs_nothing(kind: Kind) -> None:
    """Its manifest is gone with the settling: that is no contradiction."""
    harness = job(kind, ends=(4,))
    harness.drain()
    publisher_of(harness).publish_forgotten(0)
    assert harness.problems() == []


@KINDS
def test_a_start_asks_the_targets_for_their_receipts_once(kind: Kind) -> None:
    harness = job(kind, ends=(4, 8))
    harness.life(DiesAt("log commit 1"))
    watched = Watched()
    assert isinstance(harness.life(watched, until=-1), Finished)
    asked = [call for call in watched.trace if call.endswith(" receipts")]
    assert asked == [f"sink {harness.sinks[0].name} receipts"]


@KINDS
def test_no_hook_is_told_of_an_epoch_that_another_driver_settled_since_the_survey(kind: Kind) -> None:
    harness = job(kind)
    harness.life(until=0)
    harness.life(DiesAt("log commit 1", after=True))
    told: list[int] = []
    settles = PausedAt("storage names wal", harness.life)
    assert isinstance(harness.life(settles, Behaviour(hooks=Hooks(on_decision=told.append))), Finished)
    assert told == []
    assert harness.problems() == []


@KINDS
def test_of_two_drivers_that_open_a_new_checkpoint_the_one_whose_identity_does_not_stand_stops(kind: Kind) -> None:
    harness = job(kind)
    faults = PausedAt("storage create identity.json", lambda: harness.life(until=-1))
    ending = harness.life(faults)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, Fenced)
    assert harness.logs.planned() == -1, "it did not begin"


def test_the_barrier_of_a_published_epoch_that_runs_again_is_forced_to_the_disk() -> None:
    """A second driver may have written it again, and a power loss would take it: seed 408646 of the simulation."""
    harness = job(FakeTransactionalSink, ends=(4,))
    assert isinstance(harness.life(), Finished)
    watched = Watched()
    context = context_of(harness, faults=watched)
    barrier = context.decisions.barrier(0)
    assert barrier is not None
    assert Coordinator(context, published={0: barrier.fingerprint}).begin(0) is None
    assert watched.first("log sync_barrier 0")


def test_a_sink_that_joins_is_told_that_it_begins_in_mid_stream(caplog: pytest.LogCaptureFixture) -> None:
    first = MemoryTarget()
    harness = Harness(SinkUnderTest(FakeTwoPhaseSink(first, name="a"), lambda: first.rows), source=Source(ends=(4, 8)))
    harness.life(until=0)
    second = MemoryTarget()
    both = [
        SinkUnderTest(FakeTwoPhaseSink(target, name=name), lambda target=target: target.rows)
        for name, target in (("a", first), ("b", second))
    ]
    caplog.set_level("WARNING", logger="onceward")
    joined = Harness(*both, source=harness.source, storage=harness.storage, logs=harness.logs)
    joined.drain()
    (told,) = (record.getMessage() for record in caplog.records if "is new on this" in record.getMessage())
    assert told.startswith("sink 'b' is new on this checkpoint: it gets rows from epoch 1 on, and none of those")
    assert len(second.rows) == 4
    caplog.clear()
    joined.drain()
    assert "is new" not in caplog.text
