"""Whoever looks on while a run delivers: its history, its log lines; on request also metrics, the API and traces."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import cloudpickle

from onceward.api.config import ApiConfig
from onceward.clock import SystemClock
from onceward.contracts import AnySink
from onceward.contracts.events import Listener
from onceward.dashboard.mounted import PATH, mounted_page
from onceward.epoch import RunContext
from onceward.history import HistoryLog, Recorder, log_event
from onceward.identity import SinkName
from onceward.journal import Retention
from onceward.savepoints import SavepointTasks
from onceward.spark.run import Run
from onceward.storage import LocalStorage
from onceward.traces import Traces
from onceward.version import __version__

if TYPE_CHECKING:
    from onceward.api.server import ApiServer
    from onceward.metrics import Meter


class Observers:
    """Of one run. Made before it, so that what cannot be had is told before anything moves; closed with it."""

    def __init__(
        self,
        checkpoint: Path,
        keep_history: str | int,
        *,
        sinks: Iterable[SinkName],
        api: ApiConfig | None = None,
        dashboard: bool = False,
        traces_of: str | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        # Before an address is taken, which would stay so if the packages for traces are missing.
        self._traces = None if traces_of is None else Traces(traces_of)
        self._server: ApiServer | None = None
        self._meter: Meter | None = None
        self._entrance = ""
        if api is not None or dashboard:
            from onceward.api.server import ApiServer

            page = mounted_page(checkpoint, token := secrets.token_urlsafe(32), api) if dashboard else None
            self._server = ApiServer(api or ApiConfig(), mounted=page)
            self._entrance = f"{self._server.url}{PATH}/?token={token}" if dashboard else ""
            from onceward.metrics import Meter

            self._meter = Meter(sinks)
        finished = [one.finished for one in (self._meter, self._traces) if one is not None]
        self.recorder = Recorder(
            HistoryLog(LocalStorage(checkpoint / "onceward")),
            SystemClock(),
            keep=Retention.parse(keep_history, option="keep_history"),
            then=tuple(finished),
        )

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Those that are told of every epoch, from the recovery on."""
        return (self.recorder, log_event, *(() if self._meter is None else (self._meter,)))

    def serve(self, run: Run, context: RunContext, max_unpublished: int, *, removes_checkpoint: bool = False) -> None:
        """The run has begun: whoever asks is answered from now on."""
        if self._server is None or self._meter is None:
            return
        from onceward.api.served import Served, look_beside
        from onceward.metrics import StatusGauges, exposition
        from onceward.metrics.gauges import RunLabels

        registry, started_at = self._meter.registry, context.clock.now()
        job = context.job
        labels = RunLabels(job.name, job.generation, context.run, context.guarantee.value, __version__)
        names = [sink.name for sink in context.sinks]
        registry.register(
            StatusGauges(run.status, labels, sinks=names, started_at=started_at, max_unpublished=max_unpublished)
        )
        self._server.serve(
            Served(
                run=run,
                context=context,
                recorder=self.recorder,
                checkpoint=str(self._checkpoint),
                started_at=started_at,
                max_unpublished=max_unpublished,
                metrics=lambda: exposition(registry),
                look=look_beside(context, _copied),
                savepoints=SavepointTasks(self._checkpoint, clock=context.clock, spark=pyspark.__version__),
                removes_checkpoint=removes_checkpoint,
            )
        )

        if self._entrance:
            # Not into the log: whoever has this address may look.
            print(f"the dashboard is at {self._entrance}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """The run has ended. May be called again."""
        with ExitStack() as closing:
            if self._server is not None:
                closing.callback(self._server.close)
            if self._traces is not None:
                closing.callback(self._traces.close)
            closing.callback(self.recorder.close)


def _copied(sink: AnySink) -> AnySink:
    """As an executor would get it."""
    return cloudpickle.loads(cloudpickle.dumps(sink))  # type: ignore[no-any-return,no-untyped-call]
