"""Whose checkpoint it is: scenarios 31, 32, 34 to 39, 44, 80 and 89 of docs/scenarios.md, each by its number."""

from copy import deepcopy
from pathlib import Path

from one_target import KINDS, Kind, OneTarget, accepting, copied, refused_with
from sink_cases import fake

from onceward.errors import (
    CheckpointCopied,
    CheckpointReplaced,
    CheckpointRolledBack,
    CheckpointUnknown,
    ConfigurationError,
    EpochLost,
)
from onceward.identity import JobName
from onceward.journal import IdentityFile
from onceward.recovery import Accept, inspect_checkpoint
from onceward.storage import local_path
from onceward.testing import DiesAt, FakeTwoPhaseSink, Harness, MemoryLogs, MemoryStorage, Source


@KINDS
def test_s31_two_jobs_with_the_same_name_into_one_target_are_told_apart(kind: Kind) -> None:
    town = OneTarget(kind)
    town.job().drain()
    error = refused_with(town.job(), CheckpointReplaced)
    assert "fresh-start" in str(error)
    assert town.ids() == list(range(8))


@KINDS
def test_s32_a_job_whose_name_begins_with_anothers_never_touches_it(kind: Kind) -> None:
    town = OneTarget(kind)
    long = town.job(name="app-10")
    long.life(DiesAt("log commit 0"))
    short = town.job(name="app-1", storage=MemoryStorage(), logs=MemoryLogs())
    short.drain()
    assert [row for row in town.target.rows if row["version"].startswith("life-1")]
    long.life(DiesAt("log commit 1", after=True))
    short.drain()
    long.drain()
    assert long.leftovers() == short.leftovers() == []
    assert town.ids() == sorted([*range(8), *range(8)])


@KINDS
def test_s34_an_old_copy_whose_later_epochs_were_published_is_refused(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8, 12))
    harness.life(until=0)
    old = copied(harness)
    harness.life(until=1)
    back = town.job(ends=(4, 8, 12), **old)
    refused_with(back, CheckpointRolledBack)
    assert town.ids() == list(range(8)), "refused before anything moved"
    back.drain(accepting(Accept.ROLLBACK))
    assert town.ids() == sorted([*range(12), *range(4, 8)]), "accepted: the rows since then come a second time"
    back.drain()
    assert town.ids() == sorted([*range(12), *range(4, 8)]), "the acceptance holds for one start"


@KINDS
def test_s34_sparks_logs_alone_went_back(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8, 12))
    harness.life(until=0)
    logs = deepcopy(harness.logs)
    harness.life(until=1)
    back = town.job(ends=(4, 8, 12), storage=harness.storage, logs=logs)
    refused_with(back, CheckpointRolledBack)
    back.drain(accepting(Accept.ROLLBACK))
    assert town.ids() == sorted([*range(12), *range(4, 8)])
    assert back.leftovers() == []


@KINDS
def test_s35_a_fork_never_touches_its_parents_transactions(kind: Kind) -> None:
    town = OneTarget(kind)
    parent = town.job(ends=(4, 8))
    parent.life(DiesAt("log commit 1"))
    fork = town.job(ends=(4, 8), directory_id="elsewhere", **copied(parent))
    fork.drain(accepting(Accept.COPY))
    waiting = set(parent.leftovers())
    assert waiting, "the fork left alone what the parent had staged"
    refused_with(parent, CheckpointReplaced)
    assert set(parent.leftovers()) == waiting
    parent.drain(accepting(Accept.FRESH_START))
    fork.drain(accepting(Accept.FRESH_START))
    assert parent.leftovers() == fork.leftovers() == []
    assert town.ids() == sorted([*range(8), *range(4, 8)]), "both are live: epoch 1 came from each, once"


@KINDS
def test_s36_a_checkpoint_that_was_deleted_is_noticed(kind: Kind) -> None:
    town = OneTarget(kind)
    town.job().drain()
    again = town.job()
    refused_with(again, CheckpointReplaced)
    assert IDENTITY not in again.storage.names(""), "a refused start leaves no trace"
    again.drain(accepting(Accept.FRESH_START))
    assert town.ids() == sorted([*range(8), *range(8)])
    again.drain()


IDENTITY = "identity.json"


