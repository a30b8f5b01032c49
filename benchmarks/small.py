"""An epoch of ten rows, trigger to trigger, against a `foreachBatch` that does nothing at all.

A `Job` brings a file manager of its own (decision 0028). So there are three peers: one as Spark comes, one whose user
has found the faster of Spark's own managers, and one that is lent ours. A `foreachBatch` that does nothing never has
Spark compute the rows; so there is a fourth one, which has them computed and lets them go.

A job with state, a count, is compared with itself under Spark's default manager.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import NO_GOAL, Ratio, interleaved, session
from onceward import Hooks, Job
from onceward.contracts import Sink
from onceward.sinks import FileSink, SQLiteSink
from onceward.spark.defaults import FILE_SYSTEM_MANAGER, MANAGER
from onceward.spark.local_manager import LOCAL_MANAGER, load_local_manager

FILE_CONTEXT_MANAGER = FILE_SYSTEM_MANAGER.replace("FileSystem", "FileContext")
EPOCHS = 40
SKIPPED = 8


def ten_rows_a_file(folder: Path, epochs: int = EPOCHS) -> Path:
    """As many files as there will be epochs."""
    folder.mkdir(parents=True)
    for epoch in range(epochs):
        lines = (json.dumps({"id": epoch * 10 + row, "app": f"app-{row}"}) for row in range(10))
        (folder / f"{epoch:03}.json").write_text("\n".join(lines))
    return folder


def between_epochs(
    spark: SparkSession, source: Path, handler: Callable[[DataFrame, int], None], checkpoint: Path
) -> float:
    """Median seconds between the starts of two epochs, once the query is warm."""
    begun: list[float] = []

    def handle(batch: DataFrame, epoch: int) -> None:
        begun.append(time.perf_counter())
        handler(batch, epoch)

    writer = rows(spark, source).writeStream.foreachBatch(handle).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return median_between(begun)


def rows(spark: SparkSession, source: Path) -> DataFrame:
    """One file an epoch."""
    return spark.readStream.schema("id long, app string").option("maxFilesPerTrigger", 1).json(str(source))


def counts(frame: DataFrame) -> DataFrame:
    """With state."""
    return frame.groupBy("app").count()


def median_between(begun: list[float]) -> float:
    """Of the epochs once the query is warm."""
    return statistics.median(after - before for before, after in itertools.pairwise(begun[SKIPPED:]))


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Trigger to trigger, for each sink in turns with doing nothing."""
    spark = session()
    source = ten_rows_a_file(folder / "rows")
    numbers = itertools.count()

    def nothing() -> float:
        return between_epochs(spark, source, lambda batch, epoch: None, folder / f"noop-{next(numbers)}")

    def rows_let_go() -> float:
        def consume(batch: DataFrame, epoch: int) -> None:
            batch.write.format("noop").mode("overwrite").save()

        return between_epochs(spark, source, consume, folder / f"consume-{next(numbers)}")

    def by(manager: str, contender: Callable[[], float]) -> float:
        spark.conf.set(MANAGER, manager)
        try:
            return contender()
        finally:
            spark.conf.unset(MANAGER)

    def onceward_to(sink: Callable[[Path], Sink], *, counted: bool = False) -> Callable[[], float]:
        def deliver() -> float:
            work = folder / f"job-{next(numbers)}"
            work.mkdir()
            begun: list[float] = []
            Job(
                name="bench",
                checkpoint=work / "checkpoint",
                pipeline=lambda session: counts(rows(session, source)) if counted else rows(session, source),
                sinks=[sink(work)],
                output_mode="update" if counted else "append",
                trigger="available-now",
                hooks=Hooks(on_begin=lambda epoch: begun.append(time.perf_counter())),
            ).run(spark)
            return median_between(begun)

        return deliver

    load_local_manager(spark)
    to_files = onceward_to(lambda work: FileSink(work / "out"))
    to_sqlite = onceward_to(lambda work: SQLiteSink(work / "out.db", table="rows"))
    counted = onceward_to(
        lambda work: SQLiteSink(work / "out.db", table="rows", mode="upsert", keys=["app"]), counted=True
    )
    peers = {
        "no-op foreachBatch": "<= 0.7",
        "no-op foreachBatch, Spark's faster manager": NO_GOAL,
        "no-op foreachBatch, our manager": NO_GOAL,
        "foreachBatch that reads the rows, Spark's faster manager": NO_GOAL,
    }
    medians = interleaved(
        {
            "no-op foreachBatch": nothing,
            "no-op foreachBatch, Spark's faster manager": partial(by, FILE_SYSTEM_MANAGER, nothing),
            "no-op foreachBatch, our manager": partial(by, LOCAL_MANAGER, nothing),
            "foreachBatch that reads the rows, Spark's faster manager": partial(by, FILE_SYSTEM_MANAGER, rows_let_go),
            "FileSink": to_files,
            "SQLiteSink": to_sqlite,
            "FileSink, Spark's faster manager": partial(by, FILE_SYSTEM_MANAGER, to_files),
            "a count": counted,
            "a count, Spark's default manager": partial(by, FILE_CONTEXT_MANAGER, counted),
        },
        repeats=5,
        console=console,
        # Java goes on compiling for that long, and what comes last in a round is compiled last.
        warm_up=4,
    )
    compared = [(name, peer, goal) for name in ("FileSink", "SQLiteSink") for peer, goal in peers.items()]
    compared += [
        ("FileSink, Spark's faster manager", "no-op foreachBatch, Spark's faster manager", "<= 1.5"),
        ("a count", "a count, Spark's default manager", NO_GOAL),
    ]
    for name, peer, goal in compared:
        yield Ratio(
            f"epoch of 10 rows, {name} / {peer}",
            f"{medians[name] * 1000:.0f} ms",
            f"{medians[peer] * 1000:.0f} ms",
            medians[name] / medians[peer],
            goal,
        )
