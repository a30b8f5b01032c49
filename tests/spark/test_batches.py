"""How Spark cuts rows into batches: by their number, from what the rows of the epoch before have shown."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

from .ground import Ground
from .sinks import RecordingSink

MANY = 25_000


def lengths(sink: RecordingSink, epoch: int) -> list[int]:
    """How many rows each batch of an epoch had."""
    return [len(chunk) for table in sink.tables(epoch) for chunk in table.column(0).chunks]


def test_small_rows_come_in_small_batches_first_and_in_large_ones_then(ground: Ground, spark: SparkSession) -> None:
    ground.add_files(2, rows=MANY)
    sink = RecordingSink(ground.work / "seen")
    ground.job([sink], pipeline=ground.stream).run(spark)
    assert max(lengths(sink, 0)) == 256
    assert max(lengths(sink, 1)) == 10_000
    assert sum(lengths(sink, 0)) == sum(lengths(sink, 1)) == MANY


def test_large_rows_never_make_large_batches(ground: Ground, spark: SparkSession) -> None:
    source, text = ground.work / "wide", "x" * 100_000
    source.mkdir()
    for number in range(2):
        rows = "\n".join(json.dumps({"id": i, "text": text}) for i in range(300))
        (source / f"{number}.json").write_text(rows)

    def wide(session: SparkSession) -> DataFrame:
        return session.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1).json(str(source))

    sink = RecordingSink(ground.work / "seen")
    ground.job([sink], pipeline=wide, small_epoch_rows=0).run(spark)
    assert max(lengths(sink, 0)) <= 256, "nothing is known of the first"
    assert max(lengths(sink, 1)) * len(text) <= 8 << 20


@pytest.mark.parametrize(("limit", "value"), [("maxRecordsPerBatch", 700), ("maxBytesPerBatch", 9000)])
def test_who_has_set_how_large_batches_are_keeps_it(
    ground: Ground, spark: SparkSession, limit: str, value: int
) -> None:
    ground.add_files(2, rows=3000)
    name = f"spark.sql.execution.arrow.{limit}"
    sink = RecordingSink(ground.work / "seen")
    spark.conf.set(name, str(value))
    try:
        ground.job([sink], pipeline=ground.stream).run(spark)
    finally:
        spark.conf.unset(name)
    for epoch in (0, 1):
        assert max(lengths(sink, epoch)) < 1000
        assert max(lengths(sink, epoch)) != 256
