"""What the benchmarks of relational servers share: one stream of rows, delivered by a job of ours or by Spark's own
JDBC writer in a `foreachBatch`, which is at-least-once: as it comes, or with what a careful user sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import ROW_SCHEMA, narrow_rows, timed
from onceward import Job

TUNED = {"batchsize": "10000"}
"""Ten times Spark's own. There are as many partitions as cores already."""


@dataclass(frozen=True)
class Delivery:
    """Ways of `rows` rows in `epochs` epochs into a table, each with the seconds from its start to its end."""

    spark: SparkSession
    folder: Path
    rows: int
    epochs: int
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def source(self) -> Path:
        """Two files an epoch, so that its two tasks get as many rows each, as two bare processes do."""
        return narrow_rows(self.folder / "rows", rows=self.rows, files=2 * self.epochs)

    def stream(self, _: object = None) -> DataFrame:
        """The rows."""
        reader = self.spark.readStream.schema(ROW_SCHEMA).option("maxFilesPerTrigger", 2)
        return reader.parquet(str(self.source))

    def ours(self, sink_named: Callable[[str], Any]) -> float:
        """By a job of its own, and a sink that no other has used."""
        work = self.folder / f"onceward-{next(self._numbers)}"
        sinks = [sink_named(work.name)]
        job = Job(name=work.name, checkpoint=work, pipeline=self.stream, sinks=sinks, trigger="available-now")
        return timed(lambda: job.run(self.spark))

    def jdbc(self, url: str, table: str, **options: str) -> float:
        """By Spark's JDBC writer."""

        def write(batch: DataFrame, _: int) -> None:
            batch.write.jdbc(url, table, mode="append", properties=options)

        return self.each_batch(write)

    def each_batch(self, write: Callable[[DataFrame, int], None]) -> float:
        """By any `foreachBatch`."""
        checkpoint = self.folder / f"plain-{next(self._numbers)}"
        writer = self.stream().writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        return timed(lambda: writer.trigger(availableNow=True).start().awaitTermination())
