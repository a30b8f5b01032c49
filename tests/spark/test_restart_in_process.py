"""`Job.run` under a restart strategy: failures that a restart mends are mended in the same process."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from onceward import FixedDelay, Hooks, NoRestart
from onceward.errors import EpochLost, RestartsExhausted, TargetUnavailable
from onceward.restart import How
from onceward.restart.restarts import Restarts

from .supervised import lives
from .workspace import SparkWorkspace


def failing(times: int, error: Callable[[], Exception]) -> tuple[Hooks, list[int]]:
    """Hooks that let the first epochs fail so often, and the list of tries."""
    tries: list[int] = []

    def begin(epoch: int) -> None:
        tries.append(epoch)
        if len(tries) <= times:
            raise error()

    return Hooks(on_begin=begin), tries


def away() -> TargetUnavailable:
    return TargetUnavailable("cannot reach redis://ann:hunter2@host")


def hows(workspace: SparkWorkspace) -> list[How]:
    return [life.ended.how for life in lives(workspace) if life.ended is not None]


def test_it_is_started_again_until_it_works(
    workspace: SparkWorkspace, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.add_files(2)
    hooks, tries = failing(2, away)
    with caplog.at_level(logging.WARNING, logger="onceward"):
        workspace.job(hooks=hooks, restart=FixedDelay(2, 0)).run(spark)
    assert tries == [0, 0, 0, 1]
    assert hows(workspace) == [How.FAILED, How.FAILED, How.STOPPED]
    (line, _) = [record.getMessage() for record in caplog.records if "restarting" in record.getMessage()]
    assert line.startswith("restarting tested in 0 s: TargetUnavailable: cannot reach redis://***@host, after ")
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_spark_s_own_failures_are_worth_another_start_and_wrong_code_is_not(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(1)
    hooks, tries = failing(1, lambda: OSError("a lost executor, or so"))
    workspace.job(hooks=hooks, restart=FixedDelay(1, 0)).run(spark)
    assert tries == [0, 0]
    workspace.add_files(1)
    hooks, tries = failing(1, lambda: NameError("nmae"))
    with pytest.raises(Exception, match="nmae"):
        workspace.job(hooks=hooks, restart=FixedDelay(1, 0)).run(spark)
    assert tries == [1]
    assert hows(workspace)[-1] is How.REFUSED


def test_the_error_that_was_one_too_many_is_raised_and_a_new_start_goes_on_counting(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(1)
    hooks, tries = failing(99, away)
    job = workspace.job(hooks=hooks, restart=FixedDelay(1, 0))
    with pytest.raises(TargetUnavailable):
        job.run(spark)
    assert len(tries) == 2
    with pytest.raises(TargetUnavailable):
        job.run(spark)
    assert len(tries) == 3, "the row has not ended: this start was asked for, and no other follows"
    workspace.job(restart=FixedDelay(1, 0)).run(spark)
    workspace.expect_exactly_once()


def test_lives_that_vanished_count_and_the_one_too_many_is_refused_once(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """A process that was killed leaves a life without an end; here one that is only begun."""
    from onceward.clock import SystemClock
    from onceward.job import checkpoint_reached, life_log

    workspace.add_files(1)
    job = workspace.job(restart=FixedDelay(1, 0))
    for _ in range(2):
        Restarts(job.restart, life_log(job), SystemClock(), lambda: checkpoint_reached(job)).begin()
    with pytest.raises(RestartsExhausted, match="2 failures since an epoch was published, and 1 restart is allowed"):
        job.run(spark)
    assert hows(workspace) == [How.VANISHED, How.VANISHED]
    job.run(spark)
    workspace.expect_exactly_once()


def test_what_no_restart_mends_is_raised_at_once_and_start_never_restarts(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(1)
    hooks, tries = failing(99, lambda: EpochLost("gone"))
    with pytest.raises(EpochLost):
        workspace.job(hooks=hooks, restart=FixedDelay(9, 0)).run(spark)
    assert len(tries) == 1
    hooks, tries = failing(99, away)
    with pytest.raises(TargetUnavailable):
        workspace.job(hooks=hooks, restart=FixedDelay(9, 0)).start(spark).await_termination()
    with pytest.raises(TargetUnavailable):
        workspace.job(hooks=hooks, restart=NoRestart()).run(spark)
    assert len(tries) == 2
    assert len(lives(workspace)) == 1
