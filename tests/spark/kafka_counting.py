"""Kafka in, a count in Spark's state, Kafka out: run as a process of its own, with the connector on its class path."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from onceward import Hooks, Job
from onceward.sinks import KafkaSink
from onceward.sources import KafkaSource, offsets_for_monitoring

CONFIG: dict[str, Any] = json.loads(os.environ["ONCEWARD_TEST"])
WORK = Path(CONFIG["work"])
CHECKPOINT = WORK / "checkpoint"


def pipeline(spark: SparkSession) -> DataFrame:
    """Views per app."""
    source = KafkaSource(
        CONFIG["kafka"], topics="views", records_at_once=300, accept_loss=bool(CONFIG.get("accept_loss"))
    )
    views = source.load(spark, CHECKPOINT)
    return views.selectExpr("CAST(value AS STRING) AS app").groupBy("app").count()


job = Job(
    name=WORK.name,
    checkpoint=CHECKPOINT,
    pipeline=pipeline,
    sinks=[KafkaSink(CONFIG["kafka"], topic="pv", key="app", timeout_s=20)],
    output_mode="update",
    trigger="available-now",
    hooks=Hooks(on_publish=offsets_for_monitoring(CONFIG["kafka"], "counted-lag", CHECKPOINT)),
)
