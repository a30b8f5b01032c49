"""A job's checkpoint and targets as they stand, for commands that look and for work by hand. Writes nothing."""

from __future__ import annotations

import os
from typing import TypedDict

from onceward.clock import SystemClock
from onceward.contracts import (
    AnySink,
    Guarantee,
    Receipt,
)
from onceward.epoch import RunContext, Watchdog
from onceward.errors import ConfigurationError
from onceward.identity import JobName
from onceward.job.checkpoint import directory_id, existing_directory_id
from onceward.job.facade import Job
from onceward.job.options import chosen_sinks
from onceward.journal import IdentityFile
from onceward.recovery import look_at
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage, local_path


class Parts(TypedDict):
    """What a job's checkpoint and targets are looked at through."""

    sinks: tuple[AnySink, ...]
    storage: LocalStorage
    decisions: SparkLogs
    directory_id: str
    clock: SystemClock


def job_parts(job: Job, *, makes_folder: bool = False) -> Parts:
    """Of this job, as its options say. Writes nothing, but for who is about to write an identity into the folder."""
    root = local_path(job.checkpoint)
    if makes_folder and not root.is_dir():
        raise ConfigurationError(
            f"there is no directory {root}",
            hint="see that it is mounted, and that the job's `checkpoint` is spelt right",
        )
    id_of = directory_id if makes_folder else existing_directory_id
    return Parts(
        sinks=chosen_sinks(job.sinks, Guarantee(job.guarantee), Watchdog(SystemClock(), job.publish_deadline_s)),
        storage=LocalStorage(root / "onceward"),
        decisions=SparkLogs(root),
        directory_id=id_of(root / "onceward"),
        clock=SystemClock(),
    )


def job_context(job: Job, *, past_damage: bool = False) -> RunContext:
    """A job's checkpoint and targets as they stand, for looking and for work by hand. Writes nothing."""
    return look_at(**job_parts(job), name=JobName(job.name), past_damage=past_damage)[0]


def job_receipts(job: Job, checkpoint: str | os.PathLike[str]) -> tuple[Receipt, ...]:
    """What the targets of a job prove of this checkpoint."""
    record = IdentityFile(LocalStorage(local_path(checkpoint) / "onceward")).read()
    sinks = chosen_sinks(job.sinks, Guarantee(job.guarantee))
    return tuple(receipt for sink in sinks for receipt in sink.receipts(record.identity)) if record else ()
