"""`onceward doctor`: everything that a start would trip over, found before it, each with what mends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from pyspark import __version__ as pyspark_version
from pyspark.sql import SparkSession

from onceward.contracts import AnySink, Finding, Grade, Guarantee
from onceward.errors import ConfigurationError, OncewardError
from onceward.job import Job, chosen_sinks, inspect_job_checkpoint, needs_of
from onceward.recovery import describe
from onceward.spark.schema import check_sinks
from onceward.spark.source import check_pipeline, check_retention
from onceward.storage import local_path

_LITTLE_DISK = 1 << 30


def examine(job: Job, spark: SparkSession) -> Iterator[Finding]:
    """Look at all of it; nothing is started, and no row is read."""
    yield Finding("Spark", Grade.FINE, f"PySpark {pyspark_version}, {spark.sparkContext.master}")
    yield from _disk(job)
    try:
        check_retention(spark, job.max_unpublished_epochs)
    except OncewardError as error:
        yield _wrong("Spark's log", error)
    try:
        frame = check_pipeline(job.pipeline(spark), Guarantee(job.guarantee))
    except OncewardError as error:
        yield _wrong("pipeline", error)
        return
    except Exception as error:
        yield Finding("pipeline", Grade.WRONG, f"it cannot be built: {type(error).__name__}: {error}")
        return
    yield Finding("pipeline", Grade.FINE, f"a stream of {len(frame.columns)} columns: {', '.join(frame.columns)}")
    chosen: list[AnySink] = []
    for sink in job.sinks:
        about = f"sink {sink.name}"
        try:
            (way,) = chosen_sinks([sink], Guarantee(job.guarantee))
            check_sinks((way,), frame.schema, output_mode=job.output_mode)
        except OncewardError as error:
            yield _wrong(about, error)
            continue
        except Exception as error:
            yield Finding(about, Grade.WRONG, f"{type(error).__name__}: {error}")
            continue
        chosen.append(way)
        yield Finding(about, Grade.FINE, f"{way.guarantee.value} by {way.means}")
        for found in way.cautions(needs_of(job, spark)):
            yield Finding(f"{about}: {found.about}", found.grade, found.says, found.mend)
    if len(chosen) == len(job.sinks):
        yield from _checkpoint(job, tuple(chosen))


def _disk(job: Job) -> Iterator[Finding]:
    folder = local_path(job.checkpoint)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    grade = Grade.FINE if free >= _LITTLE_DISK else Grade.WARNING
    mend = None if grade is Grade.FINE else "make room, or move the checkpoint; write-ahead segments need it"
    yield Finding("disk", grade, f"{free / (1 << 30):.1f} GiB free under the checkpoint", mend)


def _checkpoint(job: Job, sinks: tuple[AnySink, ...]) -> Iterator[Finding]:
    try:
        plan = inspect_job_checkpoint(job.checkpoint, sinks, frozenset())
    except ConfigurationError:
        yield Finding("checkpoint", Grade.FINE, "new: this will be the job's first start")
        return
    except OncewardError as error:
        yield _wrong("checkpoint", error)
        return
    if plan.refusal is not None:
        yield _wrong("checkpoint", plan.refusal)
        return
    steps = "; ".join(describe(step) for step in plan.steps)
    yield Finding("checkpoint", Grade.FINE, f"the next start does first: {steps}" if steps else "nothing is pending")


def _wrong(about: str, error: OncewardError) -> Finding:
    return Finding(about, Grade.WRONG, error.message, error.hint)
