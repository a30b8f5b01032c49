"""FileSink, exactly-once, against Spark's own Parquet file sink: 10 million narrow rows in one epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
from rich.console import Console

from benchmarks.measure import ROW_SCHEMA, Ratio, interleaved, narrow_rows, session, timed
from onceward import Job
from onceward.sinks import FileSink

ROWS = 10_000_000


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Time from the start of the query until every row is visible."""
    spark = session()
    source = narrow_rows(folder / "rows", rows=ROWS, files=8)
    numbers = itertools.count()

    def stream():
        return spark.readStream.schema(ROW_SCHEMA).parquet(str(source))

    def spark_sink() -> float:
        work = folder / f"spark-{next(numbers)}"

        def deliver() -> None:
            writer = stream().writeStream.format("parquet").option("checkpointLocation", str(work / "checkpoint"))
            writer.trigger(availableNow=True).start(str(work / "out")).awaitTermination()

        seconds = timed(deliver)
        _check(work / "out")
        return seconds

    def file_sink() -> float:
        work = folder / f"onceward-{next(numbers)}"
        job = Job(
            name="bench",
            checkpoint=work / "checkpoint",
            pipeline=lambda _: stream(),
            sinks=[FileSink(work / "out", format="parquet")],
            trigger="available-now",
        )
        seconds = timed(lambda: job.run(spark))
        _check(work / "out")
        return seconds

    medians = interleaved({"FileSink": file_sink, "Spark's file sink": spark_sink}, repeats=5, console=console)
    ours, peer = ROWS / medians["FileSink"], ROWS / medians["Spark's file sink"]
    yield Ratio(
        "FileSink / Spark's Parquet sink, 10 M rows",
        f"{ours:,.0f} rows/s",
        f"{peer:,.0f} rows/s",
        ours / peer,
        ">= 0.9",
    )


def _check(out: Path) -> None:
    """Speed counts only if all rows are there. The files go afterwards, to spare the disk."""
    files = [str(path) for path in out.glob("*.parquet")]
    rows = ds.dataset(files, format="parquet").count_rows()
    if rows != ROWS:
        raise AssertionError(f"{out} has {rows} rows, not {ROWS}")
    for file in files:
        Path(file).unlink()
