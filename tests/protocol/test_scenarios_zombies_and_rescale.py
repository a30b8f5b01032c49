"""Attempts, partitions, sinks that come and go: scenarios 27, 33, 40 to 44 and 53 of docs/scenarios.md, by number."""

from pathlib import Path

import pytest
from one_target import KINDS, Kind, OneTarget, refused_with
from sink_cases import fake, file_rows

from onceward.contracts import Guarantee
from onceward.errors import SinkMissing
from onceward.recovery import Accept
from onceward.sinks.files import FileSink
from onceward.testing import Behaviour, DiesAt, FakeTwoPhaseSink, Harness, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA
from onceward.testing.fake_sinks import Prepared


@KINDS
def test_s27_speculative_attempts_both_write(kind: Kind) -> None:
    harness = Harness(fake(kind), source=Source(ends=(4, 8)))
    harness.drain(Behaviour(lost_attempts=lambda epoch, slot: 2))
    assert harness.problems() == []


@KINDS
def test_s33_an_executor_dies_after_pre_commit_before_its_ack(kind: Kind) -> None:
    harness = Harness(fake(kind), source=Source(ends=(4, 8)))
    lost = Behaviour(lost_attempts=lambda epoch, slot: 1)
    harness.life(DiesAt("log commit 1"), lost)
    harness.drain(lost)
    assert harness.problems() == []
    assert {row["attempt"] for row in harness.subjects[0].read() if row["slot"] == 0} <= {2, 6, 4}


@KINDS
def test_s40_fewer_partitions_than_before_leave_no_orphans(kind: Kind) -> None:
    for at in ("storage create manifests/0", "log commit 0"):
        harness = Harness(fake(kind), source=Source(ends=(8, 16), keys=4))
        harness.life(DiesAt(at), Behaviour(partitions=lambda epoch: 4))
        harness.drain(Behaviour(partitions=lambda epoch: 1))
        assert harness.problems() == []


@KINDS
def test_s41_more_partitions_then_a_failure_then_fewer(kind: Kind) -> None:
    harness = Harness(fake(kind), source=Source(ends=(8, 16, 24), keys=4))
    harness.life(DiesAt("log commit 1"), Behaviour(partitions=lambda epoch: 2))
    harness.life(
        DiesAt("log commit 1"), Behaviour(partitions=lambda epoch: 4, leaves_zombie=lambda epoch, slot: slot > 1)
    )
    harness.release_zombies()
    harness.drain(Behaviour(partitions=lambda epoch: 1))
    assert harness.problems() == []


def test_s42_clean_up_leaves_alone_what_is_not_ours() -> None:
    town = OneTarget(FakeTwoPhaseSink)
    strangers = ["someone else's", "ow1_", "ow1_aaaaaaaa_bbbbbbbb_cccccc_0_0_0_1_dddddd", "ow2_x"]
    for name in strangers:
        town.target.transactions[name] = Prepared()
    harness = town.job()
    harness.life(DiesAt("log commit 0"))
    harness.drain()
    assert sorted(town.target.transactions) == sorted(strangers)


@KINDS
def test_s43_a_sink_that_was_renamed_while_it_has_decided_work_is_missed_by_name(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = town.job(sink="old name")
    harness.life(DiesAt("log commit 0", after=True))
    renamed = town.job(sink="new name", storage=harness.storage, logs=harness.logs)
    error = refused_with(renamed, SinkMissing)
    assert "old name" in str(error)
    assert town.ids() == []
    harness.drain()
    assert town.ids() == list(range(8))


def test_s43_a_two_phase_sink_that_was_renamed_while_it_has_undecided_work_leaves_nothing_behind() -> None:
    town = OneTarget(FakeTwoPhaseSink)
    harness = town.job(sink="old name")
    harness.life(DiesAt("log commit 0"))
    renamed = town.job(sink="new name", storage=harness.storage, logs=harness.logs)
    error = refused_with(renamed, SinkMissing)
    assert "old name" in str(error)
    harness.drain()
    assert town.ids() == list(range(8))
    assert harness.leftovers() == []


@KINDS
def test_s43_a_sink_that_was_removed_when_all_was_settled_is_not_missed(kind: Kind) -> None:
    town = OneTarget(kind)
    harness = town.job(sink="old name", ends=(4, 8))
    harness.life(until=0)
    renamed = town.job(sink="new name", ends=(4, 8), storage=harness.storage, logs=harness.logs)
    renamed.drain()
    assert town.ids() == list(range(8))


@KINDS
def test_s44_a_sink_added_to_a_running_jobs_checkpoint_gets_the_epochs_from_then_on(kind: Kind) -> None:
    first, second = fake(kind, "first"), fake(kind, "second")
    harness = Harness(first, source=Source(ends=(4, 8)))
    harness.life(DiesAt("log commit 0", after=True))
    harness.subjects = (first, second)
    harness.drain()
    assert sorted(row["id"] for row in first.read()) == list(range(8))
    assert sorted(row["id"] for row in second.read()) == list(range(4, 8))
    assert harness.leftovers() == []


def test_s53_part_file_names_are_never_reused(workshop: Path) -> None:
    """Not by another attempt, run, generation, takeover or job: the name holds them all."""
    for name in ("one", "two"):
        for generation in range(2):
            sink = FileSink(workshop / "files", format="jsonl", name="files")
            sink.check(SCHEMA, output_mode="append")
            subject = SinkUnderTest(sink, lambda: file_rows(workshop / "files"), ordered=False)
            harness = Harness(subject, source=Source(ends=(4, 8)), name=name)
            accepted = Behaviour(accepted=frozenset({Accept.FRESH_START}) if generation else frozenset())
            harness.life(DiesAt("log commit 1"), accepted)
            harness.drain(Behaviour(lost_attempts=lambda epoch, slot: 1))
    assert sorted(row["id"] for row in file_rows(workshop / "files")) == sorted([*range(8)] * 4)
    assert len(list((workshop / "files").glob("part-*"))) == 4 * 4


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
@pytest.mark.parametrize("at", ["log commit 0", "storage create settled/0", "storage delete manifests/0"])
def test_a_job_may_change_its_guarantee_between_two_runs(guarantee: Guarantee, at: str) -> None:
    """Whatever the weaker run left behind, the exact one after it neither loses nor repeats what it delivers itself."""
    for before, after in ((guarantee, Guarantee.EXACTLY_ONCE), (Guarantee.EXACTLY_ONCE, guarantee)):
        harness = Harness(fake(FakeTwoPhaseSink), source=Source(ends=(4, 8)), guarantee=before)
        harness.life(DiesAt(at))
        harness.guarantee = after
        harness.drain()
        result = harness.audits()["two-phase"]
        assert not set(result.missing) & set(range(4, 8))
        assert not set(result.duplicate) & set(range(4, 8))
        assert harness.leftovers() == []
