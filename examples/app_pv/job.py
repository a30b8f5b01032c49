"""Page views per app: Kafka in, counted in Spark's state, out to Kafka, Redis and PostgreSQL in one decision an epoch.

`onceward run examples/app_pv/job.py`, or spark-submit; README.md beside this file says what it needs.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession

from onceward import Hooks, Job, Sink
from onceward.sinks import KafkaSink, PostgresSink, RedisSink
from onceward.sources import KafkaSource, offsets_for_monitoring

BROKERS = os.environ.get("KAFKA", "localhost:9092")


def page_views(spark: SparkSession) -> DataFrame:
    """The number of views of each app so far, for the apps that an epoch brings views of."""
    views = KafkaSource(BROKERS, topics="views").load(spark)
    return views.selectExpr("CAST(value AS STRING) AS app").groupBy("app").count()


def targets() -> list[Sink]:
    """Kafka always; Redis and PostgreSQL where the environment names them."""
    sinks: list[Sink] = [KafkaSink(BROKERS, topic="pv", key="app", create_partitions=2)]
    if redis := os.environ.get("REDIS_URL"):
        sinks.append(RedisSink(redis, key="pv:{app}", value="count"))
    if postgres := os.environ.get("POSTGRES_URL"):
        sinks.append(PostgresSink(postgres, table="pv", mode="upsert", keys=["app"]))
    return sinks


job = Job(
    name="app-pv",
    checkpoint=os.environ.get("CHECKPOINT", "checkpoints/app-pv"),
    pipeline=page_views,
    sinks=targets(),
    output_mode="update",
    trigger=os.environ.get("TRIGGER", "1 second"),
    operators=["pv"],
    sources=["views"],
    hooks=Hooks(on_publish=offsets_for_monitoring(BROKERS, "app-pv")),
)

if __name__ == "__main__":
    job.run(SparkSession.builder.appName(job.name).getOrCreate())