@KINDS
def test_s37_a_source_that_was_rewound_with_sparks_logs_is_noticed(kind: Kind) -> None:
    """The same epoch number with another barrier is another epoch."""
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8))
    harness.life(until=1)
    logs = harness.logs
    assert isinstance(logs, MemoryLogs)
    logs.forget_commit(1)
    logs.plan(1, logs.offsets[1].replace('{"end": 8}', '{"end": 6}'))
    back = town.job(ends=(4, 6, 10), storage=harness.storage, logs=logs)
    refused_with(back, CheckpointRolledBack)
    assert town.ids() == list(range(8))
    back.drain(accepting(Accept.ROLLBACK))
    assert town.ids() == sorted([*range(8), 4, 5, *range(6, 10)]), "accepted: the rows since then come a second time"
    back.drain()
    assert town.ids() == sorted([*range(8), 4, 5, *range(6, 10)]), "and no later start is refused again"


@KINDS
def test_s37_other_logs_under_settled_epochs_are_accepted_once_and_then_rewound(kind: Kind) -> None:
    """Epoch 1 is decided in today's logs with other rows than were settled for it. Accepting that makes it unsettled:
    it was never staged, so the job stops, and `rewind` has Spark compute what the logs have now."""
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8))
    harness.drain()
    logs = MemoryLogs(dict(harness.logs.offsets), dict(harness.logs.commits))
    logs.plan(1, logs.offsets[1].replace('{"end": 8}', '{"end": 6}'))
    back = town.job(ends=(4, 6, 10), storage=harness.storage, logs=logs)
    refused_with(back, CheckpointRolledBack)
    lost = refused_with(back, EpochLost, Accept.ROLLBACK)
    assert lost.epoch == 1
    assert "rewind" in str(lost.hint)
    assert refused_with(back, EpochLost).epoch == 1, "the rollback itself is accepted for good"
    logs.commits.pop(1)
    back.drain()
    assert town.ids() == sorted([*range(8), 4, 5, *range(6, 10)])
    assert back.leftovers() == []


def test_s38_one_checkpoint_spelled_in_many_ways_is_one_place(tmp_path: Path) -> None:
    directory_id = tmp_path / "checkpoint"
    directory_id.mkdir()
    link = tmp_path / "link"
    link.symlink_to(directory_id)
    spellings = [
        directory_id,
        f"{directory_id}/",
        f"file:{directory_id}",
        f"file://{directory_id}",
        link,
        directory_id / ".." / "checkpoint",
        str(directory_id),
    ]
    assert {local_path(spelling) for spelling in spellings} == {directory_id.resolve()}


@KINDS
def test_s39_a_copied_checkpoint_directory_is_refused(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8))
    harness.life(until=0)
    copy = town.job(ends=(4, 8), directory_id="elsewhere", **copied(harness))
    refused_with(copy, CheckpointCopied)
    harness.drain()
    refused_with(copy, CheckpointCopied, Accept.FRESH_START)
    assert town.ids() == list(range(8))


def test_a_checkpoint_of_another_job_is_refused() -> None:
    town = OneTarget(FakeTwoPhaseSink)
    harness = town.job()
    harness.drain()
    other = town.job(name="another", storage=harness.storage, logs=harness.logs)
    refused_with(other, ConfigurationError)


def used_by_spark_alone() -> Harness:
    """Epochs 0 and 1 were delivered by other means; onceward has never seen the checkpoint."""
    harness = Harness(fake(FakeTwoPhaseSink), source=Source(ends=(4, 8, 12)))
    plain = Harness(fake(FakeTwoPhaseSink), source=harness.source, logs=harness.logs)
    plain.life(until=1)
    return harness


def test_s44_onceward_comes_to_a_checkpoint_that_spark_has_used_alone() -> None:
    harness = used_by_spark_alone()
    error = refused_with(harness, CheckpointUnknown, Accept.FRESH_START, Accept.COPY, Accept.ROLLBACK)
    assert "never run on it" in str(error)
    assert "accept='adopt'" in str(error.hint)
    assert IDENTITY not in harness.storage.names(""), "a refused start leaves no trace"
    harness.drain(accepting(Accept.ADOPT))
    assert sorted(row["id"] for row in harness.subjects[0].read()) == list(range(8, 12))
    harness.drain()
    assert sorted(row["id"] for row in harness.subjects[0].read()) == list(range(8, 12))


def test_a_plain_checkpoint_on_which_an_epoch_was_begun_is_not_taken_on_without_a_word() -> None:
    """Nothing can be skipped, but the target may have part of it."""
    harness = Harness(fake(FakeTwoPhaseSink), source=Source(ends=(4, 8)))
    Harness(fake(FakeTwoPhaseSink), source=harness.source, logs=harness.logs).life(DiesAt("log commit 0"))
    error = refused_with(harness, CheckpointUnknown)
    assert "epoch 0, which was begun and not decided, may be in the target in part" in str(error)
    harness.drain(accepting(Accept.ADOPT))
    assert harness.problems() == []


