"""The job of the tests with a Kafka broker, run as a process of its own and killed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import Job
from onceward.sinks import FileSink, KafkaSink

CONFIG: dict[str, Any] = json.loads(os.environ["ONCEWARD_TEST"])
WORK = Path(CONFIG["work"])


def pipeline(spark: SparkSession) -> DataFrame:
    """One file an epoch, two slots, and a column that no repetition gives again."""
    with (WORK / "starts").open("a") as file:
        file.write("start\n")
    rows = spark.readStream.schema("id long, file int").option("maxFilesPerTrigger", 1).json(str(WORK / "in"))
    return rows.repartition(2).withColumn("luck", F.rand())


job = Job(
    name="tested",
    checkpoint=WORK / "checkpoint",
    pipeline=pipeline,
    sinks=[FileSink(WORK / "out"), KafkaSink(CONFIG["kafka"], topic="rows", key="file", timeout_s=10)],
    trigger=CONFIG.get("trigger", "available-now"),
    small_epoch_rows=CONFIG.get("small", 0),
)
