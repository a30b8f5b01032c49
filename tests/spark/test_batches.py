"""How Spark cuts rows into batches: by their number, from what the rows of the epoch before have shown."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from .sinks import RecordingSink
from .workspace import SparkWorkspace

MANY = 25_000


class NoteLengths:
    """A user's own Arrow function: leaves a file that is named for the longest batch that a task got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        longest = 0
        for batch in batches:
            longest = max(longest, batch.num_rows)
            yield batch
        (self.folder / f"{longest}-{uuid.uuid4()}").touch()


def lengths(sink: RecordingSink, epoch: int) -> list[int]:
    """How many rows each batch of an epoch had."""
    return [len(chunk) for table in sink.tables(epoch) for chunk in table.column(0).chunks]


def test_small_rows_leave_spark_in_small_batches_first_and_in_large_ones_then(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """A sink gets large ones at once: small ones are put together."""
    workspace.add_files(2, rows=MANY)
    sink, from_spark = RecordingSink(workspace.work / "seen"), workspace.work / "from-spark"
    from_spark.mkdir()

    def noted(session: SparkSession) -> DataFrame:
        rows = workspace.stream(session)
        return rows.mapInArrow(NoteLengths(from_spark), rows.schema)

    workspace.job([sink], pipeline=noted).run(spark)
    assert sorted(int(file.name.split("-")[0]) for file in from_spark.iterdir()) == [256, 10_000]
    for epoch in (0, 1):
        assert 10_000 - 256 < max(lengths(sink, epoch)) <= 10_000
        assert sum(lengths(sink, epoch)) == MANY


def test_large_rows_never_make_large_batches(workspace: SparkWorkspace, spark: SparkSession) -> None:
    source, text = workspace.work / "wide", "x" * 100_000
    source.mkdir()
    for number in range(2):
        rows = "\n".join(json.dumps({"id": i, "text": text}) for i in range(300))
        (source / f"{number}.json").write_text(rows)

    def wide(session: SparkSession) -> DataFrame:
        return session.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1).json(str(source))

    sink = RecordingSink(workspace.work / "seen")
    workspace.job([sink], pipeline=wide, small_epoch_rows=0).run(spark)
    assert max(lengths(sink, 0)) <= 256, "nothing is known of the first"
    assert max(lengths(sink, 1)) * len(text) <= 8 << 20


@pytest.mark.parametrize(("limit", "value"), [("maxRecordsPerBatch", 700), ("maxBytesPerBatch", 9000)])
def test_who_has_set_how_large_batches_are_keeps_it(
    workspace: SparkWorkspace, spark: SparkSession, limit: str, value: int
) -> None:
    workspace.add_files(2, rows=3000)
    name = f"spark.sql.execution.arrow.{limit}"
    sink = RecordingSink(workspace.work / "seen")
    spark.conf.set(name, str(value))
    try:
        workspace.job([sink], pipeline=workspace.stream).run(spark)
    finally:
        spark.conf.unset(name)
    for epoch in (0, 1):
        assert max(lengths(sink, epoch)) < 1000
        assert max(lengths(sink, epoch)) != 256
