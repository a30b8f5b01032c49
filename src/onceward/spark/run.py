"""A started job: wait for it, look at it, stop it between two epochs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from onceward.epoch import Ground, Waiting
from onceward.errors import PublishFailed
from onceward.spark.delivery import Delivery, StopRequested

_LOOK_S = 0.5
_DECISION_S = 30.0


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a run stands: planned by Spark, decided by Spark, settled in every target.

    `in_doubt` counts, for each two-phase sink, the transactions that wait in its target, with the age of the oldest.
    The publisher looks now and then, and more often while a delivery fails.
    """

    name: str
    active: bool
    planned: int
    decided: int
    settled: int
    in_doubt: tuple[Waiting, ...] = ()


class Run:
    """Returned by `Job.start`."""

    def __init__(self, name: str, query: StreamingQuery, delivery: Delivery, ground: Ground) -> None:
        self.name = name
        self.query = query
        self._delivery = delivery
        self._ground = ground
        self._closed = False

    def status(self) -> RunStatus:
        """As the storage shows it now. No target is asked."""
        decisions = self._ground.decisions
        return RunStatus(
            self.name,
            self.query.isActive,
            decisions.planned(),
            decisions.decided(),
            self._ground.watermark(),
            self._delivery.in_doubt(),
        )

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended and everything decided is published; True if it has.

        Raises what ended it: onceward's own error where there is one, else Spark's.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not self.query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                if self._delivery.publisher_error is not None:
                    self.query.stop()
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        except StreamingQueryException as error:
            self._close_after(error)
        self._close()
        return True

    def stop(self, timeout_s: float = 60.0) -> None:
        """Finish the running epoch, publish what is decided, close. Nothing of the next epoch is begun."""
        newest = self._delivery.finish_epoch()
        deadline = time.monotonic() + min(timeout_s, _DECISION_S)
        while self.query.isActive and self._ground.decisions.decided() < newest and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            self.query.stop()
        except StreamingQueryException as error:
            if not isinstance(self._delivery.error, StopRequested):
                self._close_after(error)
        self._close(timeout_s)

    def _close(self, timeout_s: float | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        self._delivery.close(timeout_s)
        # The survey once more before success is reported: another driver may have decided something meanwhile.
        if self._ground.watermark() < self._ground.decisions.decided():
            raise PublishFailed(
                "an epoch was decided while the job was closing",
                epoch=self._ground.decisions.decided(),
                hint="start the job again; the epoch is published first",
            )

    def _close_after(self, error: StreamingQueryException) -> None:
        """The query failed: publish what is decided if the target takes it at once, then say why it failed."""
        self._closed = True
        cause = self._delivery.error
        try:
            self._delivery.close(timeout_s=5.0)
        except Exception as publishing:
            raise (cause or publishing) from error
        if isinstance(cause, StopRequested):
            return
        raise (cause or error) from error
