"""Kafka in, a count in Spark's state, Kafka out: in the tests' own Spark, or run as a process of its own.

Where a database is named, it gets the same: every count as it came, and the last one of each app.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import Hooks, Job, Sink
from onceward.sinks import KafkaSink, PostgresSink
from onceward.sources import KafkaSource, offsets_for_monitoring


def counting(
    work: Path,
    *,
    kafka: str,
    postgres: str | None = None,
    accept_loss: bool = False,
    trigger: str | None = "available-now",
    small: int = 0,
) -> Job:
    """A job with everything in this folder."""

    def pipeline(spark: SparkSession) -> DataFrame:
        """Views per app, and a column that no repetition gives again."""
        with (work / "starts").open("a") as file:
            file.write("start\n")
        source = KafkaSource(kafka, topics="views", max_records_per_epoch=300, accept_loss=accept_loss)
        views = source.load(spark)
        return views.selectExpr("CAST(value AS STRING) AS app").groupBy("app").count().withColumn("luck", F.rand())

    sinks: list[Sink] = [KafkaSink(kafka, topic="pv", key="app", timeout_s=20)]
    if postgres is not None:
        sinks.append(PostgresSink(postgres, table="changes"))
        sinks.append(PostgresSink(postgres, table="pv", mode="upsert", keys=["app"]))
    return Job(
        name=work.name,
        checkpoint=work / "checkpoint",
        pipeline=pipeline,
        sinks=sinks,
        output_mode="update",
        trigger=trigger,
        small_epoch_rows=small,
        hooks=Hooks(on_publish=offsets_for_monitoring(kafka, "counted-lag", config={"log_level": "0"})),
    )


if config := os.environ.get("ONCEWARD_TEST"):
    told: dict[str, Any] = json.loads(config)
    job = counting(Path(told.pop("work")), **told)
