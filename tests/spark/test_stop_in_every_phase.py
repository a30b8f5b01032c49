"""SIGTERM in every phase of an epoch, as `onceward run` takes it, in this process and on one Spark: the job ends
between two epochs, what is decided is published, and the next start goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from onceward import Hooks, Job
from onceward.cli.drive import _run
from onceward.cli.logs import Log
from onceward.cli.run import RunOptions
from onceward.contracts import Handle, Outcome, SlotValues
from onceward.epoch import Coordinator
from onceward.errors import PublishFailed
from onceward.identity import JobIdentity, TransactionName
from onceward.sinks import FileSink, SQLiteSink
from onceward.sinks.files.writer import SlotTransaction
from onceward.spark.delivery import Delivery
from onceward.spark.run import RunStatus
from onceward.wal import SegmentStore

from .sinks import ClosedTable
from .workspace import PATIENCE_S, SparkWorkspace, wait_until

EPOCH = 1
"""In which the signal comes."""


class Point:
    """Where the signal is to come, once. Picklable: an executor may be there first."""

    def __init__(self, phase: str, folder: Path) -> None:
        self.phase = phase
        self.driver = os.getpid()
        self.asked, self.seen = folder / "asked", folder / "seen"

    def reached(self, phase: str, epoch: int) -> None:
        """Send it, and go on when the driver has begun to stop: it does so in this phase then, and in no later one."""
        if phase != self.phase or epoch < EPOCH:
            return
        try:
            self.asked.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(self.driver, signal.SIGTERM)
        wait_until(self.seen.exists, "the driver begins to stop")


class Files(FileSink):
    """Says when it stages, and when the first of its slots is published."""

    def __init__(self, path: Path, point: Point) -> None:
        super().__init__(path)
        self.point = point

    def invoke(self, transaction: SlotTransaction, batch: pa.RecordBatch) -> None:
        super().invoke(transaction, batch)
        self.point.reached("staging", int(batch.column("file")[0].as_py()))

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        first = super().commit_all(handles[:1])
        name = TransactionName.parse(str(handles[0]["transaction"]))
        assert name is not None
        self.point.reached("publish, between two slots", name.epoch)
        return [*first, *super().commit_all(handles[1:])]


class Table(SQLiteSink):
    """Says when the files are published and it is not."""

    def __init__(self, path: Path, point: Point) -> None:
        super().__init__(path, table="t")
        self.point = point

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        self.point.reached("publish, between two sinks", checkpoint_id)
        return super().send_transaction(slots, job, checkpoint_id, timestamp)


class Notifier:
    """Whom the driver tells how it fares."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def ready(self) -> None:
        self.heard.append("ready")

    def alive(self) -> None:
        self.heard.append("alive")

    def stopping(self) -> None:
        self.heard.append("stopping")

    def ended(self) -> None:
        self.heard.append("ended")

    def failed(self, document: Mapping[str, Any]) -> None:
        self.heard.append("failed")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Put back what the command sets."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def drive(job: Job, spark: SparkSession, *, stop_timeout_s: float = PATIENCE_S) -> RunStatus:
    """As the command does it once Spark has started."""
    options = RunOptions(
        target="job.py",
        accept=(),
        master=None,
        conf=(),
        packages=None,
        shows_spark_log=True,
        json=True,
        quiet=True,
        log=Log.TEXT,
        api=False,
        api_bind=None,
        stop_timeout_s=stop_timeout_s,
        heartbeat_timeout_s=60.0,
        ready_file=None,
    )
    notifier = Notifier()
    try:
        return _run(job, spark, options, notifier, threading.Event())
    finally:
        assert notifier.heard == ["ready", "stopping"]


