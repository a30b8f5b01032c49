"""What the look at a pipeline's operators adds to the start of a job, in a Spark that has started some before."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from benchmarks.measure import NO_GOAL, Ratio, rounds, session, timed
from onceward import Job
from onceward.operators import read_topology
from onceward.sinks import FileSink
from onceward.spark.operators import check_topology, record_topology

REPEATS = 15
GOAL_S = 0.5
NAMES = ["left", "right", "join", "counts"]


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """The plan, the comparison with the checkpoint before recovery, and again with the record after it."""
    (folder / "in").mkdir(parents=True)
    numbers, spark = itertools.count(), session()
    job, checkpoint = _job(folder), folder / "checkpoint"

    def start() -> float:
        _add_row(folder / "in", next(numbers))
        return timed(lambda: job.run(spark))

    def look() -> float:
        frame = job.stream(spark)
        return timed(lambda: _look(job, frame, checkpoint))

    start()
    if [one.name for one in read_topology(checkpoint).operators] != NAMES:
        raise RuntimeError("the operators were not recorded: there is nothing to compare with")
    seconds = rounds({"look": look, "run": start}, repeats=REPEATS, console=console)
    ours, whole = (statistics.median(seconds[name]) for name in ("look", "run"))
    told = f"{ours * 1000:.0f} ms"
    yield Ratio("look at four operators / half a second", told, f"{GOAL_S} s", ours / GOAL_S, "<= 1")
    yield Ratio("the same / the run of one epoch that it is part of", told, f"{whole:.2f} s", ours / whole, NO_GOAL)


def _look(job: Job, frame: DataFrame, checkpoint: Path) -> None:
    now = job.topology(frame)
    check_topology(now, checkpoint)
    record_topology(now, checkpoint)


def _job(folder: Path) -> Job:
    def pipeline(spark: SparkSession) -> DataFrame:
        rows = spark.readStream.schema("id long, k string, t timestamp").json(str(folder / "in"))
        late = rows.withWatermark("t", "1 hour")
        left = late.dropDuplicates(["id", "t"])
        right = late.dropDuplicates(["k", "t"]).select("k", F.col("t").alias("u"))
        pairs = left.join(right, (left["k"] == right["k"]) & (F.col("u") >= F.col("t"))).select("id", "t")
        return pairs.groupBy(F.window("t", "1 minute")).count().select("count")

    sinks = [FileSink(folder / "out")]
    return Job(
        name="operators",
        checkpoint=folder / "checkpoint",
        pipeline=pipeline,
        sinks=sinks,
        trigger="available-now",
        operators=NAMES,
    )


def _add_row(folder: Path, number: int) -> None:
    row = {"id": number, "k": "k", "t": f"2026-01-01 00:{number:02}:00"}
    (folder / f"{number}.json").write_text(json.dumps(row))
