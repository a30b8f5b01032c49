"""The façade: a job is a pipeline, its sinks and a guarantee; everything else follows from its checkpoint."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from onceward.clock import SystemClock
from onceward.contracts import (
    AnySink,
    Guarantee,
    Hooks,
    Receipt,
    Severity,
    Sink,
    TemplateChoice,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
    Workload,
    WriteAheadSink,
)
from onceward.epoch import PublishLimits, RunContext, Watchdog, with_watchdog
from onceward.errors import ConfigurationError, GuaranteeUnavailable
from onceward.identity import JobName, checked_name, sink_digest
from onceward.journal import IdentityFile
from onceward.recovery import Accept, Opened, Plan, inspect_checkpoint, look_at, open_checkpoint
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.delivery import Delivery, DeliveryLimits
from onceward.spark.held import Hold, hold
from onceward.spark.leftovers import remove_leftovers
from onceward.spark.options import refuse_async_progress, trigger_arguments
from onceward.spark.query_id import is_running_on, put_back, recorded_query, wait_for_name
from onceward.spark.retention import retention_from
from onceward.spark.run import Run
from onceward.spark.schema import check_sinks
from onceward.spark.source import check_pipeline, check_retention
from onceward.storage import LocalStorage, local_path, make_folders, place_of, sync_folder

OUTPUT_MODES = ("append", "update", "complete")
log = logging.getLogger("onceward")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One stream and where it goes. Constructing it checks the options; nothing is opened or written.

    `pipeline` is called again on every start. `trigger` is an interval ("10 seconds"), "available-now", or None for as
    fast as possible. `options` go to Spark's `writeStream`.
    """

    name: str
    checkpoint: str | os.PathLike[str]
    pipeline: Callable[[SparkSession], DataFrame]
    sinks: Sequence[Sink]
    output_mode: str = "append"
    trigger: str | None = None
    guarantee: str = Guarantee.EXACTLY_ONCE.value
    max_unpublished_epochs: int = 10
    epoch_timeout_s: float | None = None
    publish_deadline_s: float = 600.0
    small_epoch_rows: int = 1000
    keep_published: str | int = 0
    hooks: Hooks = field(default_factory=Hooks)
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what can be refused without looking anywhere."""
        checked_name("job", self.name)
        check_together(self.sinks, checked_guarantee(self.guarantee))
        local_path(self.checkpoint)
        trigger_arguments(self.trigger)
        if self.output_mode not in OUTPUT_MODES:
            raise ConfigurationError(
                f"output_mode {self.output_mode!r} is unknown", hint=f"use one of: {', '.join(OUTPUT_MODES)}"
            )
        if not callable(self.pipeline):
            raise ConfigurationError(
                "pipeline is not a function", hint="give a function that takes a SparkSession and returns a DataFrame"
            )
        retention_from(self.keep_published)
        if self.max_unpublished_epochs < 1:
            raise ConfigurationError("max_unpublished_epochs must be at least 1", hint="the default is 10")
        refuse_async_progress(self.options)

    def run(self, spark: SparkSession, *, accept: str | Iterable[str] = ()) -> None:
        """Start and block until the job ends; an interrupt (Ctrl-C) stops it between two epochs."""
        run = self.start(spark, accept=accept)
        try:
            run.await_termination()
        except KeyboardInterrupt:
            run.stop()

    def start(self, spark: SparkSession, *, accept: str | Iterable[str] = ()) -> Run:
        """Check, recover, and start; returns at once."""
        watchdog = Watchdog(SystemClock(), self.publish_deadline_s)
        held = hold(local_path(self.checkpoint), self.name, watchdog)
        try:
            return self._started(spark, accept, watchdog, held)
        except BaseException:
            held.release()
            raise

    def _started(self, spark: SparkSession, accept: str | Iterable[str], watchdog: Watchdog, held: Hold) -> Run:
        guarantee = Guarantee(self.guarantee)
        check_retention(spark, self.max_unpublished_epochs)
        frame = check_pipeline(self.pipeline(spark), guarantee)
        sinks = chosen_sinks(self.sinks, guarantee, watchdog)
        check_sinks(sinks, frame.schema, output_mode=self.output_mode)
        _warn(sinks, workload_of(self, spark))
        root = local_path(self.checkpoint)
        opened = open_job_checkpoint(
            name=self.name,
            checkpoint=root,
            sinks=sinks,
            guarantee=guarantee,
            hooks=self.hooks,
            accept=accept,
            limits=self._limits.publish,
        )
        delivery = Delivery(
            opened,
            self._limits,
            checkpoint=root,
            output_mode=self.output_mode,
            checked=True,
            watchdog=watchdog,
            hold=held,
        )
        writer = (
            frame.writeStream.queryName(self.name)
            .outputMode(self.output_mode)
            .options(**self.options)
            .option("checkpointLocation", str(root))
            .foreachBatch(delivery)
        )
        if self.trigger is not None:
            writer = writer.trigger(**trigger_arguments(self.trigger))  # type: ignore[arg-type]
        wait_for_name(spark, self.name)
        try:
            query = writer.start()
        except BaseException:
            delivery.close(timeout_s=0)
            raise
        held.given_to(delivery, lambda: query.isActive)
        return Run(self.name, query, delivery, opened.context)

    @property
    def _limits(self) -> DeliveryLimits:
        return DeliveryLimits(
            max_unpublished_epochs=self.max_unpublished_epochs,
            epoch_timeout_s=self.epoch_timeout_s,
            small_epoch_rows=self.small_epoch_rows,
            publish=self.publish_limits,
        )

    @property
    def publish_limits(self) -> PublishLimits:
        """How patient the publisher is, and what it keeps: for a run, and for every command that publishes."""
        return PublishLimits(deadline_s=self.publish_deadline_s, keep_published=retention_from(self.keep_published))


def foreach_batch(
    *,
    name: str,
    checkpoint: str | os.PathLike[str],
    sinks: Sequence[Sink],
    output_mode: str = "append",
    guarantee: str = Guarantee.EXACTLY_ONCE.value,
    max_unpublished_epochs: int = 10,
    publish_deadline_s: float = 600.0,
    keep_published: str | int = 0,
    hooks: Hooks | None = None,
    accept: str | Iterable[str] = (),
) -> Delivery:
    """For a query of your own: recovers at once, then give the result to `writeStream.foreachBatch`.

    `checkpoint` must be the query's `checkpointLocation`. Call `close()` on it after the query has ended: that
    publishes the last epochs. Make a new one for every start.
    """
    checked_name("job", name)
    wanted, root = checked_guarantee(guarantee), local_path(checkpoint)
    publish = PublishLimits(deadline_s=publish_deadline_s, keep_published=retention_from(keep_published))
    limits = DeliveryLimits(max_unpublished_epochs=max_unpublished_epochs, publish=publish)
    watchdog = Watchdog(SystemClock(), publish_deadline_s)
    held = hold(root, name, watchdog)
    try:
        opened = open_job_checkpoint(
            name=name,
            checkpoint=root,
            sinks=chosen_sinks(sinks, wanted, watchdog),
            guarantee=wanted,
            hooks=hooks or Hooks(),
            accept=accept,
            limits=limits.publish,
        )
        delivery = Delivery(
            opened, limits, checkpoint=root, output_mode=output_mode, checked=False, watchdog=watchdog, hold=held
        )
    except BaseException:
        held.release()
        raise
    # Where Spark does not tell, it runs until it is closed.
    held.given_to(delivery, lambda: is_running_on(root) is not False)
    return delivery


def workload_of(job: Job, spark: SparkSession) -> Workload:
    """What the job will ask of its sinks, as far as it can be known before the first epoch."""
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return Workload(max(partitions, spark.sparkContext.defaultParallelism), job.max_unpublished_epochs)


def _warn(sinks: Sequence[AnySink], workload: Workload) -> None:
    for sink in sinks:
        for finding in sink.diagnose(workload):
            if finding.severity is not Severity.OK:
                log.warning("sink %r: %s: %s (%s)", sink.name, finding.about, finding.detail, finding.fix)


def open_job_checkpoint(
    *,
    name: str,
    checkpoint: str | os.PathLike[str],
    sinks: tuple[AnySink, ...],
    guarantee: Guarantee,
    hooks: Hooks,
    accept: str | Iterable[str],
    limits: PublishLimits,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Opened:
    """Open the onceward folder of a Spark checkpoint directory and recover."""
    root = local_path(checkpoint)
    folder = root / "onceward"
    query = recorded_query(root)
    opened = open_checkpoint(
        name=JobName(name),
        sinks=sinks,
        guarantee=guarantee,
        storage=LocalStorage(folder),
        decisions=SparkLogs(root),
        directory_id=_directory_id(folder),
        clock=SystemClock(),
        query=query,
        hooks=hooks,
        accepted=accepted_from(accept),
        limits=limits,
        on_plan=on_plan,
    )
    for removed in remove_leftovers(root):
        log.info("removed %s: a driver died, or lost its power, while Spark began", removed)
    if put_back(root, opened.record.query):
        log.warning("Spark's file metadata was gone; it is written again, with the id that the query had")
    return opened


def inspect_job_checkpoint(
    checkpoint: str | os.PathLike[str],
    sinks: tuple[AnySink, ...],
    accepted: frozenset[Accept],
    name: str | None = None,
) -> Plan:
    """What the next start would do first. Without sinks the receipts in the targets are not looked at."""
    root = local_path(checkpoint)
    return inspect_checkpoint(
        sinks=sinks,
        storage=LocalStorage(root / "onceward"),
        decisions=SparkLogs(root),
        directory_id=_directory_id(root / "onceward") if root.is_dir() else "",
        clock=SystemClock(),
        accepted=accepted,
        name=JobName(name) if name is not None else None,
    )


class Parts(TypedDict):
    """What a job's checkpoint and targets are looked at through."""

    sinks: tuple[AnySink, ...]
    storage: LocalStorage
    decisions: SparkLogs
    directory_id: str
    clock: SystemClock