def observed(monkeypatch: pytest.MonkeyPatch, point: Point) -> None:
    """Wrap the protocol's own steps, for the phases in which neither a hook nor a sink is called."""

    def around(owner: type, name: str, phase: str, epoch_of: Callable[..., int], *, after: bool) -> None:
        method = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not after:
                point.reached(phase, epoch_of(*args))
            result = method(*args, **kwargs)
            if after:
                point.reached(phase, epoch_of(*args))
            return result

        monkeypatch.setattr(owner, name, wrapped)

    finish = Delivery.finish_epoch

    def finish_epoch(self: Delivery, timeout_s: float) -> int:
        self._stop_asked.set()
        point.seen.touch()
        return finish(self, timeout_s)

    monkeypatch.setattr(Delivery, "finish_epoch", finish_epoch)
    around(Delivery, "__call__", "barrier", lambda _, batch, epoch: epoch, after=False)
    around(Coordinator, "pre_commit", "manifest", lambda _, assignment, *__: assignment.epoch, after=True)
    around(SegmentStore, "remove_epoch", "settle", lambda _, epoch: epoch, after=False)


BEFORE_THE_DECISION = ("begin", "staging", "pre-commit", "manifest")
AFTER_THE_DECISION = ("decision", "publish, between two slots", "publish, between two sinks", "settle", "published")


EVERYWHERE = [(phase, 0) for phase in ("barrier", *BEFORE_THE_DECISION, *AFTER_THE_DECISION)]
ON_THE_DRIVER = ("staging", 1000)


@pytest.mark.parametrize(("phase", "small"), [*EVERYWHERE, ON_THE_DRIVER])
def test_told_to_stop_in_any_phase_it_publishes_what_is_decided_and_the_next_start_goes_on(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, phase: str, small: int
) -> None:
    workspace.add_files(3)
    point = Point(phase, workspace.work)
    observed(monkeypatch, point)
    job = workspace.job(
        [Files(workspace.files, point), Table(workspace.database, point)],
        trigger=None,
        small_epoch_rows=small,
        hooks=Hooks(
            on_begin=lambda epoch: point.reached("begin", epoch),
            on_pre_commit=lambda epoch: point.reached("pre-commit", epoch),
            on_decision=lambda epoch: point.reached("decision", epoch),
            on_publish=lambda epoch: point.reached("published", epoch),
        ),
    )
    status = drive(job, spark)
    assert point.asked.exists()
    assert (status.active, status.error) == (False, None)
    assert status.settled == status.decided
    if phase == "barrier":
        assert status.decided == EPOCH - 1, "the epoch was planned, and it is not begun"
    elif phase in BEFORE_THE_DECISION:
        assert status.decided == EPOCH, "the running epoch is finished, and no other one is begun"
    else:
        assert status.decided >= EPOCH
    job = workspace.job()
    job.run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_told_to_stop_while_nothing_is_there_or_comes_at_that_moment(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """Spark plans all the while: it asks its source again and again."""
    workspace.add_files(1)
    point = Point("idle", workspace.work)
    point.seen.touch()

    def comes(epoch: int) -> None:
        workspace.add_files(1)
        point.reached("idle", EPOCH)

    status = drive(workspace.job(trigger=None, hooks=Hooks(on_publish=comes)), spark)
    assert (status.active, status.error) == (False, None)
    assert status.settled == status.decided
    workspace.job().run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_told_to_stop_while_a_target_is_away_and_again_while_the_next_start_recovers(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(2)
    opening = workspace.work / "open"
    point = Point("outage", workspace.work)
    point.seen.touch()

    class Away(ClosedTable):
        def send_transaction(
            self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
        ) -> bool:
            point.reached("outage", checkpoint_id)
            return super().send_transaction(slots, job, checkpoint_id, timestamp)

    def job() -> Job:
        table = Away(workspace.database, opening, first_epoch=1, table="t")
        return workspace.job([FileSink(workspace.files), table], trigger=None)

    with pytest.raises(PublishFailed) as failed:
        drive(job(), spark, stop_timeout_s=1.0)
    assert failed.value.exit_code == 3
    assert workspace.logs.decided() == 1
    opening.touch()
    point.asked.unlink()
    status = drive(job(), spark)
    assert point.asked.exists(), "the signal came while it recovered: there is no other epoch"
    assert (status.settled, status.decided, status.error) == (1, 1, None)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
