"""An epoch of ten rows, trigger to trigger, against a `foreachBatch` that does nothing at all."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import Ratio, interleaved, session
from onceward import foreach_batch
from onceward.sinks import FileSink, SQLiteSink

EPOCHS = 40
SKIPPED = 8


def ten_rows_a_file(folder: Path) -> Path:
    """As many files as there will be epochs."""
    folder.mkdir(parents=True)
    for epoch in range(EPOCHS):
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

    stream = spark.readStream.schema("id long, app string").option("maxFilesPerTrigger", 1).json(str(source))
    writer = stream.writeStream.foreachBatch(handle).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return statistics.median(after - before for before, after in itertools.pairwise(begun[SKIPPED:]))


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Trigger to trigger, for each sink in turns with doing nothing."""
    spark = session()
    source = ten_rows_a_file(folder / "rows")
    numbers = itertools.count()

    def nothing() -> float:
        return between_epochs(spark, source, lambda batch, epoch: None, folder / f"noop-{next(numbers)}")

    def noop_format() -> float:
        def consume(batch: DataFrame, epoch: int) -> None:
            batch.write.format("noop").mode("overwrite").save()

        return between_epochs(spark, source, consume, folder / f"consume-{next(numbers)}")

    def onceward_to(kind: str) -> Callable[[], float]:
        def deliver() -> float:
            work = folder / f"{kind}-{next(numbers)}"
            sink = FileSink(work / "out") if kind == "files" else SQLiteSink(work / "out.db", table="rows")
            work.mkdir()
            delivery = foreach_batch(name="bench", checkpoint=work / "checkpoint", sinks=[sink])
            seconds = between_epochs(spark, source, delivery, work / "checkpoint")
            delivery.close()
            return seconds

        return deliver

    medians = interleaved(
        {
            "no-op foreachBatch": nothing,
            "foreachBatch that reads the rows": noop_format,
            "FileSink": onceward_to("files"),
            "SQLiteSink": onceward_to("sqlite"),
        },
        repeats=5,
        console=console,
    )
    peer = medians["no-op foreachBatch"]
    for name in ("FileSink", "SQLiteSink"):
        yield Ratio(
            f"epoch of 10 rows, {name} / no-op foreachBatch",
            f"{medians[name] * 1000:.0f} ms",
            f"{peer * 1000:.0f} ms",
            medians[name] / peer,
            "<= 1.5",
        )
