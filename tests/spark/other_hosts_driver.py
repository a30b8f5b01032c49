"""The jobs of `test_other_hosts.py`, one after the other in one driver, and what came of each.

`unshared` is a folder where some executors have a disk of their own. The cases `late-…` take the probe out, as when
such an executor comes later: what is left is the look at what was staged.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onceward import Job, OncewardError
from onceward.contracts import Sink
from onceward.sinks import FileSink, SQLiteSink
from onceward.spark import delivery
from onceward.spark.checkpoint import SparkLogs

CONFIG = json.loads(os.environ["ONCEWARD_TEST"])
WORK = Path(CONFIG["work"])
Sinks = Callable[[Path, Path], Sequence[Sink]]


def parquet(shared: Path, sinks: Path) -> Sequence[Sink]:
    """Written by Spark itself."""
    return [FileSink(sinks / "out")]


def lines(shared: Path, sinks: Path) -> Sequence[Sink]:
    """Written by our tasks."""
    return [FileSink(sinks / "out", format="jsonl")]


def table(shared: Path, sinks: Path) -> Sequence[Sink]:
    """By the write-ahead log."""
    return [SQLiteSink(shared / "rows.db", table="t")]


# What is shared, what is not, and whether the probe is there.
CASES: dict[str, tuple[Sinks, str, str, bool]] = {
    "probe-parquet": (parquet, "shared", "unshared", True),
    "probe-log": (table, "unshared", "shared", True),
    "late-parquet": (parquet, "shared", "unshared", False),
    "late-lines": (lines, "shared", "unshared", False),
    "late-log": (table, "unshared", "shared", False),
    "all-shared": (lambda shared, sinks: [*lines(shared, sinks), *table(shared, sinks)], "shared", "shared", True),
    "parquet-shared": (parquet, "shared", "shared", True),
}


def rows_of(spark: SparkSession) -> DataFrame:
    source = WORK / "shared" / "in"
    if not source.exists():
        spark.range(CONFIG["rows"]).repartition(8).write.parquet(str(source))
    return spark.readStream.schema("id long").parquet(str(source)).repartition(8)


def played(spark: SparkSession, name: str) -> dict[str, Any]:
    sinks, checkpoint, targets, probed = CASES[name]
    shared = WORK / "shared" / name
    shared.mkdir()
    job = Job(
        name=name,
        checkpoint=WORK / checkpoint / name / "checkpoint",
        pipeline=rows_of,
        sinks=sinks(shared, WORK / targets / name),
        trigger="available-now",
    )
    real = delivery.probe_folders
    if not probed:
        delivery.probe_folders = lambda spark, context: None
    try:
        job.run(spark)
        error: Exception | None = None
    except OncewardError as failure:
        error = failure
    finally:
        delivery.probe_folders = real
    return {
        "error": type(error).__name__,
        "says": str(error),
        "decided": SparkLogs(WORK / checkpoint / name / "checkpoint").decided(),
    }


def main() -> None:
    spark = SparkSession.builder.appName("other hosts").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    (WORK / "came-of-it.json").write_text(json.dumps({name: played(spark, name) for name in CASES}))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
