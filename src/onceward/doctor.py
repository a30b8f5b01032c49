"""`onceward doctor`: everything that a start would trip over, found before it, each with what fixes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from pyspark import __version__ as pyspark_version
from pyspark.sql import DataFrame, SparkSession

from onceward.contracts import AnySink, Finding, Guarantee, Severity
from onceward.errors import OncewardError
from onceward.job import Job, chosen_sinks, inspect_job_checkpoint, is_new, workload_of
from onceward.recovery import describe
from onceward.spark.defaults import check_settings
from onceward.spark.operators import check_topology
from onceward.spark.schema import check_sinks
from onceward.spark.source import check_retention
from onceward.storage import local_path

_LITTLE_DISK = 1 << 30


def examine(job: Job, spark: SparkSession) -> Iterator[Finding]:
    """Look at all of it; nothing is started, and no row is read."""
    yield Finding("Spark", Severity.OK, f"PySpark {pyspark_version}, {spark.sparkContext.master}")
    yield from _disk(job)
    try:
        check_retention(spark, job.max_unpublished_epochs, job.checkpointing.retained)
    except OncewardError as error:
        yield _wrong("Spark's log", error)
    try:
        frame = job.stream(spark)
    except OncewardError as error:
        yield _wrong("pipeline", error)
        return
    except Exception as error:
        yield Finding("pipeline", Severity.ERROR, f"it cannot be built: {type(error).__name__}: {error}")
        return
    try:
        check_settings(frame, local_path(job.checkpoint), job.checkpointing)
    except OncewardError as error:
        yield _wrong("checkpointing", error)
    yield from _operators(job, frame)
    yield Finding("pipeline", Severity.OK, f"a stream of {len(frame.columns)} columns: {', '.join(frame.columns)}")
    chosen: list[AnySink] = []
    for sink in job.sinks:
        about = f"sink {sink.name}"
        try:
            (chosen_sink,) = chosen_sinks([sink], Guarantee(job.guarantee))
            check_sinks((chosen_sink,), frame.schema, output_mode=job.output_mode)
        except OncewardError as error:
            yield _wrong(about, error)
            continue
        except Exception as error:
            yield Finding(about, Severity.ERROR, f"{type(error).__name__}: {error}")
            continue
        chosen.append(chosen_sink)
        yield Finding(about, Severity.OK, f"{chosen_sink.guarantee.value} by {chosen_sink.mechanism}")
        for found in chosen_sink.diagnose(workload_of(job, frame)):
            yield Finding(f"{about}: {found.about}", found.severity, found.detail, found.fix)
    if len(chosen) == len(job.sinks):
        yield from _checkpoint(job, tuple(chosen))


def _operators(job: Job, frame: DataFrame) -> Iterator[Finding]:
    try:
        topology = job.topology(frame)
        check_topology(topology, local_path(job.checkpoint))
    except OncewardError as error:
        yield _wrong("operators", error)
        return
    if topology is not None and topology.operators:
        listed = ", then ".join(str(one) for one in topology.operators)
        yield Finding("operators", Severity.OK, f"{len(topology.operators)} with state: {listed}")


def _disk(job: Job) -> Iterator[Finding]:
    folder = local_path(job.checkpoint)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    severity = Severity.OK if free >= _LITTLE_DISK else Severity.WARNING
    fix = None if severity is Severity.OK else "make room, or move the checkpoint; write-ahead segments need it"
    yield Finding("disk", severity, f"{free / (1 << 30):.1f} GiB free under the checkpoint", fix)


def _checkpoint(job: Job, sinks: tuple[AnySink, ...]) -> Iterator[Finding]:
    try:
        if is_new(job.checkpoint):
            yield Finding("checkpoint", Severity.OK, "new: this will be the job's first start")
            return
        plan = inspect_job_checkpoint(job.checkpoint, sinks, frozenset(), job.name, job.publish_limits)
    except OncewardError as error:
        yield _wrong("checkpoint", error)
        return
    if plan.refusal is not None:
        yield _wrong("checkpoint", plan.refusal)
        return
    steps = "; ".join(describe(step) for step in plan.steps)
    yield Finding("checkpoint", Severity.OK, f"the next start does first: {steps}" if steps else "nothing is pending")


def _wrong(about: str, error: OncewardError) -> Finding:
    return Finding(about, Severity.ERROR, error.message, error.hint)
