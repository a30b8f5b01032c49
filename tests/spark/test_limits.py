"""Hooks, and everything that bounds an epoch: time, room, a deadline, and a stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import CheckpointConfig, Hooks
from onceward.errors import EpochTimedOut, OncewardError, PublishFailed
from onceward.sinks import FileSink, SQLiteSink
from onceward.spark.run import Run

from .sinks import ClosedFiles, ClosedTable
from .workspace import SparkWorkspace, wait_until


class Gate:
    """Rows of one source file pass only while a file is there; the first one that has to wait says so."""

    def __init__(self, folder: Path, *, file: int) -> None:
        self.opening = folder / "open"
        self.reached = folder / "reached"
        self._file = file

    def stream(self, workspace: SparkWorkspace, spark: SparkSession) -> DataFrame:
        """The usual stream, through the gate."""
        opening, reached, held = self.opening, self.reached, self._file

        def wait(files: pa.Array) -> pa.Array:
            if held in files.to_pylist():
                reached.touch()
                while not opening.exists():
                    threading.Event().wait(0.02)
            return files

        return workspace.lucky(spark).withColumn("gate", F.arrow_udf(wait, "int")("file"))


def test_hooks_are_called_in_the_order_of_an_epochs_life(workspace: SparkWorkspace, spark: SparkSession) -> None:
    calls: list[tuple[str, int]] = []

    def remember(name: str) -> object:
        return lambda epoch: calls.append((name, epoch))

    names = ("on_begin", "on_pre_commit", "on_decision", "on_publish", "on_abort")
    hooks = Hooks(**{name: remember(name) for name in names})
    workspace.add_files(2)
    workspace.job(hooks=hooks).run(spark)
    for epoch in range(2):
        assert [name for name, number in calls if number == epoch] == list(names[:-1])


@pytest.mark.parametrize("hook", ["on_begin", "on_pre_commit"])
def test_a_hook_before_the_decision_can_veto_the_epoch(
    workspace: SparkWorkspace, spark: SparkSession, spark_says: Callable[[], str], hook: str
) -> None:
    def veto(epoch: int) -> None:
        if epoch == 1:
            raise ValueError("not while the auditors are here")

    workspace.add_files(2)
    with pytest.raises(StreamingQueryException, match="not while the auditors are here"):
        workspace.job(hooks=Hooks(**{hook: veto})).run(spark)
    assert "Traceback" in spark_says(), "Spark's words are overheard, so the tests of a quiet stop can fail"
    assert {row["file"] for row in workspace.in_table()} == {0} == {row["file"] for row in workspace.in_files()}
    aborted: list[int] = []
    workspace.job(hooks=Hooks(on_abort=aborted.append)).run(spark)
    assert aborted == [1]
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_a_hook_after_the_decision_cannot_stop_the_epoch(workspace: SparkWorkspace, spark: SparkSession) -> None:
    def fail(epoch: int) -> None:
        raise ValueError("too late")

    workspace.add_files(1)
    workspace.job(hooks=Hooks(on_decision=fail, on_publish=fail)).run(spark)
    workspace.expect_exactly_once()


def assert_quiet(words: str) -> None:
    """No stack trace, in Python or Java."""
    assert "Traceback" not in words, words
    assert "\tat " not in words, words


class TimerOfTheGate(threading.Thread):
    """In place of `threading.Timer`: its time is up when the gate holds someone, however fast the machine is."""

    reached: Path

    def __init__(self, interval: float, function: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.function = function
        self.finished = threading.Event()

    def run(self) -> None:
        while not self.finished.wait(0.02):
            if self.reached.exists():
                self.function()
                return

    def cancel(self) -> None:
        self.finished.set()


def test_an_epoch_that_takes_too_long_is_cancelled_aborted_and_delivered_by_the_next_start(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once while the driver stages it, once while the executors do."""
    gate = Gate(workspace.work, file=1)
    job = workspace.job(
        pipeline=lambda session: gate.stream(workspace, session), checkpointing=CheckpointConfig(timeout=5.0)
    )
    monkeypatch.setattr(TimerOfTheGate, "reached", gate.reached, raising=False)
    monkeypatch.setattr(threading, "Timer", TimerOfTheGate)
    workspace.add_files(2)
    for _ in range(2):
        gate.reached.unlink(missing_ok=True)
        with pytest.raises(EpochTimedOut) as caught:
            job.run(spark)
        assert (caught.value.exit_code, caught.value.epoch) == (3, 1)
        assert {row["file"] for row in workspace.in_table()} == {0} == {row["file"] for row in workspace.in_files()}
    gate.opening.touch()
    gate.reached.unlink()
    workspace.job(pipeline=lambda session: gate.stream(workspace, session)).run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_transactions_that_wait_behind_another_target_are_counted_with_their_age(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table is down; the files of its epochs wait for it, and the status says how long already."""
    monkeypatch.setattr("onceward.epoch.in_doubt.LOOK_EVERY_S", 0.2)
    opening = workspace.work / "open"
    table = ClosedTable(workspace.database, opening, first_epoch=1, table="t")
    workspace.add_files(3)
    # Staged by executors, so that an epoch is two slots.
    run = workspace.job([table, FileSink(workspace.files)], small_epoch_rows=0).start(spark)
    wait_until(lambda: run.status().decided == 2 and run.status().in_doubt[0].transactions == 4, "two epochs wait")
    (first,) = run.status().in_doubt
    assert first.oldest_s is not None
    wait_until(lambda: (run.status().in_doubt[0].oldest_s or 0) > (first.oldest_s or 0) + 0.5, "they grow older")
    opening.touch()
    assert run.await_termination()
    (last,) = run.status().in_doubt
    assert (last.sink, last.transactions, last.oldest_s) == (first.sink, 0, None)
    assert last.looked_at is not None
    workspace.expect_exactly_once()


def test_a_stop_in_the_middle_of_an_epoch_finishes_and_publishes_it(
    workspace: SparkWorkspace, spark: SparkSession, spark_says: Callable[[], str]
) -> None:
    gate = Gate(workspace.work, file=1)
    workspace.add_files(8)
    run = workspace.job(pipeline=lambda session: gate.stream(workspace, session), trigger=None).start(spark)
    wait_until(gate.reached.exists, "epoch 1 is being staged")
    stopping = threading.Thread(target=run.stop)
    stopping.start()
    assert run.query.isActive
    gate.opening.touch()
    stopping.join()
    status = run.status()
    assert (status.active, status.decided, status.settled) == (False, 1, 1)
    assert {row["file"] for row in workspace.in_table()} == {0, 1}
    assert_quiet(spark_says())
    workspace.job(pipeline=lambda session: gate.stream(workspace, session)).run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_stopping_a_busy_stream_again_and_again_is_quiet_and_loses_nothing(
    workspace: SparkWorkspace, spark: SparkSession, spark_says: Callable[[], str]
) -> None:
    workspace.add_files(30)

    def run_until(epoch: int) -> Run:
        run = workspace.job(trigger=None).start(spark)
        wait_until(lambda: run.status().decided >= epoch or not run.query.isActive, "two more epochs")
        run.stop()
        return run

    for turn in range(1, 6):
        run = run_until(2 * turn)
        status = run.status()
        assert (status.active, status.settled) == (False, status.decided)
        assert run.query.exception() is None
    assert_quiet(spark_says())
    workspace.job().run(spark)
    workspace.expect_exactly_once()


def test_a_trigger_with_an_interval_runs_until_it_is_stopped(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(2)
    run = workspace.job(trigger="1 second").start(spark)
    assert not run.await_termination(timeout_s=0.1)
    wait_until(lambda: run.status().settled >= 1, "both epochs are settled while it runs")
    workspace.expect_exactly_once()
    run.stop()


def test_a_target_that_is_down_holds_back_staging_and_gets_everything_later(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    begun: list[int] = []
    opening = workspace.work / "open"
    sinks = [ClosedFiles(workspace.files, opening), SQLiteSink(workspace.database, table="t")]
    workspace.add_files(7)
    job = workspace.job(sinks, max_unpublished_epochs=2, hooks=Hooks(on_begin=begun.append))
    run = job.start(spark)
    # Epochs 0, 1 and 2 wait to be published; Spark has planned the fourth, and is held there.
    wait_until(lambda: run.status().planned == 3, "the fourth epoch is planned")
    threading.Event().wait(1.0)
    assert begun == [0, 1, 2]
    assert run.status().settled == -1
    assert workspace.in_files() == [] == workspace.in_table()
    opening.touch()
    run.await_termination()
    assert begun == list(range(7))
    workspace.expect_exactly_once()


def test_a_stop_does_not_wait_for_a_target_that_is_down(
    workspace: SparkWorkspace, spark: SparkSession, spark_says: Callable[[], str], slow_stops: None
) -> None:
    """The held epoch is not begun; those that wait stay staged, and the next start publishes them first."""
    opening = workspace.work / "open"
    sinks = [ClosedFiles(workspace.files, opening), SQLiteSink(workspace.database, table="t")]
    workspace.add_files(4)
    run = workspace.job(sinks, max_unpublished_epochs=1, trigger=None).start(spark)
    wait_until(lambda: run.status().planned == 2, "the third epoch is planned and held")
    with pytest.raises(PublishFailed):
        run.stop(timeout_s=0.1)
    assert_quiet(spark_says())
    assert (run.status().active, run.status().decided) == (False, 1)
    opening.touch()
    workspace.job(sinks).run(spark)
    workspace.expect_exactly_once()


def test_a_target_that_stays_down_fails_the_job_and_the_next_start_publishes_first(
    workspace: SparkWorkspace, spark: SparkSession, slow_calls: None
) -> None:
    opening = workspace.work / "open"
    sinks = [ClosedFiles(workspace.files, opening), SQLiteSink(workspace.database, table="t")]
    workspace.add_files(2)
    with pytest.raises(PublishFailed) as caught:
        workspace.job(sinks, publish_deadline_s=0.5).run(spark)
    assert (caught.value.exit_code, caught.value.epoch, caught.value.sink) == (3, 0, "files:out")
    assert workspace.in_files() == [] == workspace.in_table()
    with pytest.raises(OncewardError, match="the target is down"):
        workspace.job(sinks, publish_deadline_s=0.5).run(spark)
    opening.touch()
    published: list[int] = []
    run = workspace.job(sinks, hooks=Hooks(on_publish=published.append)).start(spark)
    assert published[0] == 0, "recovery publishes before the query starts"
    run.await_termination()
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
