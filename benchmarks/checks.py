"""What safety at the edges costs: the same job with and without the syncs, and the looks at what is staged.

Without them is what the code was before: nothing of Spark's is forced to the disk, nothing is looked at from the driver
before the decision, the executors' folders are not probed, and Spark does not count the rows. Not a mode of the
product: the calls are replaced here.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import ROW_SCHEMA, Ratio, narrow_rows, rounds, session, timed
from benchmarks.small import between_epochs, ten_rows_a_file
from onceward import Job, foreach_batch
from onceward.contracts import AnySink
from onceward.sinks import FileSink, SQLiteSink

ROWS = 4_000_000
REPEATS = 7


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Epochs of ten rows, then one of four million, into files that Spark writes and through the write-ahead log."""
    spark = session()
    yield from _small(spark, folder, console)
    yield from _large(spark, folder, console)


def _small(spark: SparkSession, folder: Path, console: Console) -> Iterator[Ratio]:
    source = ten_rows_a_file(folder / "small")
    numbers = itertools.count()

    def deliver() -> float:
        work = folder / f"small-{next(numbers)}"
        delivery = foreach_batch(name="bench", checkpoint=work / "checkpoint", sinks=[_table(work)])
        seconds = between_epochs(spark, source, delivery, work / "checkpoint")
        delivery.close()
        return seconds

    seconds = rounds({"with checks": deliver, "without": lambda: _unchecked(deliver)}, repeats=REPEATS, console=console)
    yield _cost("epoch of 10 rows, SQLiteSink, with syncs and checks / without", seconds, goal="<= 1.5")


def _large(spark: SparkSession, folder: Path, console: Console) -> Iterator[Ratio]:
    source = narrow_rows(folder / "large", rows=ROWS, files=8)
    numbers = itertools.count()

    def delivering(sink_in: Callable[[Path], AnySink]) -> Callable[[], float]:
        def deliver() -> float:
            work = folder / f"large-{next(numbers)}"
            job = Job(
                name="bench",
                checkpoint=work / "checkpoint",
                pipeline=lambda spark: spark.readStream.schema(ROW_SCHEMA).parquet(str(source)),
                sinks=[sink_in(work)],
                trigger="available-now",
            )
            return timed(lambda: job.run(spark))

        return deliver

    for name, sink_in in (("FileSink", _files), ("SQLiteSink", _table)):
        deliver = delivering(sink_in)
        seconds = rounds(
            {"with checks": deliver, "without": lambda deliver=deliver: _unchecked(deliver)},
            repeats=REPEATS,
            console=console,
        )
        yield _cost(f"epoch of 4 M rows, {name}, with syncs and checks / without", seconds, goal="<= 1.03")


def _files(work: Path) -> AnySink:
    return FileSink(work / "out", format="parquet")


def _table(work: Path) -> AnySink:
    work.mkdir(parents=True, exist_ok=True)
    return SQLiteSink(work / "out.db", table="rows")


def _cost(what: str, seconds: dict[str, list[float]], *, goal: str) -> Ratio:
    """The median over the rounds: what is looked for is smaller than what one minute differs from the next by."""
    both = list(zip(seconds["with checks"], seconds["without"], strict=True))
    ours, peer = (f"{statistics.median(values) * 1000:.0f} ms" for values in zip(*both, strict=True))
    return Ratio(what, ours, peer, statistics.median(with_checks / without for with_checks, without in both), goal)


class _Uncounted:
    """In the place of `Observed`: a batch whose rows nobody counts."""

    def __init__(self, batch: DataFrame) -> None:
        self.frame = batch

    def rows(self) -> int | None:
        return None


def _unchecked(deliver: Callable[[], float]) -> float:
    def nothing(*_: object, **__: object) -> None:
        return None

    with ExitStack() as stack:
        for what in (
            "onceward.spark.checkpoint.SparkLogs.sync_barrier",
            "onceward.spark.checkpoint.SparkLogs.sync_decision",
            "onceward.epoch.coordinator.refuse_missing",
            "onceward.spark.staging._compare",
            "onceward.spark.delivery.probe_folders",
        ):
            stack.enter_context(patch(what, nothing))
        stack.enter_context(patch("onceward.spark.staging.Observed", _Uncounted))
        return deliver()
