"""`onceward transactions`: what it says of a transaction is what a restart does, and by hand no more is allowed."""

import pytest
from sink_cases import SMALL

from onceward.admin import Verdict, abort_by_hand, commit_by_hand, in_doubt
from onceward.epoch import RunContext
from onceward.errors import ConfigurationError
from onceward.recovery import look_at
from onceward.testing import Behaviour, CrashAt, FakeTwoPhaseSink, Harness, MemoryTarget, SinkUnderTest


def world(target: MemoryTarget) -> Harness:
    return Harness(SinkUnderTest(FakeTwoPhaseSink(target), lambda: target.rows), source=SMALL, rows_in_a_batch=1)


def context_of(harness: Harness) -> RunContext:
    return look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )[0]


def worlds_after_a_crash() -> list[tuple[MemoryTarget, Harness]]:
    """One for every point at which a driver can die, with an attempt that was lost beside each that counts."""
    behaviour = Behaviour(lost_attempts=lambda epoch, slot: 1)
    undisturbed = CrashAt(None)
    world(MemoryTarget()).life(undisturbed, behaviour)
    made = []
    for point in range(undisturbed.points):
        target = MemoryTarget()
        harness = world(target)
        harness.life(CrashAt(point), behaviour)
        if harness.storage.names("") and target.transactions:
            made.append((target, harness))
    return made


def test_what_is_said_of_a_transaction_is_what_a_restart_does_with_it() -> None:
    seen = set()
    for target, harness in worlds_after_a_crash():
        said = in_doubt(context_of(harness))
        assert {one.transaction for one in said} == set(target.transactions)
        harness.drain()
        for one in said:
            became = (one.transaction,) in target.receipts
            assert became == (one.verdict is Verdict.COMMIT), one
            seen.add(one.verdict)
        assert not target.transactions
        assert not harness.problems()
    assert seen == {Verdict.COMMIT, Verdict.ABORT, Verdict.WAIT}


def test_by_hand_a_decided_one_is_committed_an_orphan_aborted_and_nothing_else() -> None:
    refused = 0
    for target, harness in worlds_after_a_crash():
        for one in in_doubt(context_of(harness)):
            context = context_of(harness)
            if one.transaction not in target.transactions:
                continue
            for verdict, by_hand in ((Verdict.COMMIT, commit_by_hand), (Verdict.ABORT, abort_by_hand)):
                if one.verdict is verdict:
                    by_hand(context, one.transaction)
                    assert one.transaction not in target.transactions
                elif one.transaction in target.transactions:
                    with pytest.raises(ConfigurationError, match="must not be"):
                        by_hand(context, one.transaction)
                    refused += 1
        harness.drain()
        assert not harness.problems()
    assert refused


def test_a_name_that_is_not_the_jobs_own_is_never_touched() -> None:
    target, harness = worlds_after_a_crash()[-1]
    target.transactions["somebody else's"] = next(iter(target.transactions.values()))
    assert "somebody else's" not in {one.transaction for one in in_doubt(context_of(harness))}
    with pytest.raises(ConfigurationError, match="no target of this job"):
        abort_by_hand(context_of(harness), "somebody else's")
    assert "somebody else's" in target.transactions
