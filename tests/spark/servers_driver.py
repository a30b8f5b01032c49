"""The job of the tests with servers, run as a process of its own and killed: one stream, all targets, one decision."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import Job
from onceward.sinks import FileSink, MySQLSink, PostgresSink, RedisSink

CONFIG: dict[str, Any] = json.loads(os.environ["ONCEWARD_TEST"])
WORK = Path(CONFIG["work"])


def pipeline(spark: SparkSession) -> DataFrame:
    """One file an epoch, two slots, and a column that no repetition gives again."""
    with (WORK / "starts").open("a") as file:
        file.write("start\n")
    rows = spark.readStream.schema("id long, file int").option("maxFilesPerTrigger", 1).json(str(WORK / "in"))
    return rows.repartition(2).withColumn("luck", F.rand())


BY_KEY = [
    PostgresSink(CONFIG["postgres"], table="by_key", mode="upsert", keys=["id"]),
    RedisSink(CONFIG["redis"], key="seen", type="counter", field="{id}"),
]
SINKS = {
    "all": [
        FileSink(WORK / "out"),
        PostgresSink(CONFIG["postgres"], table="added"),
        BY_KEY[0],
        MySQLSink(CONFIG["mysql"], table="added"),
        BY_KEY[1],
    ],
    # What needs no server while an epoch is staged.
    "write-ahead": [*BY_KEY, MySQLSink(CONFIG["mysql"], table="by_key", mode="upsert", keys=["id"])],
}
job = Job(
    name="tested",
    checkpoint=WORK / "checkpoint",
    pipeline=pipeline,
    sinks=SINKS[CONFIG.get("sinks", "all")],
    trigger=CONFIG.get("trigger", "available-now"),
    small_epoch_rows=CONFIG.get("small", 0),
)
