"""What it costs to ask a target again: it must not end what went well before, and it must not be put off.

Scenarios 22 and 78.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from restored_target import KEEPING, SOURCE, target_of, went_back
from sink_cases import fake, files
from test_target_went_back_twice import start, states_before_commit, two_phase
from test_went_back_meanwhile import Acts, epochs_in
from test_went_back_unasked import FailsOnce, under

from onceward.admin import replay
from onceward.contracts import Guarantee, RetryLater, TwoPhaseCommitSink
from onceward.epoch import Publisher, PublishLimits
from onceward.errors import TargetRolledBack
from onceward.sinks.files import publish
from onceward.testing import (
    Behaviour,
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    FakeWriteAheadSink,
    Finished,
    Harness,
    MemoryTarget,
    SinkUnderTest,
    Source,
    TargetError,
)

# --- nothing that went well before ends now -------------------------------------------------------------


def test_s22_what_was_committed_is_not_given_up_for_its_age_when_it_is_asked_again() -> None:
    """Its target keeps transactions for a minute; the other target was away for longer."""
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTransactionalSink), source=SOURCE)
    harness.sinks[0].transaction_timeout_s = 60.0
    harness.life(DiesAt("log commit 0", after=True))

    class OtherIsAwayForLong(DiesAt):
        has_reset = False

        def perform(self, what, call, *, writes=True, torn=None):
            is_late = harness.clock.monotonic() > 100
            if what.startswith("sink transactional send 0") and not is_late:
                raise TargetError("away")
            if what.startswith("sink two-phase commit") and is_late and not self.has_reset:
                self.has_reset = True
                raise TargetError("connection reset")
            return call()

    assert Publisher(under(harness, OtherIsAwayForLong("never")), PublishLimits()).publish_decided() == 0
    harness.drain()
    assert harness.problems() == []


@pytest.mark.parametrize("committer", [True, False])
def test_a_slow_sink_that_fails_once_does_not_end_the_publishing(committer: bool) -> None:
    """By the time all its slots are in, more than the deadline of one delivery has passed."""
    slow = fake(lambda target: FakeWriteAheadSink(target, committer=committer))
    limits = PublishLimits(deadline_s=10.0)
    harness = Harness(fake(FakeTransactionalSink), slow, source=Source(ends=(16,), keys=16), limits=limits)
    eight_slots = Behaviour(partitions=lambda epoch: 8)
    harness.life(DiesAt("log commit 0", after=True), eight_slots)

    class IsSlow(DiesAt):
        calls = 0

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink plain send_values"):
                harness.clock.pause(4.0)
                self.calls += 1
                if self.calls == 3:
                    raise TargetError("a hiccup")
            return call()

    assert isinstance(harness.life(IsSlow("never"), eight_slots), Finished)
    assert len(target_of(harness).rows) == 16


def test_at_least_once_a_target_that_promised_no_receipts_is_not_asked_for_any() -> None:
    sinks = fake(FakeTwoPhaseSink), fake(FakeTransactionalSink)
    harness = Harness(*sinks, source=SOURCE, guarantee=Guarantee.AT_LEAST_ONCE)
    harness.life(until=0)

    class ReceiptsAreForbidden(FailsOnce):
        def perform(self, what, call, *, writes=True, torn=None):
            if self.has_failed and what.startswith("sink transactional receipts"):
                raise TargetError("permission denied")
            return super().perform(what, call, writes=writes, torn=torn)

    assert isinstance(harness.life(ReceiptsAreForbidden("sink two-phase commit", lambda: None), until=2), Finished)
    assert epochs_in(two_phase(harness)) == [0, 1, 2]


def test_a_replay_waits_for_what_only_asks_to_wait() -> None:
    """As a sweep does: it is not listed for a moment, and not missing."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    two_phase(harness).restore(states_before_commit(harness)[2])

    class HidesIt(DiesAt):
        commits = 0

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink two-phase commit"):
                self.commits += 1
                if self.commits == 1:
                    return RetryLater("not listed yet")
                if self.commits == 2:
                    raise TargetError("too many connections")
            if self.commits in (1, 2) and what.startswith("sink two-phase pending"):
                return [handle for handle in call() if "_2_0_0_" not in handle["transaction"]]
            return call()

    replay(under(harness, HidesIt("never")))
    assert epochs_in(two_phase(harness)) == [0, 1, 2]


def test_a_long_replay_in_which_the_target_goes_back_once_is_not_ended() -> None:
    harness = went_back(FakeTransactionalSink, to=0, limits=KEEPING)
    older = target_of(harness).backup()

    class TakesLong(FailsOnce):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink transactional send 1"):
                harness.clock.pause(5.0)
            return super().perform(what, call, writes=writes, torn=torn)

    faults = TakesLong("sink transactional send 2", lambda: target_of(harness).restore(older))
    assert [one.epoch for one in replay(under(harness, faults), KEEPING)] == [1, 2]
    assert epochs_in(target_of(harness)) == [0, 1, 2]


# --- nothing is put off or passed over -------------------------------------------------------------------


@pytest.mark.parametrize("every_s", [60.0, 0.0])
def test_s78_a_look_that_was_put_off_is_made_before_anything_more_is_published(every_s: float) -> None:
    """The look of once a minute, or a sweep, is the first call that meets the fail-over."""
    limits = PublishLimits(deadline_s=2.0, look_back_every_s=every_s)
    harness = Harness(fake(FakeTransactionalSink), source=SOURCE, limits=limits)
    harness.life(until=0)
    older = target_of(harness).backup()

    class FailsOverAtTheLook(FailsOnce):
        has_sent = False

        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink transactional send 1"):
                harness.clock.pause(61)
                self.has_sent = True
            return super().perform(what, call, writes=writes, torn=torn) if self.has_sent else call()

    faults = FailsOverAtTheLook("sink transactional receipts", lambda: target_of(harness).restore(older))
    ending = harness.life(faults, until=3)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack)
    assert epochs_in(target_of(harness)) == [0]


