"""FileSink, exactly-once, against Spark's own Parquet file sink, as it comes and tuned: 10 million narrow rows in one
epoch, compressed by snappy everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import ROW_SCHEMA, Ratio, interleaved, narrow_rows, rates, session, share_of, timed
from onceward import Job
from onceward.sinks import FileSink

ROWS = share_of(10_000_000)
OURS = "FileSink"
DEFAULT = "Spark's Parquet sink, default"
TUNED = "Spark's Parquet sink, tuned (FileSystemBasedCheckpointFileManager)"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER_OF_FILE_SYSTEMS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default forks processes for each entry of its logs on a local disk; this one does not. What else a user can
set does not help one epoch of few columns: there are as many tasks as cores, and each writes one file."""


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Time from the start of the query until every row is visible."""
    medians = interleaved(contenders(folder, session()), repeats=5, console=console)
    for peer, goal in ((DEFAULT, ">= 0.9"), (TUNED, ">= 0.9")):
        yield rates(f"{OURS} / {peer}, {ROWS:,} rows", rows=ROWS, ours=medians[OURS], peer=medians[peer], goal=goal)


def contenders(folder: Path, spark: SparkSession) -> dict[str, Callable[[], float]]:
    """Ours, and Spark's own sink in both ways."""
    source = source_in(folder)
    numbers = itertools.count()

    def stream(_: object = None) -> DataFrame:
        return spark.readStream.schema(ROW_SCHEMA).parquet(str(source))

    def spark_sink() -> float:
        work = folder / f"spark-{next(numbers)}"
        writer = stream().writeStream.format("parquet").option("checkpointLocation", str(work / "checkpoint"))
        writer = writer.option("compression", "snappy").trigger(availableNow=True)
        seconds = timed(lambda: writer.start(str(work / "out")).awaitTermination())
        check(work / "out")
        return seconds

    def tuned() -> float:
        spark.conf.set(MANAGER, MANAGER_OF_FILE_SYSTEMS)
        try:
            return spark_sink()
        finally:
            spark.conf.unset(MANAGER)

    def file_sink() -> float:
        work = folder / f"onceward-{next(numbers)}"
        sinks = [FileSink(work / "out", format="parquet", compression="snappy")]
        job = Job(name="bench", checkpoint=work / "checkpoint", pipeline=stream, sinks=sinks, trigger="available-now")
        seconds = timed(lambda: job.run(spark))
        check(work / "out")
        return seconds

    return {OURS: file_sink, DEFAULT: spark_sink, TUNED: tuned}


def source_in(folder: Path) -> Path:
    """The rows, in eight files."""
    return narrow_rows(folder / "rows", rows=ROWS, files=8)


def check(out: Path) -> None:
    """Speed counts only if all rows are there. The files go afterwards, to spare the disk."""
    files = [str(path) for path in out.iterdir() if path.is_file() and not path.name.startswith((".", "_"))]
    rows = ds.dataset(files, format="parquet").count_rows()
    if rows != ROWS:
        raise AssertionError(f"{out} has {rows} rows, not {ROWS}")
    for file in files:
        Path(file).unlink()
