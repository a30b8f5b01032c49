"""A job with two stateful operators whose output tells when either lost or doubled anything: in the tests' own Spark,
or run as a process of its own. Savepoints are taken of it.

Every file has new ids, and some of the file before. They count once, by key: state of the dedupe that is lost counts
some twice, state of the sums that is lost makes a tally go back, and a mix of two epochs leaves the last one wrong.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import CheckpointConfig, Hooks, Job, Sink
from onceward.sinks import FileSink, KafkaSink, PostgresSink, SQLiteSink

RETAINED = 12
"""As few epochs as Spark may keep: what a savepoint is made of is purged soon."""


def tallying(
    work: Path,
    *,
    at: str,
    out: str,
    who: str,
    name: str,
    trigger: str | None,
    kafka: str | None = None,
    postgres: str | None = None,
    dies_after: int | None = None,
) -> Job:
    """With its checkpoint `at` a place in this folder, its rows in a folder, database, table and topic named `out`, and
    `who` in every one of them.

    It kills itself once the epoch `dies_after` is decided and not published.
    """

    def pipeline(spark: SparkSession) -> DataFrame:
        with (work / f"starts-{who}").open("a") as file:
            file.write("start\n")
        rows = spark.readStream.schema("id long, k int").option("maxFilesPerTrigger", 1).json(str(work / "in"))
        counted = rows.dropDuplicates(["id"]).groupBy("k").agg(F.count("id").alias("n"), F.sum("id").alias("total"))
        return counted.withColumn("who", F.lit(who))

    return Job(
        name=name,
        checkpoint=work / at,
        pipeline=pipeline,
        sinks=_sinks(work / out, kafka, postgres),
        output_mode="update",
        trigger=trigger,
        operators=["ids", "sums"],
        checkpointing=CheckpointConfig(state_backend="rocksdb", state_partitions=2, retained=RETAINED),
        hooks=Hooks(on_decision=lambda epoch: os.kill(os.getpid(), signal.SIGKILL) if epoch == dies_after else None),
    )


def _sinks(out: Path, kafka: str | None, postgres: str | None) -> list[Sink]:
    """Every tally as it came, in files and in a table; the last of each key. Servers that are named get them, too."""
    database = out.with_suffix(".db")
    found: list[Sink] = [
        FileSink(out),
        SQLiteSink(database, table="tallies"),
        SQLiteSink(database, table="latest", mode="upsert", keys=["who", "k"]),
    ]
    if postgres is not None:
        found.append(PostgresSink(postgres, table=out.name))
    if kafka is not None:
        found.append(KafkaSink(kafka, topic=out.name, key="k"))
    return found


if config := os.environ.get("ONCEWARD_TEST"):
    told: dict[str, Any] = json.loads(config)
    job = tallying(Path(told.pop("work")), **told)
