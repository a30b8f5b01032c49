"""The driver that gets killed: `python -m onceward.demo.driver FOLDER` works off the input with both jobs."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onceward.api import ApiConfig
from onceward.demo.pageviews import WATCHED
from onceward.job import Job
from onceward.sinks import FileSink, SQLiteSink


def page_views(spark: SparkSession, folder: Path) -> DataFrame:
    """Page views per app, counted in Spark's state; one input file an epoch."""
    views = spark.readStream.schema("app string, page string").option("maxFilesPerTrigger", 1).json(f"{folder}/input")
    return views.groupBy("app").count().withColumnRenamed("count", "views")


def onceward_job(folder: Path) -> Job:
    """The counts into a SQLite table and, as a log of updates, into Parquet files: one epoch for both."""
    return Job(
        name="app-pv",
        checkpoint=folder / "onceward-checkpoint",
        pipeline=lambda spark: page_views(spark, folder),
        sinks=[
            SQLiteSink(folder / "onceward.db", table="pv", mode="upsert", keys=["app"]),
            FileSink(folder / "onceward-parquet", format="parquet"),
        ],
        output_mode="update",
        trigger="available-now",
        # So that whoever watches sees more than the files: see `play`.
        api=ApiConfig() if WATCHED in os.environ else None,
    )


def naive_query(spark: SparkSession, folder: Path) -> StreamingQuery:
    """What people write today: the same counts, appended to the same kinds of target inside `foreachBatch`."""

    def write(batch: DataFrame, epoch: int) -> None:
        batch.persist()
        batch.write.mode("append").parquet(f"{folder}/naive-parquet")
        rows = [(row["app"], row["views"]) for row in batch.collect()]
        with sqlite3.connect(folder / "naive.db") as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS pv (app TEXT, views INTEGER)")
            connection.executemany("INSERT INTO pv VALUES (?, ?)", rows)
        connection.close()
        batch.unpersist()

    return (
        page_views(spark, folder)
        .writeStream.outputMode("update")
        .option("checkpointLocation", f"{folder}/naive-checkpoint")
        .foreachBatch(write)
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    """Run both to the end of the input."""
    folder = Path(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("onceward demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    naive = naive_query(spark, folder)
    onceward_job(folder).run(spark)
    naive.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
