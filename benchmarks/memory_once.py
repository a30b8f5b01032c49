"""One epoch into one sink, in this process: prints the most memory that a Python worker and the driver had, in MB."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import ROW_SCHEMA, session
from onceward import Job
from onceward.contracts import AnySink
from onceward.sinks import MySQLSink, PostgresSink
from onceward.testing.servers import MariaDBServer, PostgresServer


class Watch(threading.Thread):
    """The largest resident sizes seen, looked at fifty times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = {"executor": 0.0, "driver": 0.0}
        self._stop_asked = threading.Event()

    def run(self) -> None:
        """Until `finish`."""
        while not self._stop_asked.wait(0.02):
            for who, size in _sizes():
                self.most[who] = max(self.most[who], size)

    def finish(self) -> dict[str, float]:
        """What was found."""
        self._stop_asked.set()
        self.join()
        return self.most


def _sizes() -> Iterator[tuple[str, float]]:
    page = os.sysconf("SC_PAGE_SIZE") / 1e6
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                is_worker = b"pyspark.daemon" in (entry / "cmdline").read_bytes()
                if is_worker or int(entry.name) == os.getpid():
                    size = int((entry / "statm").read_text().split()[1]) * page
                    yield "executor" if is_worker else "driver", size
            except (FileNotFoundError, ProcessLookupError):
                continue


@contextmanager
def _sink(way: str) -> Iterator[AnySink]:
    target, _, mode = way.partition(" ")
    options: dict[str, Any] = {"mode": mode, **({"keys": ["id"]} if mode == "upsert" else {})}
    if target == "postgres":
        with PostgresServer(shared_buffers="256MB", max_wal_size="4GB") as server:
            yield PostgresSink(server.url, table="rows", **options)
    else:
        with MariaDBServer(**{"innodb-buffer-pool-size": "512M", "innodb-log-file-size": "1G"}) as server:
            yield MySQLSink(server.url, table="rows", **options)


def main() -> None:
    """`memory_once WAY ROWS SOURCE WORK`."""
    way, rows, source, work = sys.argv[1:]
    spark = session()

    def stream(_: SparkSession) -> DataFrame:
        return spark.readStream.schema(ROW_SCHEMA).parquet(source)

    with _sink(way) as sink:
        job = Job(name="memory", checkpoint=work, pipeline=stream, sinks=[sink], trigger="available-now")
        watch = Watch()
        watch.start()
        job.run(spark)
        print(json.dumps({**watch.finish(), "rows": int(rows)}))


if __name__ == "__main__":
    main()
