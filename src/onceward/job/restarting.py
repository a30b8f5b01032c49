"""`Job.run` under a restart strategy: lives in one process, one after the other, on the supervisor's own record.

What kills the process or its JVM cannot be mended from inside; `onceward run` has a parent for that.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from onceward.clock import SystemClock
from onceward.errors import DamagedFile, RestartsExhausted, StorageFailed
from onceward.journal import IdentityFile, SettledLog
from onceward.restart import (
    ExitReport,
    GiveUp,
    How,
    LifeLog,
    NoRestart,
    Reached,
    RestartAfter,
    Restarts,
    announce,
    first_line,
)
from onceward.spark.cause import MAY_BE_RESTARTED, exit_code_of, python_cause, text_of
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.run import Run
from onceward.storage import LocalStorage, local_path

if TYPE_CHECKING:
    from onceward.job.facade import Job

log = logging.getLogger("onceward")


def checkpoint_reached(job: Job) -> Reached:
    """How far the checkpoint is, -1 where that cannot be read: for the record, and for what an early end is called.
    What was decided before onceward came to it, or before it was restored, counts as settled."""
    root = local_path(job.checkpoint)
    ours = LocalStorage(root / "onceward")
    decided = settled = adopted = -1
    with contextlib.suppress(DamagedFile, StorageFailed, OSError):
        decided = SparkLogs(root).decided()
    with contextlib.suppress(DamagedFile, StorageFailed, OSError):
        settled = SettledLog(ours).watermark()
    with contextlib.suppress(DamagedFile, StorageFailed, OSError):
        record = IdentityFile(ours).read()
        adopted = record.adopted if record is not None else -1
    return Reached(decided, max(settled, adopted))


def life_log(job: Job) -> LifeLog:
    """Where the lives of a job are kept."""
    return LifeLog(LocalStorage(local_path(job.checkpoint) / "onceward"), SystemClock())


def run_with_restarts(job: Job, spark: SparkSession, accept: str | Iterable[str]) -> None:
    """Start and wait, again and again as the job's strategy says. An interrupt ends it, also in a pause."""
    if isinstance(job.restart, NoRestart):
        _run_once(job, spark, accept, [])
        return
    restarts = Restarts(job.restart, life_log(job), SystemClock(), lambda: checkpoint_reached(job))
    decision = restarts.settle_vanished()
    if isinstance(decision, GiveUp):
        raise RestartsExhausted(
            f"{job.name} is not started again: {decision.why}",
            hint="its last lives ended without a word: killed, out of memory, or with their host. Start it again when "
            "the reason is gone",
        )
    while decision is None or _pause(job, restarts, decision):
        decision = _live(job, spark, accept, restarts)
        if decision is None:
            return
        # What was accepted was accepted for one start.
        accept = ()


def _live(job: Job, spark: SparkSession, accept: str | Iterable[str], restarts: Restarts) -> RestartAfter | None:
    """One life; the pause after which the next may begin, None after a clean end. Raises what no restart mends."""
    restarts.begin()
    begun = time.monotonic()
    started: list[Run] = []
    try:
        _run_once(job, spark, accept, started)
    except Exception as error:
        code = exit_code_of(error)
        how = How.FAILED if code == MAY_BE_RESTARTED else How.REFUSED
        text = first_line(python_cause(error) or text_of(error))
        report = ExitReport(how, time.monotonic() - begun, exit_code=code, error=type(error).__name__, message=text)
        decision = restarts.end(report, stopping=any(run.is_stopping for run in started))
        if isinstance(decision, RestartAfter) and _is_alive(spark):
            return decision
        if isinstance(decision, GiveUp):
            log.error("%s is not started again: %s", job.name, decision.why)
        raise
    except BaseException:
        # Interrupted while it started: somebody has asked for its end.
        restarts.end(ExitReport(How.STOPPED, time.monotonic() - begun))
        raise
    restarts.end(ExitReport(How.STOPPED, time.monotonic() - begun, exit_code=0))
    return None


def _run_once(job: Job, spark: SparkSession, accept: str | Iterable[str], started: list[Run]) -> None:
    run = job.start(spark, accept=accept)
    started.append(run)
    try:
        run.await_termination()
    except KeyboardInterrupt:
        run.stop()


def _pause(job: Job, restarts: Restarts, decision: RestartAfter) -> bool:
    """Whether it may go on afterwards."""
    if (ended := restarts.lives[-1].ended) is not None:
        log.warning("%s", announce(job.name, ended, decision))
    try:
        time.sleep(decision.delay_s)
    except KeyboardInterrupt:
        return False
    return True


def _is_alive(spark: SparkSession) -> bool:
    """Whether this process's Spark can run another query."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False
