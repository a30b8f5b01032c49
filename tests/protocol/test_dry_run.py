"""`onceward recover --dry-run`: the plan that it shows is the one that the next start carries out, or refuses by."""

from copy import deepcopy

import pytest
from restored_target import SOURCE, target_of, went_back
from sink_cases import fake
from test_target_went_back_twice import states_before_commit, two_phase

from onceward.epoch import Settle
from onceward.errors import CheckpointRolledBack, OncewardError, TargetRolledBack
from onceward.journal import IdentityFile
from onceward.recovery import Accept, BeginAnew, CommitPrepared, Plan, inspect_checkpoint
from onceward.testing import (
    Behaviour,
    CrashAt,
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    MemoryTarget,
)


def dry_run(harness: Harness, *accepted: Accept) -> Plan:
    return inspect_checkpoint(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
        accepted=frozenset(accepted),
        limits=harness.limits,
    )


def refusal_of_a_start(harness: Harness, *accepted: Accept) -> OncewardError:
    ending = harness.life(behaviour=Behaviour(accepted=frozenset(accepted)))
    assert isinstance(ending, Failed), ending
    return ending.error


@pytest.mark.parametrize(
    "kinds", [(FakeTwoPhaseSink,), (FakeTransactionalSink,), (FakeTwoPhaseSink, FakeTransactionalSink)]
)
def test_after_a_crash_at_any_point_it_is_the_first_plan_of_the_start(kinds) -> None:
    def world() -> Harness:
        return Harness(*(fake(kind) for kind in kinds), source=SOURCE)

    whole = CrashAt(None)
    world().life(whole)
    foretold = set()
    for point in range(whole.points):
        harness = world()
        harness.life(CrashAt(point))
        if IdentityFile(harness.storage).read() is None:
            continue
        shown, before = dry_run(harness), len(harness.plans)
        harness.life()
        assert harness.plans[before] == shown, f"after a crash at point {point}"
        foretold.update(type(step).__name__ for step in shown.steps)
    assert foretold >= {"TakeOver", "Publish", "Settle"}


def test_what_a_target_holds_again_is_a_step_of_the_plan_and_what_follows_goes_by_it() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    prepared = states_before_commit(harness)[2]
    harness.life(DiesAt("storage create settled/3"), until=3)
    now = two_phase(harness).backup()
    prepared.rows += [row for row in now.rows if row["epoch"] == 3]
    prepared.receipts |= {name: receipt for name, receipt in now.receipts.items() if receipt.epoch == 3}
    two_phase(harness).restore(prepared)
    shown = dry_run(harness)
    again, settle = shown.steps
    assert isinstance(again, CommitPrepared)
    assert (again.epoch, len(again.transactions)) == (2, 2)
    assert settle == Settle(3, "every slot has its receipt")
    assert isinstance(harness.life(), Finished)
    assert shown in harness.plans
    harness.drain()
    assert {row["epoch"] for row in two_phase(harness).rows} == {0, 1, 2, 3}


def test_a_target_that_lacks_epochs_is_refused_as_by_a_start() -> None:
    harness = went_back(FakeTransactionalSink)
    shown = dry_run(harness).refusal
    assert isinstance(shown, TargetRolledBack)
    assert str(shown) == str(refusal_of_a_start(harness))


def test_a_copy_that_is_older_than_its_target_is_refused_as_by_a_start() -> None:
    """Though being a copy is accepted: its epoch was decided and published after the copy was made."""
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE)
    harness.life(DiesAt("log commit 0"))
    copied = deepcopy(harness.storage), deepcopy(harness.logs)
    harness.life(until=0)
    harness.storage, harness.logs = copied
    harness.directory_id = "elsewhere"
    shown = dry_run(harness, Accept.COPY).refusal
    assert isinstance(shown, CheckpointRolledBack), shown
    assert str(shown) == str(refusal_of_a_start(harness, Accept.COPY))


def test_a_copy_with_a_target_of_its_own_misses_nothing_there() -> None:
    harness = went_back(FakeTransactionalSink)
    target_of(harness).restore(MemoryTarget())
    harness.directory_id = "elsewhere"
    assert dry_run(harness, Accept.COPY).steps == (BeginAnew(),)
    assert isinstance(harness.life(behaviour=Behaviour(accepted=frozenset({Accept.COPY}))), Finished)
    assert BeginAnew() not in [step for plan in harness.plans for step in plan.steps]


def test_what_an_accepted_rollback_delivers_again_is_not_said_to_pass() -> None:
    """The logs went back: in the old generation the epoch would be known as settled, in the new one it is computed."""
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE)
    harness.life(until=0)
    logs = deepcopy(harness.logs)
    harness.life(until=2)
    harness.logs = logs
    assert isinstance(dry_run(harness).refusal, CheckpointRolledBack)
    assert dry_run(harness, Accept.ROLLBACK).steps == (BeginAnew(),)
