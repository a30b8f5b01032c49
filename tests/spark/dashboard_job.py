"""What the dashboard is watched with: files in, PostgreSQL and Parquet out. It kills itself when it is told to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from onceward import Hooks, Job
from onceward.sinks import FileSink, PostgresSink

WORK = Path(os.environ["DASHBOARD_WORK"])


def rows(spark: SparkSession) -> DataFrame:
    files = spark.readStream.schema("id long, app string").option("maxFilesPerTrigger", 1).json(str(WORK / "input"))
    return files.dropDuplicates(["id"])


def die_if_told(epoch: int) -> None:
    """Decided and not published: what the next start, or a person, publishes."""
    if (WORK / "die").exists():
        os.killpg(os.getpgid(0), signal.SIGKILL)


job = Job(
    name="watched",
    checkpoint=WORK / "checkpoint",
    pipeline=rows,
    sinks=[
        PostgresSink(os.environ["DASHBOARD_POSTGRES"], table="watched", name="<img src=x onerror=alert(1)>"),
        FileSink(WORK / "out", format="parquet", name="files"),
    ],
    hooks=Hooks(on_decision=die_if_told),
    operators=["first <b> of an id"],
    small_epoch_rows=0,
)
