"""A target holds transactions again that are not what they seem: torn, old, or of epochs that nobody remembers.

Scenarios 22, 78 and 85.
"""

from contextlib import suppress
from pathlib import Path

import pytest
from restored_target import AT, SOURCE, context_of
from sink_cases import fake, files
from test_target_went_back_twice import states_before_commit, sweep, two_phase
from test_went_back_meanwhile import Acts, epochs_in
from test_went_back_unasked import FailsOnce, under

from onceward.admin import Verdict, commit_by_hand, in_doubt, strays, to_abort
from onceward.epoch import Publisher, PublishLimits
from onceward.errors import ConfigurationError, TargetRolledBack
from onceward.identity import Fingerprint
from onceward.journal import Marker
from onceward.testing import (
    DiesAt,
    Failed,
    FakeTwoPhaseSink,
    Harness,
    MemoryTarget,
    SinkUnderTest,
    Source,
    TargetError,
)


def test_s78_a_file_that_came_back_torn_is_not_published(tmp_path: Path) -> None:
    """The folder was copied while the epoch was written, and put back."""
    harness = Harness(files(tmp_path), source=SOURCE)
    hidden = tmp_path / "files" / ".onceward"
    copied: dict[str, bytes] = {}

    def copy() -> None:
        copied.update({path.name: path.read_bytes() for path in hidden.iterdir() if path.is_file()})

    harness.life(Acts("log sync_decision 1", copy), until=1)
    torn = {name: content.splitlines(keepends=True)[0] for name, content in copied.items() if "_1_0_" in name}
    assert torn
    published = [path for path in (tmp_path / "files").iterdir() if any(name[:-8] in path.name for name in torn)]
    for path in published:
        path.unlink()
    for name, content in torn.items():
        (hidden / name).write_bytes(content)
    ending = harness.life(until=1)
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetRolledBack)
    assert {one.verdict for one in in_doubt(context_of(harness))} == {Verdict.WAIT}
    for name in torn:
        (hidden / name).write_bytes(copied[name])
    harness.drain()
    assert harness.problems() == []


def test_s78_a_gap_below_what_is_prepared_again_is_noticed_though_receipts_are_kept_for_few_epochs() -> None:
    six = Source(ends=tuple(range(4, 28, 4)), keys=3)
    harness = Harness(fake(FakeTwoPhaseSink), source=six, limits=PublishLimits(deadline_s=2.0, keep_receipts=1))
    states: list[MemoryTarget] = []

    class Copies(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("log sync_decision"):
                states.append(two_phase(harness).backup())
            return call()

    harness.life(Copies("never"), until=5)
    without_3 = states[3].backup()
    without_3.transactions = states[4].backup().transactions | states[5].backup().transactions
    two_phase(harness).restore(without_3)
    ending = harness.life(until=5)
    assert isinstance(ending, Failed)
    assert "lacks epoch 3" in str(ending.error)


def test_s22_a_transaction_that_came_back_is_as_old_as_its_backup_and_not_as_its_epoch() -> None:
    class Forgets(FakeTwoPhaseSink):
        transaction_timeout_s = 3600.0

    harness = Harness(fake(Forgets), source=SOURCE)
    two_phase(harness).restore(states_before_commit(harness)[2])
    harness.clock.pause(2 * 86400)
    sweep(harness, FailsOnce("sink two-phase commit", lambda: None))
    assert epochs_in(two_phase(harness)) == [0, 1, 2]


# --- by hand ------------------------------------------------------------------------------------------------


def test_s78_by_hand_another_two_phase_target_need_not_answer() -> None:
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTwoPhaseSink, "other"), source=SOURCE)
    two_phase(harness).restore(states_before_commit(harness)[2])
    transaction = in_doubt(context_of(harness))[0].transaction

    class Away(DiesAt):
        def perform(self, what, call, *, writes=True, torn=None):
            if what.startswith("sink other"):
                raise TargetError("connection refused")
            return call()

    commit_by_hand(under(harness, Away("never")), transaction)
    assert epochs_in(two_phase(harness)) == [0, 1, 2]


@pytest.mark.parametrize("marker", ["pruned", "of a first release"])
@pytest.mark.parametrize("is_removed", [True, False], ids=["sink removed", "sink there"])
def test_s85_what_nobody_can_tell_of_any_more_is_aborted_only_by_its_name(marker: str, is_removed: bool) -> None:
    """The reaper leaves it, and so does `abort --all`: it may be the only copy of its rows."""
    target = MemoryTarget()
    harness = Harness(SinkUnderTest(FakeTwoPhaseSink(target), lambda: target.rows), source=SOURCE)
    harness.life(DiesAt("sink two-phase commit"))
    backup = target.backup()
    harness.life(until=0)
    settled = context_of(harness).settled
    was = settled.marker(0)
    settled.forget(0)
    if marker == "pruned":
        settled.mark(Marker(1, Fingerprint(""), AT, {}))
    else:
        settled.mark(Marker(0, was.fingerprint, was.settled_at, was.sinks))
    target.restore(backup)
    if is_removed:
        harness.subjects = (SinkUnderTest(FakeTwoPhaseSink(target, name="renamed"), lambda: target.rows),)
    context = context_of(harness)
    found = strays(context) if is_removed else in_doubt(context)
    assert {one.verdict for one in found} == {Verdict.ASK}
    if is_removed:
        assert to_abort(context) == []
        assert to_abort(context, generation=context.job.generation) == []
        (named,) = to_abort(context, name=found[0].transaction)
        assert named == found[0]
    with suppress(ConfigurationError):
        Publisher(context).sweep()
    assert len(target.transactions) == len(found)
