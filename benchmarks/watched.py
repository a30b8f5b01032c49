"""What it costs a job of short epochs to be watched: the dashboard inside its driver, asked for what the page asks for.

The page itself runs elsewhere in life, so a small program stands for it: it holds the stream of events and asks for the
job and its timeline whenever that says that something is new. The clock is too rough for a hundredth on a shared
machine; the processor time of the driver tells it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import NO_GOAL, Ratio, processor_seconds, session, timed
from benchmarks.small import ten_rows_a_file
from onceward import Job
from onceward.sinks import SQLiteSink

REPEATS = 4
EPOCHS = 60
"""Some seconds, so that whoever watches does so for most of them."""


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """The same job watched and alone, in turns."""
    spark, source, numbers = session(), ten_rows_a_file(folder / "source", EPOCHS), itertools.count()

    def deliver(is_watched: bool) -> tuple[float, float]:
        """Seconds by the clock, and of the driver's Python."""
        work = folder / f"work-{next(numbers)}"
        work.mkdir(parents=True)
        before = time.process_time()
        with _watching() if is_watched else contextlib.nullcontext():
            clock = timed(lambda: _job(work, source).run(spark))
        return clock, time.process_time() - before

    deliver(True)
    whole = processor_seconds(lambda: deliver(False))
    pairs = [(deliver(True), deliver(False)) for _ in range(REPEATS)]
    for name, place in (("clock", 0), ("Python", 1)):
        told = ", ".join(f"{watched[place]:.2f}/{alone[place]:.2f}" for watched, alone in pairs)
        console.print(f"  {name}, watched/alone: {told} s", style="dim")
    clock = statistics.median(watched[0] / alone[0] for watched, alone in pairs)
    ours, peer = (f"{statistics.median(pair[n][0] for pair in pairs):.2f} s" for n in (0, 1))
    yield Ratio("epochs of 10 rows, watched in a browser / alone, by the clock", ours, peer, clock, NO_GOAL)
    more = statistics.median(watched[1] - alone[1] for watched, alone in pairs)
    cost = f"{whole + more:.2f} s"
    yield Ratio("the same, processor time of the driver", cost, f"{whole:.2f} s", 1 + more / whole, "<= 1.01")


def _job(work: Path, source: Path) -> Job:
    def rows(spark: SparkSession) -> DataFrame:
        return spark.readStream.schema("id long, app string").option("maxFilesPerTrigger", 1).json(str(source))

    sinks = [SQLiteSink(work / "out.db", table="rows")]
    return Job(
        name="bench",
        checkpoint=work / "checkpoint",
        pipeline=rows,
        sinks=sinks,
        trigger="available-now",
        dashboard=True,
    )


class _Told(io.StringIO):
    """What the driver prints. Once it is the address, someone begins to watch."""

    watcher: subprocess.Popen[bytes] | None = None

    def write(self, text: str) -> int:
        if found := re.search(r"http://\S+", text):
            self.watcher = subprocess.Popen([sys.executable, "-m", "benchmarks.watcher", found[0]])
        return len(text)


@contextlib.contextmanager
def _watching() -> Iterator[None]:
    with contextlib.redirect_stderr(_Told()) as told:
        try:
            yield
        finally:
            if told.watcher is not None:
                told.watcher.kill()
                told.watcher.wait()
