"""What the history of epochs costs a job of many short ones, and how long it takes to look at 10,000 of them."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.measure import Ratio, rounds, session, timed
from benchmarks.small import ten_rows_a_file
from onceward import Job
from onceward.history import HistoryLog
from onceward.sinks import SQLiteSink
from onceward.storage import LocalStorage

REPEATS = 7
EPOCHS = 10_000
_TOGETHER = 500


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Jobs that keep a history and jobs that keep none, in turns; then the commands."""
    spark = session()
    source = ten_rows_a_file(folder / "source")
    numbers = itertools.count()

    def deliver(keep: int) -> float:
        work = folder / f"work-{next(numbers)}"
        work.mkdir(parents=True)
        return timed(lambda: _job(work, source, keep).run(spark))

    seconds = rounds({"with": lambda: deliver(EPOCHS), "without": lambda: deliver(0)}, repeats=REPEATS, console=console)
    both = list(zip(seconds["with"], seconds["without"], strict=True))
    ours, peer = (f"{statistics.median(values):.2f} s" for values in zip(*both, strict=True))
    cost = statistics.median(kept / none for kept, none in both)
    yield Ratio("epochs of 10 rows, with history / without", ours, peer, cost, "<= 1.02")
    yield from _looks(spark, folder / "looked-at", source, console)


def _job(work: Path, source: Path, keep: int) -> Job:
    def rows(spark: SparkSession):
        return spark.readStream.schema("id long, app string").option("maxFilesPerTrigger", 1).json(str(source))

    return Job(
        name="bench",
        checkpoint=work / "checkpoint",
        pipeline=rows,
        sinks=[SQLiteSink(work / "out.db", table="rows")],
        trigger="available-now",
        keep_history=keep,
    )


def _looks(spark: SparkSession, work: Path, source: Path, console: Console) -> Iterator[Ratio]:
    work.mkdir(parents=True)
    _job(work, source, EPOCHS).run(spark)
    history = HistoryLog(LocalStorage(work / "checkpoint" / "onceward"))
    like = history.read()[-1]
    like = replace(like, slots=like.slots * 8, slot_count=8)
    for first in range(like.epoch + 1, like.epoch + 1 + EPOCHS, _TOGETHER):
        history.write([replace(like, epoch=epoch) for epoch in range(first, first + _TOGETHER)])
    for command in (["checkpoints", "list"], ["status"], ["checkpoints", "verify", "--quick"]):
        arguments = [sys.executable, "-m", "onceward", *command, str(work / "checkpoint")]
        look = lambda arguments=arguments: timed(  # noqa: E731
            lambda: subprocess.run(arguments, check=True, capture_output=True)
        )
        seconds = rounds({" ".join(command): look}, repeats=REPEATS, console=console)
        took = statistics.median(next(iter(seconds.values())))
        yield Ratio(f"onceward {' '.join(command)}, 10,000 epochs", f"{took:.2f} s", "1 s", took, "<= 1")
