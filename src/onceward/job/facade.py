"""*Source* to *settle* as users see it: `Job` for a stream of ours, `foreach_batch` for a query of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onceward.api import ApiConfig
from onceward.clock import SystemClock
from onceward.contracts import Guarantee, Hooks, Sink, Workload
from onceward.epoch import PublishLimits, Watchdog
from onceward.errors import ConfigurationError, Fenced
from onceward.identity import checked_name
from onceward.job.checkpoint import open_job_checkpoint
from onceward.job.observers import Observers
from onceward.job.options import (
    OUTPUT_MODES,
    check_api,
    check_checkpointing,
    check_together,
    checked_guarantee,
    chosen_sinks,
    refuse_output_mode,
)
from onceward.job.restarting import run_with_restarts
from onceward.journal import Retention
from onceward.logs import about
from onceward.operators import Topology, checked_names
from onceward.recovery import Opened, Plan, describe
from onceward.restart import NoRestart, RestartStrategy, checked_strategy
from onceward.spark.checkpoint_config import CheckpointConfig
from onceward.spark.current import for_checkpoint
from onceward.spark.defaults import check_settings, most_tasks, query_settings, wait_for_sources
from onceward.spark.delivery import Delivery, DeliveryLimits
from onceward.spark.findings import log_findings
from onceward.spark.operators import check_topology, planned_topology, record_topology
from onceward.spark.options import refuse_async_progress, trigger_arguments
from onceward.spark.progress import engine_reports
from onceward.spark.query_id import is_running_on, wait_for_name
from onceward.spark.removal import remove_checkpoint
from onceward.spark.run import Run
from onceward.spark.run_lock import RunLock, lock_checkpoint
from onceward.spark.schema import check_sinks
from onceward.spark.source import check_pipeline, check_retention
from onceward.storage import local_path

log = logging.getLogger("onceward")
OutputMode = Literal["append", "update", "complete"]
GuaranteeName = Literal["exactly-once", "at-least-once", "at-most-once"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One stream and where it goes. Constructing it checks the options; nothing is opened or written.

    `name` tells this job's receipts from those of others, for good. `checkpoint` is a directory of its own, for Spark
    and for onceward. `pipeline` takes a session and returns the stream; it is called again on every start. All `sinks`
    get every epoch, by one decision. `output_mode` is Spark's: append, update or complete. `trigger` is an interval
    ("10 seconds"), "available-now", or None for as fast as possible. `guarantee` is exactly-once, at-least-once or
    at-most-once; a job whose sinks cannot give it is refused.

    Staging runs ahead of publishing by at most `max_unpublished_epochs`. A target that takes nothing for
    `publish_deadline_s` ends the job, and what is decided is published at the next start. An epoch of up to
    `small_epoch_rows` rows is staged by the driver itself, which is faster. `checkpointing` says how often and how
    patiently epochs are made, and in what state is kept. `keep_published` ("24 hours", or a number of epochs) keeps
    what write-ahead sinks have published, so that `onceward replay` can send it again to a target that was restored.
    `keep_history` says for how many epochs, or how long, `onceward checkpoints` can tell what became of each. `api` (an
    `ApiConfig`) lets programs on this host ask the running job and stop it; None: nobody can. `dashboard` shows the
    running job on a page, beside the API, and prints its address on standard error. `traces` sends every epoch to an
    OpenTelemetry collector, as a trace. `restart` says whether, when and
    how often the job is started again after a failure that a restart mends: by `onceward run` in a new process, by
    `run` in this one, by `start` never. `operators` names the pipeline's stateful operators in the order data flows,
    `sources` its sources: by these names a savepoint gives each what is its own when the pipeline has changed. `hooks`
    are called at each step of an epoch. `options` go to Spark's `writeStream`.
    """

    name: str
    checkpoint: str | os.PathLike[str]
    pipeline: Callable[[SparkSession], DataFrame]
    sinks: Sequence[Sink]
    output_mode: OutputMode = "append"
    trigger: str | None = None
    guarantee: GuaranteeName = "exactly-once"
    max_unpublished_epochs: int = 10
    publish_deadline_s: float = 600.0
    small_epoch_rows: int = 1000
    checkpointing: CheckpointConfig = field(default_factory=CheckpointConfig)
    keep_published: str | int = 0
    keep_history: str | int = 10_000
    api: ApiConfig | None = None
    dashboard: bool = False
    traces: bool = False
    restart: RestartStrategy = field(default_factory=NoRestart)
    operators: Sequence[str] | None = None
    sources: Sequence[str] | None = None
    hooks: Hooks = field(default_factory=Hooks)
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what can be refused without looking anywhere."""
        checked_name("job", self.name)
        check_together(self.sinks, checked_guarantee(self.guarantee))
        local_path(self.checkpoint)
        trigger_arguments(self.trigger)
        check_checkpointing(self.checkpointing)
        self.checkpointing.trigger(self.trigger)
        if self.output_mode not in OUTPUT_MODES:
            raise ConfigurationError(
                f"output_mode {self.output_mode!r} is unknown", hint=f"use one of: {', '.join(OUTPUT_MODES)}"
            )
        if not callable(self.pipeline):
            raise ConfigurationError(
                "pipeline is not a function", hint="give a function that takes a SparkSession and returns a DataFrame"
            )
        Retention.parse(self.keep_history, option="keep_history")
        check_api(self.api)
        if Retention.parse(self.keep_published).keeps_any and self.checkpointing.on_stop == "delete":
            raise ConfigurationError(
                "keep_published keeps rows in the checkpoint, and on_stop='delete' removes it", hint="drop one of them"
            )
        checked_strategy(self.restart)
        checked_names("operators", self.operators)
        checked_names("sources", self.sources)
        if self.max_unpublished_epochs < 1:
            raise ConfigurationError("max_unpublished_epochs must be at least 1", hint="the default is 10")
        self.checkpointing.check_retained(self.max_unpublished_epochs)
        refuse_async_progress(self.options)

    def __repr__(self) -> str:
        """One line, for notebooks and logs."""
        sinks = ", ".join(repr(str(sink.name)) for sink in self.sinks)
        return f"<Job {self.name!r}: {self.output_mode}, {self.guarantee}, to {sinks}; checkpoint {self.checkpoint}>"

    def run(self, spark: SparkSession, *, accept: str | Iterable[str] = ()) -> None:
        """Start and block until the job ends; an interrupt (Ctrl-C) stops it between two epochs.

        After a failure that a restart mends it is started again, as `restart` says, while this process's Spark lives.
        """
        run_with_restarts(self, spark, accept)

    def start(self, spark: SparkSession, *, accept: str | Iterable[str] = ()) -> Run:
        """Check, recover, and start; returns at once."""
        watchdog = Watchdog(SystemClock(), self.publish_deadline_s)
        lock = lock_checkpoint(local_path(self.checkpoint), self.name, watchdog)
        observers: Observers | None = None
        try:
            observers = Observers(
                local_path(self.checkpoint),
                self.keep_history,
                sinks=[sink.name for sink in self.sinks],
                api=self.api,
                dashboard=self.dashboard,
                traces_of=self.name if self.traces else None,
            )
            with about(job=self.name):
                return self._started(spark, accept, watchdog, lock, observers)
        except BaseException:
            if observers is not None:
                observers.close()
            lock.release()
            raise

    def stream(self, spark: SparkSession) -> DataFrame:
        """What the pipeline makes: a stream over sources that can be read again, or a `ConfigurationError`."""
        pipeline = for_checkpoint(local_path(self.checkpoint), self.pipeline)
        return check_pipeline(pipeline(spark), Guarantee(self.guarantee))

    def topology(self, frame: DataFrame) -> Topology | None:
        """What the stream is made of, with the names that this job gives; None where Spark does not tell."""
        names = [str(sink.name) for sink in self.sinks]
        mode = self.output_mode
        return planned_topology(frame, output_mode=mode, operators=self.operators, sources=self.sources, sinks=names)

    def _started(
        self,
        spark: SparkSession,
        accept: str | Iterable[str],
        watchdog: Watchdog,
        lock: RunLock,
        observers: Observers,
    ) -> Run:
        guarantee = Guarantee(self.guarantee)
        check_retention(spark, self.max_unpublished_epochs, self.checkpointing.retained)
        root, frame = local_path(self.checkpoint), self.stream(spark)
        check_settings(frame, root, self.checkpointing)
        topology = self.topology(frame)
        check_topology(topology, root)
        sinks = chosen_sinks(self.sinks, guarantee, watchdog)
        check_sinks(sinks, frame.schema, output_mode=self.output_mode)
        log_findings(sinks, workload_of(self, frame))
        opened = open_job_checkpoint(
            name=self.name,
            checkpoint=root,
            sinks=sinks,
            guarantee=guarantee,
            hooks=self.hooks,
            accept=accept,
            listeners=observers.listeners,
            limits=self._limits.publish,
            on_plan=_log_plan,
        )
        record_topology(topology, root)
        observers.recorder.begin(opened.context.run)
        delivery = Delivery(
            opened,
            self._limits,
            checkpoint=root,
            output_mode=self.output_mode,
            checked=True,
            watchdog=watchdog,
            lock=lock,
            observers=observers,
        )
        query = self._query(spark, frame, delivery)
        observers.recorder.ask(engine_reports(query))
        lock.given_to(delivery, lambda: query.isActive)
        return self._served(query, delivery, opened, watchdog, observers)

    def _query(self, spark: SparkSession, frame: DataFrame, delivery: Delivery) -> StreamingQuery:
        """Spark's query, which calls the delivery for each epoch."""
        root = local_path(self.checkpoint)
        writer = (
            frame.writeStream.queryName(self.name)
            .outputMode(self.output_mode)
            .options(**self.options)
            .option("checkpointLocation", str(root))
            .foreachBatch(delivery)
        )
        if (trigger := self.checkpointing.trigger(self.trigger)) is not None:
            writer = writer.trigger(**trigger_arguments(trigger))  # type: ignore[arg-type]
        wait_for_name(spark, self.name)
        try:
            with query_settings(frame, root, self.checkpointing):
                query = writer.start()
                wait_for_sources(query)
                return query
        except BaseException as error:
            delivery.close(timeout_s=0)
            refuse_output_mode(error, self.output_mode)
            raise

    def _served(
        self, query: StreamingQuery, delivery: Delivery, opened: Opened, watchdog: Watchdog, observers: Observers
    ) -> Run:
        at_end = partial(self._after, opened, watchdog)
        root = local_path(self.checkpoint)
        run = Run(self.name, query, delivery, opened.context, checkpoint=root, at_clean_end=at_end)
        removes = self.checkpointing.on_stop == "delete"
        observers.serve(run, opened.context, self.max_unpublished_epochs, removes_checkpoint=removes)
        return run

    def _after(self, opened: Opened, watchdog: Watchdog) -> None:
        """The run has come to a clean end. Whoever has started another one since keeps the checkpoint."""
        if self.checkpointing.on_stop == "delete":
            root = local_path(self.checkpoint)
            with suppress(Fenced):
                lock = lock_checkpoint(root, self.name, watchdog)
                try:
                    remove_checkpoint(root, opened.context)
                finally:
                    lock.release()

    @property
    def _limits(self) -> DeliveryLimits:
        return DeliveryLimits(
            max_unpublished_epochs=self.max_unpublished_epochs,
            timeout_s=self.checkpointing.timeout_s,
            min_pause_s=self.checkpointing.min_pause_s,
            tolerable_failures=self.checkpointing.tolerable_failures,
            small_epoch_rows=self.small_epoch_rows,
            publish=self.publish_limits,
        )

    @property
    def publish_limits(self) -> PublishLimits:
        """How patient the publisher is, and what it keeps: for a run, and for every command that publishes."""
        return PublishLimits(deadline_s=self.publish_deadline_s, keep_published=Retention.parse(self.keep_published))


