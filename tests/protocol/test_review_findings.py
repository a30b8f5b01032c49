"""Schedules that a review of the code against the model found, each of which once lost, doubled or wedged something."""

import os
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sink_cases import fake

from onceward.contracts import Guarantee
from onceward.epoch import RunContext
from onceward.epoch.takeover import take_over
from onceward.errors import CheckpointRefused, CheckpointRolledBack
from onceward.identity import RunId
from onceward.journal import IdentityFile
from onceward.recovery import Accept, inspect_checkpoint
from onceward.recovery.plan import TakeOver
from onceward.spark.rewind import rewind
from onceward.storage import LocalStorage
from onceward.testing import (
    Behaviour,
    DiesAt,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Faults,
    Finished,
    Harness,
    PausedAt,
    Source,
)
from onceward.testing.engine import COMMITS_ENTRY, DirectoryLogs, offsets_entry
from onceward.testing.fakes import ManualClock
from onceward.testing.wrappers import FaultyLogs, FaultyStorage, with_faults

KINDS = pytest.mark.parametrize("kind", [FakeTwoPhaseSink, FakeTransactionalSink])


def job(kind: Callable[..., Any], *epochs: int) -> Harness:
    return Harness(fake(kind), source=Source(ends=epochs or (4,)))


def context_of(harness: Harness, run: str, faults: Faults) -> RunContext:
    record = IdentityFile(harness.storage).read()
    assert record is not None
    return RunContext(
        job=record.identity,
        run=RunId(run),
        sinks=tuple(with_faults(sink, faults) for sink in harness.sinks),
        guarantee=Guarantee.EXACTLY_ONCE,
        storage=FaultyStorage(harness.storage, faults),
        decisions=FaultyLogs(harness.logs, faults),
        clock=harness.clock,
        adopted=record.adopted,
    )


@dataclass
class MeetingClock(ManualClock):
    """Whoever pauses lets the other one go on, and waits for it."""

    paused: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        self.paused.set()
        assert self.resume.wait(60)


@KINDS
def test_an_adopter_waits_for_another_one_below_it(kind: Callable[..., Any]) -> None:
    """Two takers: the lower one has `taken` and has yet to copy what was decided; the higher one needs that copy."""
    harness = job(kind)
    zombie = DiesAt("log commit 0")
    harness.life(zombie)
    clock = harness.clock = MeetingClock()
    higher = threading.Thread(
        target=lambda: (
            take_over(context_of(harness, "cccccc", PausedAt("storage create manifests/0.2.fate", zombie.arrive)), 0),
            clock.paused.set(),
        )
    )

    def let_the_higher_one_take_over() -> None:
        higher.start()
        assert clock.paused.wait(60)

    looks = iter([lambda: None, let_the_higher_one_take_over])
    lower = context_of(harness, "bbbbbb", PausedAt("log decided", lambda: next(looks)(), times=2))
    assert take_over(lower, 0) is None
    clock.resume.set()
    higher.join(60)
    assert not higher.is_alive()
    harness.drain()
    assert harness.problems() == []
    assert {row["version"] for row in harness.subjects[0].read()} == {"life-1.1"}


@KINDS
@pytest.mark.parametrize("staged", [True, False])
def test_a_backup_older_than_the_last_published_epoch_is_refused_as_a_copy_too(
    kind: Callable[..., Any], staged: bool
) -> None:
    """The backup has planned the epoch and not decided it, the target has it: `copy` alone must not deliver it again.

    A copy gets a generation of its own, and so no longer takes the receipts of the original for its own.
    """
    harness = job(kind, 4, 8)
    harness.life(DiesAt("log commit 1" if staged else "storage create manifests/1.0.json"))
    backup = deepcopy((harness.storage, harness.logs))
    harness.drain()
    restored = Harness(
        *harness.subjects, source=harness.source, storage=backup[0], logs=backup[1], directory_id="elsewhere"
    )
    ending = restored.life(behaviour=Behaviour(accepted=frozenset({Accept.COPY})))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, CheckpointRolledBack)
    assert restored.audits()[str(restored.sinks[0].name)].exactly_once
    both = Behaviour(accepted=frozenset({Accept.COPY, Accept.ROLLBACK}))
    assert isinstance(restored.life(behaviour=both), Finished)
    assert not restored.audits()[str(restored.sinks[0].name)].missing


@KINDS
@pytest.mark.parametrize("at", ["staging", "storage create manifests/0.1.json"])
def test_a_taker_that_lives_finishes_what_the_driver_it_fenced_decided(kind: Callable[..., Any], at: str) -> None:
    """The one window that Spark leaves open. Only the taker's manifest counts, so the taker must be let write it."""
    harness = job(kind, 4, 8)
    zombie = DiesAt("log commit 0")
    harness.life(zombie)
    if at == "staging":
        at = "sink two-phase pre_commit" if kind is FakeTwoPhaseSink else "storage close wal"
    harness.life(PausedAt(at, zombie.arrive))
    harness.drain()
    assert harness.problems() == []
    assert {row["version"] for row in harness.subjects[0].read() if row["epoch"] == 0} == {"life-2.1"}


def spark_checkpoint(folder: Path) -> DirectoryLogs:
    logs = DirectoryLogs(folder)
    for epoch in range(6):
        logs.plan(epoch, offsets_entry(4 * epoch + 4, at=ManualClock().now()))
        logs.commit(epoch, COMMITS_ENTRY)
    return logs


def test_an_epoch_from_before_onceward_is_not_rewound(tmp_path: Path) -> None:
    logs = spark_checkpoint(tmp_path)
    ends = tuple(range(4, 32, 4))
    storage = LocalStorage(tmp_path / "onceward")
    harness = Harness(fake(FakeTwoPhaseSink), source=Source(ends=ends), storage=storage, logs=logs)
    assert isinstance(harness.life(behaviour=Behaviour(accepted=frozenset({Accept.ADOPT})), until=5), Finished)
    with pytest.raises(CheckpointRefused, match="epoch 5"):
        rewind(tmp_path, 3)
    assert (tmp_path / "commits" / "5").exists()


def test_removing_a_folder_into_which_a_late_task_writes_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    storage.create("wal/3/first.arrow", b"x")
    rmdir = os.rmdir

    def write_first(path: Any, **options: Any) -> None:
        (tmp_path / "wal" / "3" / "late.arrow").write_bytes(b"x")
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", write_first)
    storage.delete("wal/3")
    assert storage.names("wal/3") == ["late.arrow"]


def test_a_dry_run_without_the_job_misses_no_sink() -> None:
    """Without a job its sinks are unknown, not removed."""
    harness = job(FakeTwoPhaseSink)
    harness.life(DiesAt("log commit 0"))
    plan = inspect_checkpoint(
        sinks=(),
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    assert plan.refusal is None
    assert plan.steps == (TakeOver(0),)
