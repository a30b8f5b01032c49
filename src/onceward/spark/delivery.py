"""The callable that Spark's `foreachBatch` calls for every epoch, and the publisher beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from onceward.contracts import Workload
from onceward.contracts.events import Failed
from onceward.epoch import (
    EpochAssignment,
    InDoubtSummary,
    Outage,
    PublisherThread,
    PublishLimits,
    SlotAck,
    Watchdog,
    no_longer_than,
    stage_epoch,
    stage_slot,
)
from onceward.errors import EpochTimedOut, Fenced, OncewardError, attributed
from onceward.journal import IdentityFile
from onceward.logs import about
from onceward.recovery import Opened
from onceward.spark.batches import BatchSize
from onceward.spark.cause import in_one_line
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.checkpoint_config import CheckpointConfig
from onceward.spark.defaults import most_tasks
from onceward.spark.findings import log_findings
from onceward.spark.first_rows import FirstRows, looks_small
from onceward.spark.probe import probe_folders
from onceward.spark.query_id import refuse_another_query
from onceward.spark.run_lock import RunLock
from onceward.spark.schema import check_sinks
from onceward.spark.source import check_retention
from onceward.spark.staging import (
    consume,
    may_be_computed_twice,
    stage_by_engine,
    stage_on_driver,
    stage_on_executors,
    use_this_python,
    wait_to_be_interrupted,
)
from onceward.spark.tolerance import StoppedMeanwhile, Tolerance, pause_left

# Spark prints the traces of any error that leaves `foreachBatch`, except one: an interruption by its own stop, which it
# knows by this text. (It searches with an expression that overflows the stack on the long text of a real one.)
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling sleep: java.lang.InterruptedException"

_SHUTDOWN_GRACE_S = 5.0
_ABORT_S = 30.0


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """How far staging may run ahead, how long an epoch may take, and what counts as a small one; how long staging rests
    after a decision, and how often in a row it may fail."""

    max_unpublished_epochs: int = 10
    timeout_s: float | None = None
    min_pause_s: float = 0.0
    tolerable_failures: int = 0
    small_epoch_rows: int = 1000
    publish: PublishLimits = field(default_factory=PublishLimits)


class Observing(Protocol):
    """Whoever looks on and ends with the run."""

    def close(self) -> None:
        """It has ended; may be called again."""
        ...


class StopRequested(OncewardError):
    """The run is being stopped between two epochs; this one is not begun."""


class Delivery:
    """Give it to `DataFrame.writeStream.foreachBatch`. One per query and run; `close` publishes what is decided."""

    def __init__(
        self,
        opened: Opened,
        limits: DeliveryLimits,
        *,
        checkpoint: Path,
        output_mode: str,
        checked: bool,
        watchdog: Watchdog,
        lock: RunLock,
        observers: Observing,
    ) -> None:
        self._context = opened.context
        self._record = opened.record
        self._checkpoint = checkpoint
        self._watchdog = watchdog
        self._lock = lock
        self._observers = observers
        self._coordinator = opened.coordinator
        self._limits = limits
        self._output_mode = output_mode
        self._checked = checked
        self._publisher = PublisherThread(opened.context, limits.publish, watchdog=watchdog)
        self._publisher.start()
        self._running = threading.Lock()
        self._stop_asked = threading.Event()
        self._tolerance = Tolerance(limits.tolerable_failures)
        # The first epoch of a run is staged by the executors, unless its input looks small.
        self._small_rows = limits.small_epoch_rows
        self._last_rows = limits.small_epoch_rows + 1
        self._batch_size = BatchSize()
        self._first_rows = FirstRows()
        self._newest = -1
        self._closed = False
        self._cancel: Callable[[], None] = lambda: None
        self.error: OncewardError | None = None
        self._told_of: Exception | None = None

    def __call__(self, batch: DataFrame, epoch: int) -> None:
        """Stage one epoch and write its manifest. Spark decides it when this returns."""
        with about(job=self._context.job.name, epoch=epoch), self._remember_error(epoch):
            # All kinds of waiting are outside the lock, which whoever stops the run takes before it stops the query.
            room = self._limits.max_unpublished_epochs
            self._publisher.wait_for_room(epoch, room, unless=self._stop_asked.is_set)
            self._rest()
            if not self._stage_unless_stopping(batch, epoch):
                wait_to_be_interrupted(batch)
                raise StopRequested(_INTERRUPTED) from None
        self._publisher.expect(epoch)

    def _stage_unless_stopping(self, batch: DataFrame, epoch: int) -> bool:
        with self._running:
            if self._stop_asked.is_set():
                return False
            if self._newest < 0:
                self._first_look(batch)
            if not self._checked:
                self._check(batch)
                self._checked = True
            if self._newest < 0:
                with self._time_limit(batch, epoch):
                    probe_folders(batch.sparkSession.sparkContext, self._context)
                if not may_be_computed_twice(batch):
                    self._small_rows = -1
                elif self._small_rows > 0 and looks_small(batch, self._small_rows):
                    self._last_rows = 0
            try:
                stage_epoch(
                    self._coordinator, epoch, partial(self._work, batch, epoch), partial(self._tolerates, epoch)
                )
            except StoppedMeanwhile:
                return False
            self._newest = epoch
            return True

    def _check(self, batch: DataFrame) -> None:
        """What `Job.start` does before its query: a query of somebody's own is known from its first epoch on."""
        ahead = self._limits.max_unpublished_epochs
        check_retention(batch.sparkSession, ahead)
        check_sinks(self._context.sinks, batch.schema, output_mode=self._output_mode)
        tasks = most_tasks(batch, self._checkpoint, CheckpointConfig())
        log_findings(self._context.sinks, Workload(tasks, ahead))

    def _rest(self) -> None:
        """Leave the pause that is asked for between the last decision and what is staged next."""
        if self._limits.min_pause_s and (decided_at := SparkLogs(self._checkpoint).decided_at()) is not None:
            self._stop_asked.wait(pause_left(self._limits.min_pause_s, ended=decided_at, now=time.time()))

    def _work(self, batch: DataFrame, epoch: int, assignment: EpochAssignment | None) -> None:
        if assignment is None:
            with self._time_limit(batch, epoch):
                consume(batch)
        else:
            self._coordinator.finish(assignment, self._stage(batch, assignment), self._limits.publish)

    def _tolerates(self, epoch: int, error: Exception, failures: int) -> bool:
        self._tell_failure(epoch, error)
        if not self._tolerance.tolerates(error, failures, self._stop_asked):
            return False
        # That it could not be aborted is no matter either: whoever stages it again takes it over.
        self.error = None
        return True

    @property
    def publisher_error(self) -> BaseException | None:
        """Why the publisher gave up, if it did: the query should be stopped then."""
        return self._publisher.error

    @property
    def outage(self) -> Outage | None:
        """The delivery that is being repeated, if one is."""
        return self._publisher.outage

    def in_doubt(self) -> tuple[InDoubtSummary, ...]:
        """What waits in the targets, as the publisher last saw it."""
        return self._publisher.in_doubt()

    def _first_look(self, batch: DataFrame) -> None:
        """In the first epoch of a run, before anything is staged."""
        if self._closed:
            raise Fenced(
                "this callable was closed, or another one was made for its checkpoint since",
                hint="make a new one for every start of the query",
            )
        query = refuse_another_query(batch, self._checkpoint)
        if query is not None and self._record.query is None:
            record = replace(self._record, number=self._record.number + 1, query=query)
            if IdentityFile(self._context.storage).create(record) != record:
                raise Fenced("another driver has just opened this checkpoint", hint="start one for one checkpoint")
            self._record = record
        use_this_python(batch)

    def finish_epoch(self, timeout_s: float) -> int:
        """Begin no further epoch, wait for the running one to be staged; the newest epoch that can be decided.

        One that takes longer is cancelled; `EpochTimedOut` if even that does not end it.
        """
        self._stop_asked.set()
        if not self._running.acquire(timeout=timeout_s):
            self.cancel_epoch()
            if not self._running.acquire(timeout=_SHUTDOWN_GRACE_S):
                raise EpochTimedOut(
                    f"the running epoch did not end within {timeout_s:.0f} s, nor when it was cancelled: "
                    f"{self._watchdog.outstanding() or 'it waits for Spark'}",
                    hint="nothing of it is visible; the next start, in a new process, aborts it and computes it again",
                )
        self._running.release()
        return self._newest

    def cancel_epoch(self) -> None:
        """Cancel the Spark jobs of the running epoch, if there is one."""
        self._cancel()

    def close(self, timeout_s: float | None = None) -> None:
        """Publish what is decided, then end the publisher; raises what kept it from doing so."""
        self._closed = True
        try:
            self._publisher.close(timeout_s)
        finally:
            self._observers.close()
            self._lock.release()

    def why_busy(self) -> str | None:
        """What is still going on after `close`, if anything."""
        return self._publisher.why_busy()

    def _stage(self, batch: DataFrame, assignment: EpochAssignment) -> list[SlotAck]:
        self._sync_ahead(assignment.epoch)
        try:
            with self._time_limit(batch, assignment.epoch, assignment.takeover):
                acks = None
                if self._last_rows <= self._small_rows:
                    acks = stage_on_driver(batch, assignment, self._small_rows, self._first_rows, self._stage_here)
                if acks is None:
                    acks = stage_by_engine(batch, assignment)
                if acks is None:
                    acks = stage_on_executors(batch, assignment, self._batch_size)
        except BaseException:
            # What cannot be aborted now (the target is down, a task still writes) is aborted when the epoch is staged
            # again, here or at the next start.
            self._try_abort(assignment)
            raise
        self._last_rows = sum(ack.rows for ack in acks)
        return acks

    def _sync_ahead(self, epoch: int) -> None:
        """Let the disk work while Spark computes: the manifest waits until what it rests on is synced."""
        if isinstance(logs := self._context.decisions, SparkLogs):
            threading.Thread(target=logs.sync_ahead, args=(epoch,), name="onceward-sync-ahead", daemon=True).start()

    def _stage_here(
        self, assignment: EpochAssignment, *, slot: int, attempt: int, batches: list[pa.RecordBatch]
    ) -> SlotAck:
        """No Spark job can be cancelled here, so the watchdog bounds it; what hangs may still stage, and is reaped."""
        sinks = ", ".join(sink.name for sink in assignment.sinks)
        do = partial(stage_slot, assignment, slot=slot, attempt=attempt, batches=batches)
        with no_longer_than(self._limits.timeout_s or 0), attributed(sink=sinks, epoch=assignment.epoch):
            return self._watchdog.call(sinks, "staging on the driver", do, error=EpochTimedOut)

    def _try_abort(self, assignment: EpochAssignment) -> None:
        try:
            with no_longer_than(_ABORT_S):
                self._coordinator.abort(assignment)
        except Exception as error:
            self.error = self.error or OncewardError(
                f"the epoch failed and could not be aborted: {error}",
                epoch=assignment.epoch,
                hint="nothing of it is visible; it is aborted at the next start",
            )

    @contextmanager
    def _time_limit(self, batch: DataFrame, epoch: int, takeover: int = 0) -> Iterator[None]:
        """Cancel the epoch's Spark jobs, by a tag of their own, when they take longer than they may, or at a stop."""
        timeout_s = self._limits.timeout_s
        context = batch.sparkSession.sparkContext
        # A time-out that comes late must not cancel what is staged again.
        tag = f"onceward-{self._context.run}-{epoch}-{takeover}"
        cancelled: list[str] = []

        def cancel(why: str) -> None:
            cancelled.append(why)
            context.cancelJobsWithTag(tag)

        too_long = partial(cancel, f"it took longer than {timeout_s or 0:.0f} s")
        timer = None if timeout_s is None else threading.Timer(timeout_s, too_long)
        context.addJobTag(tag)
        self._cancel = partial(cancel, "the run was stopped, and it did not end in time")
        if timer is not None:
            timer.start()
        try:
            yield
        except Exception as error:
            if not cancelled or isinstance(error, EpochTimedOut):
                raise
            raise EpochTimedOut(
                f"the epoch was cancelled: {cancelled[0]}",
                epoch=epoch,
                hint="nothing of it is visible, and it runs again at the next start; give it more time, or make epochs "
                "smaller (maxFilesPerTrigger, maxOffsetsPerTrigger)",
            ) from error
        finally:
            self._cancel = lambda: None
            if timer is not None:
                timer.cancel()
            context.removeJobTag(tag)

    @contextmanager
    def _remember_error(self, epoch: int) -> Iterator[None]:
        """Spark reports a Python error as text; the run wants the error itself, and listeners hear of it."""
        try:
            yield
        except Exception as error:
            if isinstance(error, OncewardError):
                self.error = error
            self._tell_failure(epoch, error)
            raise

    def _tell_failure(self, epoch: int, error: Exception) -> None:
        """Once: what is not tolerated comes by twice."""
        if error is not self._told_of and not isinstance(error, StopRequested):
            self._told_of = error
            kind, _, why = in_one_line(error).partition(": ")
            self._context.emit(Failed(epoch, self._context.clock.now(), kind, why.partition("\n")[0]))