def test_s78_a_target_that_fails_when_it_lists_old_transactions_is_asked_what_it_has() -> None:
    """At the end of a start, after the targets were looked at."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(until=0)
    older = target_of(harness).backup()
    harness.life(until=1)
    ending = harness.life(
        FailsOnce("sink two-phase pending_of_job", lambda: target_of(harness).restore(older)), until=3
    )
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack)
    assert epochs_in(target_of(harness)) == [0]


def test_s78_a_sink_with_a_committer_is_asked_again_too() -> None:
    """It keeps no receipts, and its committer knows."""
    target = MemoryTarget()
    sinks = FakeWriteAheadSink(target, name="first"), FakeTransactionalSink(target, name="second")
    limits = PublishLimits(deadline_s=2.0)
    harness = Harness(*(SinkUnderTest(sink, lambda: target.rows) for sink in sinks), source=SOURCE, limits=limits)
    older: list[MemoryTarget] = []

    class FailsOverBetween(FailsOnce):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("log sync_decision 1") and not older:
                older.append(target.backup())
            return super().perform(what, call, writes=writes, torn=torn)

    faults = FailsOverBetween("sink second send 1", lambda: target.restore(older[0]))
    assert isinstance(harness.life(faults, until=2), Finished)
    assert [sum(row["epoch"] == epoch for row in target.rows) for epoch in (0, 1, 2)] == [8, 8, 8]


class NoReceipts(FakeTwoPhaseSink):
    receipts = TwoPhaseCommitSink.receipts


def prepared_over_one_that_is_not_whole(harness: Harness) -> None:
    _, prepared_1, prepared_2 = states_before_commit(harness)
    for transaction in prepared_1.transactions.values():
        transaction.receipt = None
    prepared_1.transactions |= prepared_2.transactions
    two_phase(harness).restore(prepared_1)


@pytest.mark.parametrize(
    "go_on", [start, lambda harness, faults: replay(under(harness, faults))], ids=["start", "replay"]
)
@pytest.mark.parametrize("kind", [FakeTwoPhaseSink, NoReceipts])
def test_s78_nothing_is_committed_over_what_came_back_and_is_not_whole(
    kind: Callable[..., FakeTwoPhaseSink], go_on: Callable[[Harness, DiesAt], object]
) -> None:
    harness = Harness(fake(kind), source=SOURCE)
    prepared_over_one_that_is_not_whole(harness)
    for _ in range(2):
        with pytest.raises(TargetRolledBack, match="lacks epoch 1"):
            go_on(harness, DiesAt("never"))
    assert epochs_in(two_phase(harness)) == [0]


def test_s78_a_slot_of_which_some_files_have_their_names_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of a file system without hard links, taken in the middle of a commit, and put back."""

    def refuses(staged: Path, final: Path) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuses)
    harness = Harness(files(tmp_path, max_rows_per_file=1), source=Source(ends=(4, 8), keys=2))
    give_name, snapshot = publish.give_name, tmp_path / "snapshot"

    def give_name_and_copy(staged: Path, final: Path) -> None:
        give_name(staged, final)
        if "_1_0_" in staged.name and not snapshot.exists():
            shutil.copytree(tmp_path / "files", snapshot)

    monkeypatch.setattr(publish, "give_name", give_name_and_copy)
    harness.life(until=1)
    shutil.rmtree(tmp_path / "files")
    snapshot.rename(tmp_path / "files")
    assert isinstance(harness.life(until=1), Finished)
    assert harness.problems() == []
    assert list((tmp_path / "files" / ".onceward").iterdir()) == []


@pytest.mark.parametrize("content", ["torn", "whole"])
def test_what_came_back_beside_its_visible_file_is_removed_and_stops_nothing(tmp_path: Path, content: str) -> None:
    """A folder that was put back by a tool that keeps no hard links, from a moment between two steps of a commit."""
    harness = Harness(files(tmp_path), source=SOURCE)
    hidden = tmp_path / "files" / ".onceward"
    copied: dict[str, bytes] = {}

    def copy() -> None:
        copied.update({path.name: path.read_bytes() for path in hidden.iterdir() if "_1_0_" in path.name})

    harness.life(Acts("log sync_decision 1", copy), until=1)
    for name, rows in copied.items():
        (hidden / name).write_bytes(rows if content == "whole" else rows[:7])
    assert isinstance(harness.life(until=2), Finished)
    assert not [path for path in hidden.iterdir() if path.name in copied]
    harness.drain()
    assert harness.problems() == []


def test_s78_an_epoch_that_failed_and_was_staged_again_is_published_after_a_look() -> None:
    """The driver's own look at what was staged was the first call that met the fail-over; the failure was tolerated."""
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE)
    harness.life(until=0)
    older = target_of(harness).backup()
    harness.life(until=1)
    faults = FailsOnce("sink two-phase verify", lambda: target_of(harness).restore(older))
    ending = harness.life(faults, behaviour=Behaviour(tolerable_failures=2), until=3)
    assert faults.has_failed
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack)
    assert epochs_in(target_of(harness)) == [0]
