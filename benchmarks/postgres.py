"""PostgresSink against Spark's own JDBC writer in `foreachBatch`, and against bare ADBC: a million rows an epoch."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from rich.console import Console

from benchmarks.measure import ROW_SCHEMA, Ratio, interleaved, narrow_rows, session, timed
from onceward import Job
from onceward.sinks import PostgresSink
from onceward.testing.servers import PostgresServer

EPOCHS = 3
ROWS_IN_AN_EPOCH = 1_000_000
ROWS = EPOCHS * ROWS_IN_AN_EPOCH
TABLE = "id bigint, app text, value double precision, ts timestamptz"


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Time from the start of the query until every row is visible."""
    with PostgresServer(shared_buffers="256MB", max_wal_size="4GB", checkpoint_timeout="30min") as server:
        yield from _measured(folder, console, server)


def _measured(folder: Path, console: Console, server: PostgresServer) -> Iterator[Ratio]:
    spark = session()
    # Two files an epoch, so that its two tasks get as many rows each, as the two bare processes do.
    source = narrow_rows(folder / "rows", rows=ROWS, files=2 * EPOCHS)
    numbers = itertools.count()

    def stream(_: object = None) -> DataFrame:
        return spark.readStream.schema(ROW_SCHEMA).option("maxFilesPerTrigger", 2).parquet(str(source))

    def fresh(work: Callable[[], float], *, key: str = "") -> float:
        server.query("DROP TABLE IF EXISTS rows")
        server.query(f"CREATE TABLE rows ({TABLE}{key})")
        server.query("CHECKPOINT")
        seconds = work()
        (found,) = server.query("SELECT count(*) FROM rows")[0]
        if found != ROWS:
            raise AssertionError(f"the table has {found} rows, not {ROWS}")
        return seconds

    def ours(**options: Any) -> Callable[[], float]:
        work = folder / f"onceward-{next(numbers)}"
        sink = PostgresSink(server.url, table="rows", name=work.name, **options)
        job = Job(name=work.name, checkpoint=work, pipeline=stream, sinks=[sink], trigger="available-now")
        return lambda: timed(lambda: job.run(spark))

    def by_jdbc() -> None:
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?user=owner&reWriteBatchedInserts=true"

        def write(batch: DataFrame, _: int) -> None:
            batch.write.jdbc(url, "rows", mode="append", properties={"driver": "org.postgresql.Driver"})

        writer = (
            stream().writeStream.foreachBatch(write).option("checkpointLocation", str(folder / f"j{next(numbers)}"))
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    def nowhere() -> None:
        def write(batch: DataFrame, _: int) -> None:
            batch.mapInArrow(_counted, "rows long").collect()

        work = folder / f"p{next(numbers)}"
        writer = stream().writeStream.foreachBatch(write).option("checkpointLocation", str(work))
        writer.trigger(availableNow=True).start().awaitTermination()

    medians = interleaved(
        {
            "append": lambda: fresh(ours()),
            "upsert": lambda: fresh(ours(mode="upsert", keys=["id"]), key=", UNIQUE (id)"),
            "JDBC": lambda: fresh(lambda: timed(by_jdbc)),
            "JDBC, unique key": lambda: fresh(lambda: timed(by_jdbc), key=", UNIQUE (id)"),
            "bare ADBC": lambda: fresh(lambda: bare(source, server.url)),
            "bare pass": lambda: timed(nowhere),
        },
        repeats=5,
        console=console,
    )
    rates = {name: ROWS / seconds for name, seconds in medians.items()}

    def ratio(what: str, name: str, peer: str, goal: str) -> Ratio:
        shown = [f"{rates[who]:,.0f} rows/s" for who in (name, peer)]
        return Ratio(what, *shown, rates[name] / rates[peer], goal)

    yield ratio("PostgreSQL append, exactly-once / Spark's JDBC writer, batched", "append", "JDBC", ">= 3")
    yield ratio("PostgreSQL append, exactly-once / two bare ADBC processes", "append", "bare ADBC", ">= 0.5")
    yield ratio(
        "PostgreSQL append, exactly-once / the rows through Python and nowhere", "append", "bare pass", ">= 0.5"
    )
    yield ratio(
        "PostgreSQL upsert, exactly-once / Spark's JDBC writer, plain inserts", "upsert", "JDBC, unique key", ">= 2"
    )


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def bare(source: Path, url: str) -> float:
    """Two processes, each with half of every epoch's rows in memory already, load them in parallel."""
    fork = multiprocessing.get_context("spawn")
    ready, go = fork.Semaphore(0), fork.Event()
    workers = [fork.Process(target=_load, args=(str(source), url, half, ready, go)) for half in (0, 1)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    started = time.perf_counter()
    go.set()
    for worker in workers:
        worker.join()
    return time.perf_counter() - started


def _load(source: str, url: str, half: int, ready: Any, go: Any) -> None:
    from adbc_driver_postgresql import dbapi

    table = pa.concat_tables(pq.read_table(path) for path in sorted(Path(source).glob("*.parquet")))
    mine = table.slice(half * table.num_rows // 2, table.num_rows // 2)
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        ready.release()
        go.wait()
        cursor.adbc_ingest("rows", mine, mode="append")
        connection.commit()