def job_parts(job: Job) -> Parts:
    """Of this job, as its options say. Writes nothing."""
    root = local_path(job.checkpoint)
    return Parts(
        sinks=chosen_sinks(job.sinks, Guarantee(job.guarantee), Watchdog(SystemClock(), job.publish_deadline_s)),
        storage=LocalStorage(root / "onceward"),
        decisions=SparkLogs(root),
        directory_id=_directory_id(root / "onceward") if root.is_dir() else "",
        clock=SystemClock(),
    )


def job_context(job: Job, *, past_damage: bool = False) -> RunContext:
    """A job's checkpoint and targets as they stand, for looking and for work by hand. Writes nothing."""
    context, record = look_at(**job_parts(job), past_damage=past_damage)
    if record.job != job.name:
        raise ConfigurationError(
            f"this checkpoint belongs to the job {record.job!r}, not to {job.name!r}",
            hint="give each job its own checkpoint directory, or keep the job's name",
        )
    return context


def job_receipts(job: Job, checkpoint: str | os.PathLike[str]) -> tuple[Receipt, ...]:
    """What the targets of a job prove of this checkpoint."""
    record = IdentityFile(LocalStorage(local_path(checkpoint) / "onceward")).read()
    sinks = chosen_sinks(job.sinks, Guarantee(job.guarantee))
    return tuple(receipt for sink in sinks for receipt in sink.receipts(record.identity)) if record else ()


