"""One run for one checkpoint in one process, the query that it belongs to, and calls that never come back."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onceward import CheckpointConfig, Hooks, foreach_batch
from onceward.contracts import Handle, Outcome, SlotContext
from onceward.errors import CheckpointCopied, ConfigurationError, EpochTimedOut, Fenced, PublishFailed
from onceward.journal import IdentityFile
from onceward.sinks import FileSink, SQLiteSink
from onceward.storage import LocalStorage

from .test_limits import Gate, TimerOfTheGate
from .workspace import PATIENCE_S, ROWS, SparkWorkspace, wait_until


class Locked(FileSink):
    """Its commits wait for the file `open`, as those of a table do that somebody has locked."""

    def __init__(self, path: Path, opening: Path) -> None:
        super().__init__(path)
        self.opening = opening

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Wait, then the real thing."""
        wait_until(self.opening.exists, "the lock is let go")
        return super().commit_all(handles)


class LockedWhileStaging(FileSink):
    """Its transactions begin only once the file `open` is there, from `first_epoch` on."""

    def __init__(self, path: Path, opening: Path, *, first_epoch: int) -> None:
        super().__init__(path)
        self.opening = opening
        self.reached = opening.with_name("reached")
        self.first_epoch = first_epoch

    def begin_transaction(self, context: SlotContext) -> Any:
        """Wait, then the real thing."""
        if context.epoch >= self.first_epoch:
            self.reached.touch()
            wait_until(self.opening.exists, "the lock is let go")
        return super().begin_transaction(context)


def own_query(
    workspace: SparkWorkspace, spark: SparkSession, deliver: Callable[..., None], location: Path
) -> StreamingQuery:
    writer = workspace.lucky(spark).writeStream.foreachBatch(deliver).option("checkpointLocation", str(location))
    return writer.trigger(availableNow=True).start()


def sinks_of(workspace: SparkWorkspace) -> list[Any]:
    return [FileSink(workspace.files), SQLiteSink(workspace.database, table="t")]


def query_of(workspace: SparkWorkspace) -> str | None:
    record = IdentityFile(LocalStorage(workspace.checkpoint / "onceward")).read()
    assert record is not None
    return record.query