def foreach_batch(
    *,
    name: str,
    checkpoint: str | os.PathLike[str],
    sinks: Sequence[Sink],
    output_mode: OutputMode = "append",
    guarantee: GuaranteeName = "exactly-once",
    max_unpublished_epochs: int = 10,
    publish_deadline_s: float = 600.0,
    keep_published: str | int = 0,
    keep_history: str | int = 10_000,
    hooks: Hooks | None = None,
    accept: str | Iterable[str] = (),
) -> Delivery:
    """For a query of your own: recovers at once, then give the result to `writeStream.foreachBatch`.

    `checkpoint` must be the query's `checkpointLocation`, and `output_mode` the query's. Call `close()` on it after the
    query has ended: that publishes the last epochs. Make a new one for every start. `accept` names consequences that
    are accepted for this start: fresh-start, copy, rollback or adopt. `name`, `sinks`, `guarantee`,
    `max_unpublished_epochs`, `publish_deadline_s`, `keep_published`, `keep_history` and `hooks` are as for a `Job`.
    """
    checked_name("job", name)
    wanted, root = checked_guarantee(guarantee), local_path(checkpoint)
    publish = PublishLimits(deadline_s=publish_deadline_s, keep_published=Retention.parse(keep_published))
    limits = DeliveryLimits(max_unpublished_epochs=max_unpublished_epochs, publish=publish)
    watchdog = Watchdog(SystemClock(), publish_deadline_s)
    observers = Observers(root, keep_history, sinks=[sink.name for sink in sinks])
    lock = lock_checkpoint(root, name, watchdog)
    try:
        opened = open_job_checkpoint(
            name=name,
            checkpoint=root,
            sinks=chosen_sinks(sinks, wanted, watchdog),
            guarantee=wanted,
            hooks=hooks or Hooks(),
            accept=accept,
            listeners=observers.listeners,
            limits=limits.publish,
        )
        observers.recorder.begin(opened.context.run)
        delivery = Delivery(
            opened,
            limits,
            checkpoint=root,
            output_mode=output_mode,
            checked=False,
            watchdog=watchdog,
            lock=lock,
            observers=observers,
        )
    except BaseException:
        lock.release()
        raise
    # Where Spark does not tell, it runs until it is closed.
    lock.given_to(delivery, lambda: is_running_on(root) is not False)
    return delivery


def workload_of(job: Job, frame: DataFrame) -> Workload:
    """What the job will ask of its sinks, as far as it can be known before the first epoch."""
    tasks = most_tasks(frame, local_path(job.checkpoint), job.checkpointing)
    return Workload(tasks, job.max_unpublished_epochs)


def _log_plan(plan: Plan) -> None:
    for step in plan.steps:
        epoch = getattr(step, "epoch", None)
        if epoch is None:
            log.info("recovery: %s", describe(step))
        else:
            log.info("recovery: epoch %d: %s", epoch, describe(step), extra={"epoch": epoch})
