"""Negative controls, as a process of its own: what people do without onceward, killed at its weak points.

Two queries read the same source. One appends to a table and to a folder in a plain `foreachBatch`; the other is Spark's
own file sink, whose output is read by its file names. With `die`, both are brought to the moment when the rows of epoch
1 are out and Spark has not recorded it, and the process is killed there.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CONFIG = json.loads(os.environ["ONCEWARD_TEST"])
WORK = Path(CONFIG["work"])
AT_THE_POINT = threading.Event()


def rows(spark: SparkSession) -> DataFrame:
    """One file an epoch, two slots, and a column that no repetition gives again."""
    stream = spark.readStream.schema("id long, file int").option("maxFilesPerTrigger", 1).json(str(WORK / "in"))
    return stream.repartition(2).withColumn("luck", F.rand())


def append(batch: DataFrame, epoch: int) -> None:
    """As in many a tutorial."""
    batch.write.mode("append").parquet(str(WORK / "naive"))
    with closing(sqlite3.connect(WORK / "naive.db")) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS t (id, file)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(row.id, row.file) for row in batch.collect()])
    if CONFIG["die"] and epoch == 1:
        AT_THE_POINT.set()
        threading.Event().wait()


def hold(files: pa.Array) -> pa.Array:
    """Let one task of epoch 1 wait for ever, while the other writes its file.

    The one of partition 0: Spark opens its file before it asks for the first row. Of the others it first asks whether
    there is a row at all, so that one of them, held here, would have no file yet.
    """
    context = TaskContext.get()
    if 1 in files.to_pylist() and context is not None and context.partitionId() == 0:
        threading.Event().wait()
    return files


def is_in_the_middle_of_epoch_1() -> bool:
    """One whole Parquet file beyond those that Spark has recorded, and one that is open."""
    recorded = len(list((WORK / "spark-out" / "_spark_metadata").glob("[0-9]")))
    listed = list((WORK / "spark-out").glob("part-*.parquet"))
    whole = [path for path in listed if path.read_bytes()[-4:] == b"PAR1"]
    return recorded == 1 and (len(whole), len(listed)) == (3, 4)


def main() -> None:
    """Run both to the end, or to their weak points and no further."""
    spark = SparkSession.builder.getOrCreate()
    stream = rows(spark)
    if CONFIG["die"]:
        stream = stream.withColumn("file", F.arrow_udf(hold, "int")("file"))
    own = stream.writeStream.format("parquet").option("path", str(WORK / "spark-out"))
    query = own.option("checkpointLocation", str(WORK / "own")).trigger(availableNow=True).start()
    while CONFIG["die"] and not is_in_the_middle_of_epoch_1():
        threading.Event().wait(0.05)
    naive = rows(spark).writeStream.option("checkpointLocation", str(WORK / "naive-checkpoint"))
    other = naive.trigger(availableNow=True).foreachBatch(append).start()
    if CONFIG["die"]:
        AT_THE_POINT.wait()
        for pid in (spark.sparkContext._gateway.proc.pid, os.getpid()):
            os.kill(pid, signal.SIGKILL)
    query.awaitTermination()
    other.awaitTermination()


main()
