"""How a resolution is kept, what it covers and what it does not, and which ones are refused."""

from pathlib import Path

import pytest
from town import AT, DECIDED, A, B, Town, one_of_two_lost, refused, say

from onceward.admin import propose_accept_loss, propose_epoch_is_published, propose_slot_is_in, propose_withdraw, record
from onceward.epoch import Publish, Settle
from onceward.errors import CheckpointRolledBack, ConfigurationError
from onceward.identity import SinkName
from onceward.journal import Resolutions
from onceward.recovery import Accept, inspect_checkpoint
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing import Behaviour, DiesAt, DirectoryLogs, FakeTwoPhaseSink, MemoryLogs


def test_nothing_is_removed_before_a_resolution_is_durable_and_a_crash_is_mended_by_giving_it_again() -> None:
    town = Town(FakeTwoPhaseSink, FakeTwoPhaseSink)
    town.decided_and_unpublished()
    staged = dict(town.targets[A].transactions)
    proposal = propose_accept_loss(town.context(), epoch=1, sink=A)
    assert town.targets[A].transactions == staged
    with pytest.raises(ConfigurationError, match="why"):
        record(town.storage, proposal, by="ann@host", at=AT, because=" ")
    assert "resolutions" not in town.storage.names("")
    for _ in range(2):
        say(town.harness, proposal)
    assert town.targets[A].transactions == staged
    town.drained()
    assert not town.targets[A].transactions
    assert town.ids(A) == [*range(4), *range(8, 12)]
    assert town.ids(B) == list(range(12))


def test_it_keeps_who_when_why_and_what_was_shown() -> None:
    town = one_of_two_lost()
    proposal = propose_accept_loss(town.context(), epoch=1, sink=A)
    say(town.harness, proposal)
    town.drained()
    (kept,) = Resolutions(town.storage).history()
    assert (kept.number, kept.by, kept.at, kept.because) == (0, "ann@host", AT, "I looked")
    assert kept.shown == proposal.lines
    assert len(kept.transactions) == 2


def test_a_loss_is_that_of_one_computation_and_never_leaves_out_another(tmp_path: Path) -> None:
    """Given up, and then rewound after all: what Spark computes anew is published."""
    town = Town()
    job = town.job(A, storage=LocalStorage(tmp_path / "onceward"), logs=DirectoryLogs(tmp_path))
    job.life(until=0)
    job.life(DiesAt(DECIDED, after=True))
    say(job, propose_accept_loss(town.context(job), epoch=1))
    rewind(tmp_path, 1)
    town.drained(job)
    assert town.ids(A) == list(range(12))


def test_an_epoch_that_is_published_is_one_with_these_source_rows_and_no_other(tmp_path: Path) -> None:
    """Said of epoch 1, which is then rewound and planned with other rows: those were never in the target."""
    town = Town()
    job = town.job(A, storage=LocalStorage(tmp_path / "onceward"), logs=DirectoryLogs(tmp_path), ends=(4, 6, 10))
    job.life(until=0)
    job.life(DiesAt(DECIDED, after=True))
    say(job, propose_epoch_is_published(town.context(job), epoch=1))
    rewind(tmp_path, 1)
    entry = tmp_path / "offsets" / "1"
    entry.write_text(entry.read_text().replace('{"end": 6}', '{"end": 8}'))
    again = town.job(A, storage=job.storage, logs=job.logs, ends=(4, 8, 12))
    town.drained(again)
    assert town.ids(A) == list(range(12))


def test_an_accepted_rollback_to_before_every_marker_counts_what_is_decided_as_settled() -> None:
    """Markers are pruned: those that are left are all of epochs that have not happened any more."""
    town = Town()
    town.harness.life(until=1)
    del town.storage.files["settled/0"]
    back = town.job(logs=MemoryLogs({0: town.logs.offsets[0]}, {0: town.logs.commits[0]}))
    refused(back, CheckpointRolledBack)
    back.drain(Behaviour(accepted=frozenset({Accept.ROLLBACK})))
    town.drained(back)
    assert town.ids(A) == town.ids(B) == sorted([*range(12), *range(4, 8)])


def test_a_resolution_that_was_withdrawn_leaves_nothing_out() -> None:
    town = Town(FakeTwoPhaseSink, FakeTwoPhaseSink)
    town.decided_and_unpublished()
    say(town.harness, propose_accept_loss(town.context(), epoch=1))
    say(town.harness, propose_withdraw(town.context(), 0), "resolution 0 no longer holds")
    town.drained()
    assert town.ids(A) == town.ids(B) == list(range(12))


def test_the_plan_shows_what_was_resolved() -> None:
    town = one_of_two_lost()
    job = town.harness

    def steps() -> tuple[object, ...]:
        parts = {"sinks": job.sinks, "storage": job.storage, "decisions": job.logs, "directory_id": job.directory_id}
        return inspect_checkpoint(**parts, clock=job.clock).steps

    assert steps() == (Publish(1, slots=4, receipts=2),)
    say(job, propose_slot_is_in(town.context(), epoch=1, sink=A, slot=0))
    assert steps() == (Publish(1, slots=3, receipts=2, left_out=1),)
    say(job, propose_accept_loss(town.context(), epoch=1, sink=A))
    assert steps() == (Settle(1, "every slot has its receipt; 2 were resolved by hand"),)


@pytest.mark.parametrize("epoch", [-1, 0, 2, 7])
def test_what_needs_no_exit_is_refused(epoch: int) -> None:
    """Epoch 0 is settled, 1 decided, 2 not yet there."""
    town = one_of_two_lost()
    for propose in (propose_accept_loss, propose_epoch_is_published):
        with pytest.raises(ConfigurationError):
            propose(town.context(), epoch=epoch)
    with pytest.raises(ConfigurationError):
        propose_slot_is_in(town.context(), epoch=epoch, sink=A, slot=0)


def test_names_that_nobody_has_are_refused_with_those_that_there_are() -> None:
    town = one_of_two_lost()
    with pytest.raises(ConfigurationError, match="neither the job nor the epoch") as caught:
        propose_accept_loss(town.context(), epoch=1, sink=SinkName("c"))
    assert "'a', 'b'" in str(caught.value.hint)
    with pytest.raises(ConfigurationError, match="no slot 9") as caught:
        propose_slot_is_in(town.context(), epoch=1, sink=A, slot=9)
    assert "'a' slot 0" in str(caught.value.hint)
    with pytest.raises(ConfigurationError, match="no resolution 3"):
        propose_withdraw(town.context(), 3)


def test_an_undecided_epoch_is_not_given_up_for_it_runs_again() -> None:
    town = Town()
    town.harness.life(until=0)
    town.harness.life(DiesAt(DECIDED))
    with pytest.raises(ConfigurationError, match="not decided"):
        propose_accept_loss(town.context(), epoch=1)
    town.drained()
    assert town.ids(A) == list(range(12))