@KINDS
def test_s80_a_lost_onceward_folder_is_told_with_the_epochs_that_may_be_missing(kind: Kind) -> None:
    """Epoch 1 is decided and staged, and what tells of it is gone: `adopt` skips it, and says so before."""
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8, 12))
    harness.life(until=0)
    harness.life(DiesAt("log commit 1", after=True))
    lost = town.job(ends=(4, 8, 12), logs=harness.logs)
    error = refused_with(lost, CheckpointUnknown, Accept.FRESH_START)
    assert "folder onceward/ was lost" in str(error)
    assert "has no receipt of epoch 1" in str(error)
    assert "fresh-start" in str(error.hint)
    assert "adopt" in str(error.hint)
    assert town.ids() == list(range(4)), "refused before anything moved"
    lost.drain(accepting(Accept.ADOPT))
    assert town.ids() == [*range(4), *range(8, 12)], "what the refusal named is skipped, and nothing comes twice"
    lost.drain()
    assert town.ids() == [*range(4), *range(8, 12)]


@KINDS
def test_s80_nothing_is_missing_where_every_decided_epoch_was_published(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8, 12))
    harness.life(until=1)
    lost = town.job(ends=(4, 8, 12), logs=harness.logs)
    assert "every sink has receipts of epoch 1" in str(refused_with(lost, CheckpointUnknown))
    lost.drain(accepting(Accept.ADOPT))
    assert town.ids() == list(range(12))


@KINDS
def test_s80_the_other_way_out_delivers_everything_again(kind: Kind) -> None:
    """As the refusal says: without the whole checkpoint, and with fresh-start."""
    town = OneTarget(kind)
    town.job(ends=(4, 8)).drain()
    afresh = town.job(ends=(4, 8))
    refused_with(afresh, CheckpointReplaced, Accept.ADOPT)
    afresh.drain(accepting(Accept.FRESH_START))
    assert town.ids() == sorted([*range(8), *range(8)])


@KINDS
def test_s80_adopting_does_not_hide_that_an_undecided_epoch_is_published(kind: Kind) -> None:
    """The folder is lost and so is `commits/1`: Spark runs epoch 1 again, whose rows the target has."""
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8))
    harness.drain()
    harness.logs.forget_commit(1)
    lost = town.job(ends=(4, 8), logs=harness.logs)
    refused_with(lost, CheckpointReplaced, Accept.ADOPT)
    assert town.ids() == list(range(8))


@KINDS
def test_a_dry_run_tells_of_a_checkpoint_that_only_spark_knows(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = town.job(ends=(4, 8))
    harness.drain()
    lost = town.job(ends=(4, 8), logs=harness.logs)
    parts = {
        "sinks": lost.sinks,
        "storage": lost.storage,
        "decisions": lost.logs,
        "directory_id": "here",
        "clock": lost.clock,
    }
    plan = inspect_checkpoint(**parts, name=lost.name)
    assert isinstance(plan.refusal, CheckpointUnknown)
    assert inspect_checkpoint(**parts, name=lost.name, accepted=frozenset({Accept.ADOPT})).refusal is None


def test_a_dry_run_of_another_job_foretells_the_refusal() -> None:
    town = OneTarget(FakeTwoPhaseSink)
    harness = town.job(ends=(4,))
    harness.drain()
    plan = inspect_checkpoint(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
        name=JobName("other"),
    )
    assert "belongs to the job 'job', not to 'other'" in str(plan.refusal)


@KINDS
def test_s89_a_place_that_was_an_inode_where_inodes_change_is_accepted_and_written_anew(kind: Kind) -> None:
    """The first release believed every inode: each remount made a "copy" of the checkpoint."""
    town = OneTarget(kind)
    harness = town.job(ends=(4,), directory_id="inode 77")
    harness.drain()
    remounted = town.job(ends=(4, 8), directory_id="path /mnt/checkpoint/onceward", **copied(harness))
    remounted.drain()
    record = IdentityFile(remounted.storage).read()
    first = IdentityFile(harness.storage).read()
    assert record is not None
    assert first is not None
    assert (record.directory_id, record.generation) == ("path /mnt/checkpoint/onceward", first.generation)
    assert town.ids() == list(range(8))
    elsewhere = town.job(ends=(4, 8, 12), directory_id="path /mnt/copy/onceward", **copied(remounted))
    refused_with(elsewhere, CheckpointCopied)