def _directory_id(folder: Path) -> str:
    """A name for the directory itself, by which a copy is noticed."""
    try:
        make_folders(folder)
        sync_folder(folder.parent)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
        return place_of(folder)
    except OSError as error:
        raise ConfigurationError(
            f"the checkpoint directory {folder.parent} cannot be written: {error.strerror}",
            hint="choose a directory that this user may create and write",
        ) from error


def checked_guarantee(text: str) -> Guarantee:
    """The guarantee of that name."""
    try:
        return Guarantee(text)
    except ValueError:
        known = ", ".join(g.value for g in Guarantee)
        raise ConfigurationError(f"guarantee {text!r} is unknown", hint=f"use one of: {known}") from None


def chosen_sinks(sinks: Sequence[Sink], guarantee: Guarantee, watchdog: Watchdog | None = None) -> tuple[AnySink, ...]:
    """The sinks to work with in this start: those that leave their template open have asked their target.

    Whatever is asked of them on the driver is bounded by the watchdog.
    """
    check_together(sinks, guarantee)
    dog = watchdog or Watchdog(SystemClock(), PublishLimits().deadline_s)
    chosen = (with_watchdog(sink, dog).choose() if isinstance(sink, TemplateChoice) else sink for sink in sinks)
    return tuple(with_watchdog(sink, dog) for sink in chosen)  # type: ignore[misc]


def check_together(sinks: Sequence[Sink], guarantee: Guarantee) -> None:
    """Refuse sinks that cannot serve one job together. Asks no target."""
    if isinstance(sinks, Sink):
        raise ConfigurationError("sinks is one sink, not a list", hint=f"say sinks=[{type(sinks).__name__}(...)]")
    if not sinks:
        raise ConfigurationError("the job has no sinks", hint="give at least one, for example FileSink('out')")
    for sink in sinks:
        if not isinstance(sink, (TwoPhaseCommitSink, WriteAheadSink, TransactionalWriteAheadSink, TemplateChoice)):
            raise ConfigurationError(
                f"{type(sink).__name__} is not a sink",
                hint="derive it from TwoPhaseCommitSink, WriteAheadSink or TransactionalWriteAheadSink",
            )
        if not sink.guarantee.covers(guarantee):
            raise GuaranteeUnavailable(
                f"sink {sink.name!r} gives {sink.guarantee.value} at best ({sink.mechanism}), the job asks for "
                f"{guarantee.value}",
                hint="use a sink with receipts or transactions, or say guarantee='at-least-once' for this job",
            )
        _refuse_unpicklable(sink)
    names = [sink.name for sink in sinks]
    if len({sink_digest(name) for name in names}) != len(names):
        raise ConfigurationError(
            f"two sinks share a name: {sorted(names)}", hint="tell them apart with name='...'; keep the names for good"
        )


def _refuse_unpicklable(sink: Sink) -> None:
    try:
        cloudpickle.loads(cloudpickle.dumps(sink))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigurationError(
            f"sink {sink.name!r} cannot be sent to the executors: {error}",
            hint="keep only settings in the sink; open connections in begin_transaction, commit or send_values",
        ) from error


def accepted_from(accept: str | Iterable[str]) -> frozenset[Accept]:
    """The named consequences."""
    wanted = [accept] if isinstance(accept, str) else list(accept)
    try:
        return frozenset(Accept(text) for text in wanted)
    except ValueError as error:
        known = ", ".join(a.value for a in Accept)
        raise ConfigurationError(f"cannot accept: {error}", hint=f"use one of: {known}") from None
