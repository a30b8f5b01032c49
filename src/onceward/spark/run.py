"""A started job: wait for it, look at it, stop it between two epochs."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from onceward.epoch import RunContext
from onceward.epoch import RunStatus as RunStatus
from onceward.errors import EpochTimedOut, OncewardError, PublishFailed
from onceward.savepoints import take
from onceward.spark.cause import as_fenced, in_one_line
from onceward.spark.delivery import Delivery, StopRequested
from onceward.storage import local_path

log = logging.getLogger("onceward")

_LOOK_S = 0.5
_DECISION_S = 30.0
_STOP_S = 60.0
_SHUTDOWN_GRACE_S = 5.0
_NOBODY_WAITS_S = 2.0
"""After so long a run that was asked to stop, and that nobody waits for, is stopped by a thread of its own."""


class Run:
    """Returned by `Job.start`."""

    def __init__(
        self,
        name: str,
        query: StreamingQuery,
        delivery: Delivery,
        context: RunContext,
        *,
        checkpoint: Path,
        at_clean_end: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.query = query
        self._delivery = delivery
        self._context = context
        self._checkpoint = checkpoint
        self._closed = False
        # Whoever ends the run holds it; who comes second finds it ended.
        self._ending = threading.RLock()
        self._is_stopping = False
        self._asked_to_stop = threading.Event()
        self._on_request: Callable[[], None] | None = None
        self._stop_is_taken = threading.Lock()
        self._stop_failed: OncewardError | None = None
        self._at_clean_end = at_clean_end
        self._last: RunStatus | None = None

    def status(self) -> RunStatus:
        """As the storage shows it now, or as it was at a clean end. No target is asked."""
        return self._last or self._status()

    def _status(self) -> RunStatus:
        decisions = self._context.decisions
        return RunStatus(
            self.name,
            self.query.isActive,
            decisions.planned(),
            decisions.decided(),
            self._context.watermark(),
            self._delivery.in_doubt(),
            self._error(),
            self._delivery.outage,
        )

    def savepoint(self, folder: str | os.PathLike[str]) -> Path:
        """Take a savepoint in `folder` of the newest published epoch, and wait for it; the directory that was made.

        The run goes on meanwhile. After `stop` it is that of the last epoch.
        """
        taken = take(self._checkpoint, local_path(folder), clock=self._context.clock, spark=pyspark.__version__)
        return taken.path

    def rows_per_s(self) -> float:
        """How fast Spark read rows in the epoch that ended last."""
        progress = self.query.lastProgress
        return float(progress["processedRowsPerSecond"] or 0) if progress else 0.0

    def __repr__(self) -> str:
        """One line, for notebooks."""
        now = self.status()
        is_well = "running" if now.active else "ended"
        state = is_well if now.error is None else f"failed: {now.error}"
        reached = f"decided up to epoch {now.decided}, settled up to {now.settled}"
        return f"<Run {self.name!r}: {state}; {reached if now.decided >= 0 else 'no epoch is decided yet'}>"

    def _error(self) -> str | None:
        cause = self._delivery.publisher_error or self._delivery.error
        if isinstance(cause, StopRequested):
            return None
        if cause is None and not self.query.isActive:
            cause = self.query.exception()
        if cause is None:
            return None
        return in_one_line(cause)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended and everything decided is published; True if it has.

        Raises what ended it: onceward's own error where there is one, else Spark's.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not self.query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                if self._delivery.publisher_error is not None:
                    self._stop_query(_STOP_S)
                    break
                is_asked = self._asked_to_stop.is_set() and self._on_request is None
                if is_asked and self._stop_is_taken.acquire(blocking=False):
                    self.stop()
                    return True
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        except StreamingQueryException as error:
            self._close_after(error)
        self._close()
        if self._stop_failed is not None:
            raise self._stop_failed
        self._end_well()
        return True

    @property
    def is_stopping(self) -> bool:
        """Whether it is being stopped, or was asked to: from another thread, or by `onceward stop`."""
        return self._is_stopping or self._asked_to_stop.is_set()

    def request_stop(self) -> None:
        """Ask it to stop between two epochs, from any thread; returns at once.

        Whoever waits in `await_termination` stops it and is told how that went, as after `stop`. If nobody waits, a
        thread of its own does.
        """
        if not self._asked_to_stop.is_set():
            self._asked_to_stop.set()
            if self._on_request is not None:
                self._on_request()
                return
            threading.Thread(target=self._stop_if_nobody_waits, name="onceward-asked-to-stop", daemon=True).start()

    def on_stop_request(self, act: Callable[[], None]) -> None:
        """For whoever stops it in a way of its own: from now on a request only calls this, in the thread that asks."""
        self._on_request = act
        if self._asked_to_stop.is_set():
            act()

    def _stop_if_nobody_waits(self) -> None:
        try:
            if self.query.awaitTermination(_NOBODY_WAITS_S):  # type: ignore[arg-type]
                return
        except StreamingQueryException:
            return
        if self._stop_is_taken.acquire(blocking=False):
            try:
                self.stop()
            except OncewardError as error:
                self._stop_failed = error
                log.warning("the run was asked to stop, and has not ended well: %s", error)

    def stop(self, timeout_s: float = 60.0) -> None:
        """Finish the running epoch, publish what is decided, close. Nothing of the next epoch is begun.

        An epoch that is not staged by then is cancelled (`EpochTimedOut`): it is aborted and runs again at the next
        start. What is not published by then stays staged (`PublishFailed`). It never waits without end.
        """
        self._is_stopping = True
        with self._ending:
            self._stop(timeout_s)
            self._end_well()

    def _stop(self, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        stuck: OncewardError | None = None
        newest = -1
        try:
            newest = self._delivery.finish_epoch(timeout_s)
        except EpochTimedOut as error:
            stuck = error
        deadline = max(min(end, time.monotonic() + _DECISION_S), time.monotonic() + _SHUTDOWN_GRACE_S)
        while self.query.isActive and self._context.decisions.decided() < newest and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            self._stop_query(max(end - time.monotonic(), _SHUTDOWN_GRACE_S))
        except StreamingQueryException as error:
            if not isinstance(self._delivery.error, StopRequested):
                self._close_after(error)
        except EpochTimedOut as error:
            stuck = stuck or error
        self._close(max(end - time.monotonic(), 0.0))
        if stuck is None and isinstance(self._delivery.error, EpochTimedOut):
            stuck = self._delivery.error
        if stuck is not None:
            raise stuck

    def _end_well(self) -> None:
        """Nothing was raised. Of the two threads that may wait for the end, the one that sees all of it goes on."""
        with self._ending:
            if self._last is not None or self._delivery.why_busy() is not None or self.query.isActive:
                return
            now = self._status()
            if now.error is None:
                self._last = now
                self._at_clean_end()

    def _stop_query(self, timeout_s: float) -> None:
        """Spark's own stop waits until `foreachBatch` has returned, without end; here it is cancelled after a while."""
        ended: list[BaseException | None] = []

        def stop() -> None:
            try:
                self.query.stop()
                ended.append(None)
            except BaseException as error:
                ended.append(error)

        stopping = threading.Thread(target=stop, name="onceward-stop", daemon=True)
        stopping.start()
        stopping.join(timeout_s)
        if stopping.is_alive():
            self._delivery.cancel_epoch()
            stopping.join(_SHUTDOWN_GRACE_S)
        if not ended:
            raise EpochTimedOut(
                f"Spark has not stopped the query within {timeout_s:.0f} s: {self._delivery.why_busy() or 'no reason'}",
                hint="end this process; what is decided is published at the next start, what is not is computed again",
            )
        if ended[0] is not None:
            raise ended[0]

    def _close(self, timeout_s: float | None = None) -> None:
        with self._ending:
            if self._closed:
                return
            self._closed = True
            self._delivery.close(timeout_s)
        # The survey once more before success is reported: another driver may have decided something meanwhile.
        if self._context.watermark() < self._context.decisions.decided():
            raise PublishFailed(
                "an epoch was decided while the job was closing",
                epoch=self._context.decisions.decided(),
                hint="start the job again; the epoch is published first",
            )

    def _close_after(self, error: StreamingQueryException) -> None:
        """The query failed: publish what is decided if the target takes it at once, then say why it failed."""
        with self._ending:
            self._close_now(error)

    def _close_now(self, error: StreamingQueryException) -> None:
        self._closed = True
        cause = self._delivery.error or as_fenced(error)
        try:
            self._delivery.close(timeout_s=5.0)
        except Exception as publishing:
            raise (cause or publishing) from error
        if isinstance(cause, StopRequested):
            return
        raise (cause or error) from error
