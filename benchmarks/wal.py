"""What the write-ahead log costs: a pass of 5 million rows through Python, with and without a segment written."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from benchmarks.measure import ROW_SCHEMA, Ratio, interleaved, narrow_rows, processor_seconds, session
from onceward.epoch import EpochAssignment
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId
from onceward.sinks import SQLiteSink
from onceward.spark.batches import BatchSize
from onceward.spark.staging import stage_on_executors
from onceward.storage import LocalStorage

ROWS = 5_000_000
# The JVM compiles what it runs often: its processor time halves over the first three passes.
WARM_UP = 3


def count_only(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The bare pass."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Staging for one write-ahead sink, as an epoch does it, against counting the same rows."""
    spark = session()
    source = narrow_rows(folder / "rows", rows=ROWS, files=8)
    numbers = itertools.count()
    # It sets the size of batches for the whole session, so both contenders get the same ones.
    size = BatchSize()

    def rows():
        return spark.read.schema(ROW_SCHEMA).parquet(str(source))

    wall: dict[str, list[float]] = {"bare pass": [], "with segments": []}

    def measured(name: str, work: Callable[[], object]) -> float:
        started = time.perf_counter()
        seconds = processor_seconds(work)
        wall[name].append(time.perf_counter() - started)
        return seconds

    def bare() -> float:
        return measured("bare pass", lambda: rows().mapInArrow(count_only, "rows long").collect())

    def staged() -> float:
        order = EpochAssignment(
            job=JobIdentity(JobName("bench"), Generation("aaaaaaaa")),
            epoch=next(numbers),
            takeover=0,
            run=RunId("aaaaaa"),
            timestamp=datetime.now(UTC),
            fingerprint=Fingerprint("a" * 16),
            sinks=(SQLiteSink(folder / "unused.db", table="rows"),),
            storage=LocalStorage(folder / "storage"),
        )
        seconds = measured("with segments", lambda: stage_on_executors(rows(), order, size))
        order.storage.delete("wal")
        return seconds

    medians = interleaved({"with segments": staged, "bare pass": bare}, repeats=16, console=console, warm_up=WARM_UP)
    ours, peer = medians["with segments"], medians["bare pass"]
    by_the_clock = ", ".join(f"{name} {statistics.median(times[WARM_UP:]):.2f} s" for name, times in wall.items())
    console.print(f"  by the clock: {by_the_clock}", style="dim")
    yield Ratio(
        "write-ahead staging / bare pass, 5 M rows, processor time",
        f"{ours:.2f} s",
        f"{peer:.2f} s",
        ours / peer,
        "<= 1.15",
    )