def test_s87_a_query_with_another_checkpoint_is_refused_before_anything_is_staged(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    begun: list[int] = []
    workspace.add_files(2)
    workspace.job().run(spark)
    workspace.add_files(1)
    for location in (workspace.work / "other", workspace.work / "other"):
        deliver = foreach_batch(
            name="tested",
            checkpoint=workspace.checkpoint,
            sinks=sinks_of(workspace),
            hooks=Hooks(on_begin=begun.append),
        )
        query = own_query(workspace, spark, deliver, location)
        with pytest.raises(StreamingQueryException, match="runs on another checkpoint"):
            query.awaitTermination()
        assert isinstance(deliver.error, ConfigurationError)
        deliver.close()
    assert begun == []
    workspace.job().run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_s87_rows_of_another_query_are_not_staged_under_a_barrier_of_the_same_number(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """Both checkpoints have an epoch 1 that is planned and not decided."""
    begun: list[int] = []
    other = workspace.work / "other"
    workspace.add_files(1)
    own_query(workspace, spark, lambda batch, epoch: None, other).awaitTermination()
    workspace.add_files(1)

    def fail_in_epoch_1(epoch: int) -> None:
        if epoch == 1:
            raise RuntimeError("the hook says no")

    with pytest.raises(StreamingQueryException, match="the hook says no"):
        workspace.job(hooks=Hooks(on_pre_commit=fail_in_epoch_1)).run(spark)
    deliver = foreach_batch(
        name="tested", checkpoint=workspace.checkpoint, sinks=sinks_of(workspace), hooks=Hooks(on_begin=begun.append)
    )
    with pytest.raises(StreamingQueryException, match="runs on another checkpoint"):
        own_query(workspace, spark, deliver, other).awaitTermination()
    deliver.close()
    assert begun == []
    workspace.job().run(spark)
    workspace.expect_exactly_once()


def test_s87_so_is_one_whose_own_checkpoint_is_new(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    deliver = foreach_batch(name="tested", checkpoint=workspace.checkpoint, sinks=sinks_of(workspace))
    with pytest.raises(StreamingQueryException, match="is of no query yet"):
        own_query(workspace, spark, deliver, workspace.work / "other").awaitTermination()
    deliver.close()


def test_s87_the_query_is_part_of_the_identity_from_the_first_epoch_on(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(1)
    run = workspace.job().start(spark)
    assert run.await_termination()
    assert query_of(workspace) == str(run.query.id)
    workspace.add_files(1)
    (workspace.checkpoint / "metadata").unlink()
    (workspace.checkpoint / ".metadata.crc").unlink()
    again = workspace.job().start(spark)
    assert again.await_termination()
    assert again.query.id == run.query.id, "what was lost was written again"
    (workspace.checkpoint / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')
    (workspace.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    with pytest.raises(CheckpointCopied, match="those of the query 11111111"):
        workspace.job().start(spark)
    workspace.expect_exactly_once()
    workspace.add_files(1)
    workspace.job().run(spark, accept="copy")
    assert query_of(workspace) == "11111111-2222-3333-4444-555555555555"
    workspace.expect_exactly_once()


def test_s88_a_second_start_in_one_process_is_refused_and_the_first_goes_on(
    workspace: SparkWorkspace, spark: SparkSession, tmp_path: Path
) -> None:
    gate = Gate(workspace.work, file=1)
    plans: list[int] = []
    workspace.add_files(3)
    job = workspace.job(pipeline=lambda session: gate.stream(workspace, session), trigger=None)
    run = job.start(spark)
    wait_until(gate.reached.exists, "epoch 1 is being staged")
    before = sorted((workspace.checkpoint / "onceward" / "manifests").iterdir())
    spelled = tmp_path / "spelled"
    spelled.symlink_to(workspace.checkpoint)
    for checkpoint in (workspace.checkpoint, f"file:{workspace.checkpoint}/", spelled):
        with pytest.raises(Fenced, match="already runs on this checkpoint in this process"):
            workspace.job(checkpoint=checkpoint, hooks=Hooks(on_abort=plans.append)).start(spark)
        with pytest.raises(Fenced, match="already runs on this checkpoint in this process"):
            foreach_batch(name="tested", checkpoint=checkpoint, sinks=sinks_of(workspace))
    assert plans == []
    assert sorted((workspace.checkpoint / "onceward" / "manifests").iterdir()) == before, "nothing was taken over"
    gate.opening.touch()
    wait_until(lambda: run.status().settled == 2, "all is delivered")
    run.stop()
    workspace.add_files(1)
    workspace.job().run(spark)
    workspace.expect_exactly_once()


def test_s29_a_second_driver_that_spark_sees_before_we_do_is_a_fence_too(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """A file source lists what it is about to read before there is a barrier: the other one was first."""
    workspace.add_files(3)

    def other_driver(epoch: int) -> None:
        if epoch == 1:
            lists = workspace.checkpoint / "sources" / "0"
            shutil.copy(lists / "1", lists / "2")

    with pytest.raises(Fenced, match="Multiple streaming"):
        workspace.job(hooks=Hooks(on_begin=other_driver)).run(spark)
    assert len(workspace.in_table()) == 2 * ROWS, "what was decided is published"


def test_s88_a_query_that_died_has_let_go(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """Nobody has waited for it, stopped it or closed it: a notebook whose cell is run again."""
    workspace.add_files(1)

    def fail(epoch: int) -> None:
        raise RuntimeError("the hook says no")

    run = workspace.job(hooks=Hooks(on_pre_commit=fail)).start(spark)
    wait_until(lambda: not run.query.isActive, "it died")
    assert run.status().error == "RuntimeError: the hook says no"
    assert repr(run) == "<Run 'tested': failed: RuntimeError: the hook says no; no epoch is decided yet>"
    workspace.job().run(spark)
    workspace.expect_exactly_once()


def test_s88_a_callable_whose_query_ended_is_replaced_and_one_whose_query_runs_is_not(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """Nothing was closed, as users forget. A query that has no rows yet runs as well."""
    workspace.source.mkdir()

    def made() -> Any:
        return foreach_batch(name="tested", checkpoint=workspace.checkpoint, sinks=sinks_of(workspace))

    first = made()
    second = made()
    writer = workspace.lucky(spark).writeStream.foreachBatch(second)
    query = writer.option("checkpointLocation", str(workspace.checkpoint)).start()
    try:
        with pytest.raises(Fenced, match="already runs"):
            made()
        workspace.add_files(1)
        query.processAllAvailable()
        with pytest.raises(Fenced, match="already runs"):
            workspace.job().start(spark)
    finally:
        query.stop()
    third = made()
    with pytest.raises(StreamingQueryException, match="was closed, or another one was made"):
        own_query(workspace, spark, first, workspace.work / "other").awaitTermination()
    third.close()
    workspace.expect_exactly_once()


def test_s77_a_commit_that_hangs_ends_the_job_and_blocks_a_start_until_it_is_back(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    opening = workspace.work / "open"
    sinks = [Locked(workspace.files, opening), SQLiteSink(workspace.database, table="t")]
    workspace.add_files(2)
    with pytest.raises(PublishFailed, match="commit_all has not come back") as caught:
        workspace.job(sinks, publish_deadline_s=10.0).run(spark)
    assert (caught.value.epoch, caught.value.sink) == (0, "files:out")
    assert workspace.in_files() == [] == workspace.in_table()
    with pytest.raises(Fenced, match="commit_all of sink 'files:out' has not come back"):
        workspace.job(sinks).start(spark)
    opening.touch()
    wait_until(lambda: started(workspace, spark), "the call has come back")
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def started(workspace: SparkWorkspace, spark: SparkSession) -> bool:
    try:
        workspace.job().run(spark)
    except Fenced:
        return False
    return True


def test_s77_a_stop_while_a_commit_hangs_is_bounded(
    workspace: SparkWorkspace, spark: SparkSession, slow_stops: None
) -> None:
    opening = workspace.work / "open"
    workspace.add_files(2)
    sinks = [Locked(workspace.files, opening), SQLiteSink(workspace.database, table="t")]
    run = workspace.job(sinks, trigger=None, publish_deadline_s=600.0).start(spark)
    wait_until(lambda: run.status().decided == 1, "both epochs are decided")
    with pytest.raises(PublishFailed, match="commit_all of sink 'files:out' has not come back"):
        run.stop(timeout_s=0.5)
    assert not run.query.isActive
    opening.touch()
    wait_until(lambda: started(workspace, spark), "the call has come back")
    workspace.expect_exactly_once()


@pytest.mark.parametrize("small_epoch_rows", [0, 1000], ids=["by executors", "by the driver"])
def test_s77_a_stop_while_staging_hangs_cancels_the_epoch(
    workspace: SparkWorkspace, spark: SparkSession, slow_stops: None, small_epoch_rows: int
) -> None:
    """The rows themselves do not come: a Spark job hangs, wherever the epoch is staged."""
    gate = Gate(workspace.work, file=1)
    workspace.add_files(3)
    job = workspace.job(
        pipeline=lambda session: gate.stream(workspace, session), trigger=None, small_epoch_rows=small_epoch_rows
    )
    run = job.start(spark)
    wait_until(lambda: gate.reached.exists() and run.status().settled == 0, "epoch 1 is being staged")
    with pytest.raises(EpochTimedOut, match="the run was stopped"):
        run.stop(timeout_s=0.5)
    assert (run.query.isActive, run.status().settled) == (False, 0)
    gate.opening.touch()
    workspace.job(pipeline=lambda session: gate.stream(workspace, session)).run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_s77_a_sink_that_hangs_while_the_driver_stages_is_bounded_by_the_epochs_time(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two that bound it the timer is not for Spark's jobs here, which may take their time."""
    opening = workspace.work / "open"
    workspace.add_files(1)
    workspace.job().run(spark)
    workspace.add_files(2)
    # The first epoch of a run is staged by executors, the next one by the driver.
    locked = LockedWhileStaging(workspace.files, opening, first_epoch=2)
    sinks = [locked, SQLiteSink(workspace.database, table="t")]
    monkeypatch.setattr(TimerOfTheGate, "reached", locked.reached, raising=False)
    monkeypatch.setattr(threading, "Timer", TimerOfTheGate)
    with pytest.raises(EpochTimedOut, match="staging on the driver has not come back") as caught:
        workspace.job(sinks, checkpointing=CheckpointConfig(timeout=2.0)).run(spark)
    assert caught.value.epoch == 2
    assert {row["file"] for row in workspace.in_table()} <= {0, 1}
    opening.touch()
    wait_until(lambda: started(workspace, spark), "the call has come back")
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_s77_a_stop_while_the_driver_hangs_in_a_sink_says_so(workspace: SparkWorkspace, spark: SparkSession) -> None:
    opening = workspace.work / "open"
    workspace.add_files(2)
    locked = LockedWhileStaging(workspace.files, opening, first_epoch=1)
    sinks = [locked, SQLiteSink(workspace.database, table="t")]
    run = workspace.job(sinks, trigger=None).start(spark)
    wait_until(locked.reached.exists, "the driver hangs in the sink")
    stopping: list[BaseException] = []

    def stop() -> None:
        try:
            run.stop(timeout_s=3.0)
        except BaseException as error:
            stopping.append(error)

    thread = threading.Thread(target=stop)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it waits without end"
    (error,) = stopping
    assert isinstance(error, EpochTimedOut)
    assert "staging on the driver of sink" in str(error)
    opening.touch()
    wait_until(lambda: not run.query.isActive, "Spark has ended the query")
    wait_until(lambda: started(workspace, spark), "the call has come back")
    workspace.expect_exactly_once()
