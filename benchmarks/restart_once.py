"""One life of a driver: `python -m benchmarks.restart_once FOLDER` starts, delivers two epochs, dies in the third."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.measure import session
from onceward import Hooks, foreach_batch
from onceward.sinks import FileSink, SQLiteSink


def main() -> None:
    """Prints how long recovery took and how long Spark took from nothing to its first epoch, then is killed."""
    folder = Path(sys.argv[1])
    begun = time.perf_counter()
    spark = session()
    session_s = time.perf_counter() - begun
    epochs: list[float] = []
    recovery_started = time.perf_counter()
    delivery = foreach_batch(
        name="bench",
        checkpoint=folder / "checkpoint",
        sinks=[FileSink(folder / "out"), SQLiteSink(folder / "out.db", table="rows")],
        hooks=Hooks(on_pre_commit=lambda epoch: _die(epochs, recovery_s, session_s, query_started)),
    )
    recovery_s = time.perf_counter() - recovery_started

    def handle(batch: DataFrame, epoch: int) -> None:
        epochs.append(time.perf_counter())
        delivery(batch, epoch)

    query_started = time.perf_counter()
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
    writer = stream.writeStream.foreachBatch(handle).option("checkpointLocation", str(folder / "checkpoint"))
    writer.start().awaitTermination()


def _die(epochs: list[float], recovery_s: float, session_s: float, query_started: float) -> None:
    """In the third epoch of this life, before its manifest: print, and end as a crash does."""
    if len(epochs) == 3:
        print(json.dumps({"recovery": recovery_s, "spark": session_s + epochs[0] - query_started}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
