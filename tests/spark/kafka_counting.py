"""Kafka in, a count in Spark's state, Kafka out: run as a process of its own, with the connector on its class path.

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

CONFIG: dict[str, Any] = json.loads(os.environ["ONCEWARD_TEST"])
WORK = Path(CONFIG["work"])
CHECKPOINT = WORK / "checkpoint"


def pipeline(spark: SparkSession) -> DataFrame:
    """Views per app, and a column that no repetition gives again."""
    with (WORK / "starts").open("a") as file:
        file.write("start\n")
    source = KafkaSource(
        CONFIG["kafka"], topics="views", max_records_per_epoch=300, accept_loss=bool(CONFIG.get("accept_loss"))
    )
    views = source.load(spark)
    return views.selectExpr("CAST(value AS STRING) AS app").groupBy("app").count().withColumn("luck", F.rand())


def targets() -> list[Sink]:
    """Kafka, and the database if there is one."""
    sinks: list[Sink] = [KafkaSink(CONFIG["kafka"], topic="pv", key="app", timeout_s=20)]
    if postgres := CONFIG.get("postgres"):
        sinks.append(PostgresSink(postgres, table="changes"))
        sinks.append(PostgresSink(postgres, table="pv", mode="upsert", keys=["app"]))
    return sinks


job = Job(
    name=WORK.name,
    checkpoint=CHECKPOINT,
    pipeline=pipeline,
    sinks=targets(),
    output_mode="update",
    trigger=CONFIG.get("trigger", "available-now"),
    small_epoch_rows=CONFIG.get("small", 0),
    hooks=Hooks(on_publish=offsets_for_monitoring(CONFIG["kafka"], "counted-lag")),
)
