"""A target that was restored from a backup, or whose lagging standby took over: noticed, and named.

Scenarios 52, 78 and 79. How what it lacks is published again: test_replay.py.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from restored_target import AT, KEEPING, SOURCE, Movable, context_of, in_log, refusal, target_of, went_back
from sink_cases import fake, files

from onceward.admin import Verdict, abort_by_hand, commit_by_hand, in_doubt, replay
from onceward.contracts import Guarantee
from onceward.epoch import Publisher, PublishLimits, orphans
from onceward.errors import ConfigurationError, ReceiptsMoved, TargetRolledBack
from onceward.identity import Fingerprint, SinkName
from onceward.journal import Marker
from onceward.recovery import Plan
from onceward.recovery.start import inspect_checkpoint
from onceward.testing import (
    DiesAt,
    Failed,
    FakeSlotwiseSink,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Finished,
    Harness,
    MemoryTarget,
    TargetError,
)

with_receipts = pytest.mark.parametrize(
    "kind", [FakeTwoPhaseSink, FakeTransactionalSink, FakeSlotwiseSink], ids=lambda kind: kind.__name__
)


@with_receipts
def test_s78_a_restored_target_is_noticed_and_its_missing_epochs_are_named(kind: Callable[..., object]) -> None:
    error = refusal(went_back(kind, to=0))
    assert "lacks epochs 1 to 2" in error.message
    assert error.epoch == 1


def test_s78_a_sink_without_receipts_says_nothing_about_its_target() -> None:
    harness = went_back(FakeWriteAheadSink)
    assert isinstance(harness.life(), Finished)


def test_s78_a_standby_with_the_prepare_and_without_the_commit_gets_the_commit() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(until=0)
    backups: list[MemoryTarget] = []

    class Standby(DiesAt):
        """Takes its copy just before the first commit of epoch 1."""

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink two-phase commit") and "_1_0_" in what and not backups:
                backups.append(target_of(harness).backup())
            return call()

    harness.life(Standby("never"), until=1)
    target_of(harness).restore(backups[0])
    harness.drain()
    assert harness.problems() == []


def test_s78_a_transaction_that_a_marker_names_is_in_doubt_and_may_only_be_committed() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(DiesAt("sink two-phase commit"))
    backup = target_of(harness).backup()
    harness.life(until=0)
    target_of(harness).restore(backup)
    listed = in_doubt(context_of(harness))
    assert {(one.epoch, one.verdict) for one in listed} == {(0, Verdict.COMMIT)}
    with pytest.raises(ConfigurationError, match="must not be aborted"):
        abort_by_hand(context_of(harness), listed[0].transaction)
    commit_by_hand(context_of(harness), listed[-1].transaction)
    assert in_doubt(context_of(harness)) == []
    harness.drain()
    assert harness.problems() == []


def test_s78_what_was_settled_so_long_ago_that_nothing_tells_is_left_to_a_person() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(DiesAt("sink two-phase commit"))
    backup = target_of(harness).backup()
    harness.life(until=0)
    rows = list(target_of(harness).rows)
    target_of(harness).restore(backup)
    target_of(harness).rows[:] = rows
    context_of(harness).settled.forget(0)
    context_of(harness).settled.mark(Marker(1, Fingerprint(""), AT, {}))
    (one, *_) = in_doubt(context_of(harness))
    assert one.verdict is Verdict.ASK
    assert orphans(context_of(harness)) == []
    abort_by_hand(context_of(harness), one.transaction)
    assert one.transaction not in {left.transaction for left in in_doubt(context_of(harness))}


def test_s78_the_reaper_never_aborts_what_a_marker_names() -> None:
    """The only surviving copy: a sweep in the running job commits it."""
    limits = PublishLimits(deadline_s=2.0, reap_every=1)
    harness = Harness(replace(fake(FakeTwoPhaseSink), ordered=False), source=SOURCE, limits=limits)
    backups: list[MemoryTarget] = []

    class FailsOver(DiesAt):
        """The standby has epoch 0 prepared, and takes over while epoch 1 is staged."""

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink two-phase commit") and "_0_0_" in what and not backups:
                backups.append(target_of(harness).backup())
            if what.startswith("sink two-phase begin") and "_1_0_" in what and len(backups) == 1:
                target_of(harness).restore(backups[0])
                backups.append(backups[0])
            return call()

    assert isinstance(harness.life(FailsOver("never")), Finished)
    assert harness.problems() == []


def test_s78_it_is_noticed_while_the_job_runs() -> None:
    limits = PublishLimits(deadline_s=2.0, reap_every=1, look_back_every_s=0.0)
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE, limits=limits)
    harness.life(until=0)
    backup = target_of(harness).backup()
    harness.life(until=1)

    class Restored(DiesAt):
        """While epoch 2 is staged."""

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("storage open_new wal/2"):
                target_of(harness).restore(backup)
            return call()

    ending = harness.life(Restored("never"), until=2)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack)
    assert "lacks epoch 1" in ending.error.message


@in_log
@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_s78_a_target_that_failed_is_asked_before_newer_epochs_go_there(
    kind: Callable[..., object], guarantee: Guarantee
) -> None:
    """Also if the job asks for less by now, and its rows go there before the decision."""
    harness = Harness(fake(kind), source=SOURCE, limits=KEEPING)
    harness.life(until=0)
    backup = target_of(harness).backup()
    harness.life(until=1)
    harness.guarantee = guarantee

    class FailsOver(DiesAt):
        """The connection is lost as epoch 2 is sent, and behind it stands the backup."""

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink transactional send 2") and not self.trace:
                self.trace.append(what)
                target_of(harness).restore(backup)
                raise TargetError("connection lost")
            return call()

    ending = harness.life(FailsOver("never"), until=2)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack), ending
    assert {row["epoch"] for row in target_of(harness).rows} == {0}
    replay(context_of(harness))
    harness.limits, harness.guarantee = PublishLimits(deadline_s=2.0), Guarantee.EXACTLY_ONCE
    harness.drain()
    assert harness.problems() == []


def test_s78_a_copy_of_the_checkpoint_may_have_a_target_of_its_own() -> None:
    from onceward.recovery import Accept
    from onceward.testing import Behaviour

    harness = went_back(FakeTransactionalSink)
    target_of(harness).restore(MemoryTarget())
    harness.directory_id = "elsewhere"
    ending = harness.life(behaviour=Behaviour(accepted=frozenset({Accept.COPY})))
    assert isinstance(ending, Finished), ending


def dry_run(harness: Harness) -> Plan:
    return inspect_checkpoint(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )


def test_s79_receipts_that_moved_while_an_epoch_is_unsettled_are_refused() -> None:
    harness = Harness(fake(Movable), source=SOURCE)
    harness.life(DiesAt("storage create settled/0"))
    harness.subjects[0].sink.at = "schema b"
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, ReceiptsMoved)
    assert "schema a" in ending.error.message
    assert isinstance(dry_run(harness).refusal, ReceiptsMoved)
    harness.subjects[0].sink.at = "schema a"
    harness.life(until=0)
    harness.subjects[0].sink.at = "schema b"
    harness.drain()
    assert harness.problems() == []


def test_s79_a_driver_that_wakes_does_not_publish_what_another_one_keeps_its_receipts_of_elsewhere() -> None:
    """It would look for them where it has always looked, find none, and send the epoch a second time."""
    harness = Harness(fake(Movable), source=SOURCE)
    harness.life(DiesAt("storage create settled/0"))
    looks_at_b = replace(context_of(harness), receipts_at={SinkName("transactional"): "schema b"})
    with pytest.raises(ReceiptsMoved):
        Publisher(looks_at_b).publish_decided()
    looks_at_a = replace(context_of(harness), receipts_at={SinkName("transactional"): "schema a"})
    Publisher(looks_at_a).publish_decided()
    harness.drain()
    assert harness.problems() == []


def test_s78_files_that_were_taken_away_by_their_readers_are_not_missed(workshop: Path) -> None:
    harness = Harness(files(workshop), source=SOURCE)
    harness.life(until=1)
    for path in (workshop / "files").glob("part-*"):
        path.unlink()
    assert isinstance(harness.life(until=2), Finished)


def test_s78_a_folder_that_was_restored_from_a_backup_is_noticed(workshop: Path) -> None:
    harness = Harness(files(workshop), source=SOURCE)
    harness.life(until=0)
    shutil.copytree(workshop / "files", workshop / "backup")
    harness.life(until=1)
    shutil.rmtree(workshop / "files")
    os.rename(workshop / "backup", workshop / "files")
    assert "lacks epoch 1" in refusal(harness).message


def test_a_job_that_never_promised_receipts_is_not_asked_for_them() -> None:
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE, guarantee=Guarantee.AT_LEAST_ONCE)
    harness.life(until=1)
    target_of(harness).restore(MemoryTarget())
    assert isinstance(harness.life(until=2), Finished)
