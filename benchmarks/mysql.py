"""MySQLSink against Spark's own JDBC writer in `foreachBatch`, and against bare LOAD DATA: a million rows an epoch.

Two JDBC drivers: MySQL's, which can rewrite a batch into one statement, and MariaDB's, which cannot any more and sends
a batch by a binary protocol that only MariaDB has.
"""

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
from onceward.sinks import MySQLSink
from onceward.testing.servers import MariaDBServer

EPOCHS = 2
ROWS_IN_AN_EPOCH = 1_000_000
ROWS = EPOCHS * ROWS_IN_AN_EPOCH
TABLE = "id BIGINT, app VARCHAR(20), value DOUBLE, ts DATETIME(6)"


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Time from the start of the query until every row is visible."""
    settings = {"innodb-buffer-pool-size": "512M", "innodb-log-file-size": "1G", "character-set-server": "utf8mb4"}
    with MariaDBServer(**settings) as server:
        yield from _measured(folder, console, server)


def _measured(folder: Path, console: Console, server: MariaDBServer) -> Iterator[Ratio]:
    spark = session()
    # Two files an epoch, so that its two tasks get as many rows each, as the two bare processes do.
    source = narrow_rows(folder / "rows", rows=ROWS, files=2 * EPOCHS)
    numbers = itertools.count()

    def stream(_: object = None) -> DataFrame:
        return spark.readStream.schema(ROW_SCHEMA).option("maxFilesPerTrigger", 2).parquet(str(source))

    def fresh(work: Callable[[], float], *, key: str = "") -> float:
        server.query("DROP TABLE IF EXISTS bench")
        server.query(f"CREATE TABLE bench ({TABLE}{key}) ENGINE=InnoDB")
        seconds = work()
        (found,) = server.query("SELECT COUNT(*) FROM bench")[0]
        if found != ROWS:
            raise AssertionError(f"the table has {found} rows, not {ROWS}")
        return seconds

    def ours(**options: Any) -> Callable[[], float]:
        work = folder / f"onceward-{next(numbers)}"
        sink = MySQLSink(server.url, table="bench", name=work.name, **options)
        job = Job(name=work.name, checkpoint=work, pipeline=stream, sinks=[sink], trigger="available-now")
        return lambda: timed(lambda: job.run(spark))

    def by_jdbc(driver: str, options: str) -> None:
        url = f"jdbc:mysql://127.0.0.1:{server.port}/test?user=root&{options}"

        def write(batch: DataFrame, _: int) -> None:
            # A batch of 10,000 is what people tune it to.
            batch.write.jdbc(url, "bench", mode="append", properties={"driver": driver, "batchsize": "10000"})

        writer = (
            stream().writeStream.foreachBatch(write).option("checkpointLocation", str(folder / f"j{next(numbers)}"))
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    def rewritten() -> None:
        by_jdbc("com.mysql.cj.jdbc.Driver", "rewriteBatchedStatements=true")

    def bulk() -> None:
        # Under MySQL's name, by which Spark knows how to quote.
        by_jdbc("org.mariadb.jdbc.Driver", "permitMysqlScheme&useBulkStmts=true")

    medians = interleaved(
        {
            "append": lambda: fresh(ours()),
            "upsert": lambda: fresh(ours(mode="upsert", keys=["id"]), key=", PRIMARY KEY (id)"),
            "JDBC": lambda: fresh(lambda: timed(rewritten)),
            "JDBC, MariaDB's": lambda: fresh(lambda: timed(bulk)),
            "bare LOAD DATA": lambda: fresh(lambda: bare(source, server.url)),
        },
        repeats=3,
        console=console,
    )
    rates = {name: ROWS / seconds for name, seconds in medians.items()}

    def ratio(what: str, name: str, peer: str, goal: str) -> Ratio:
        shown = [f"{rates[who]:,.0f} rows/s" for who in (name, peer)]
        return Ratio(what, *shown, rates[name] / rates[peer], goal)

    yield ratio("MySQL append, exactly-once / Spark's JDBC writer, rewritten batches", "append", "JDBC", ">= 2")
    yield ratio(
        "MySQL append, exactly-once / the same with MariaDB's bulk protocol", "append", "JDBC, MariaDB's", ">= 1"
    )
    yield ratio("MySQL append, exactly-once / two bare LOAD DATA processes", "append", "bare LOAD DATA", ">= 0.5")
    yield ratio("MySQL upsert, exactly-once / Spark's JDBC writer, plain inserts", "upsert", "JDBC", ">= 1")


def bare(source: Path, url: str) -> float:
    """Two processes, each with half of the rows in memory as text already, load them in parallel."""
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
    from onceward.connections.mysql import Address, Session
    from onceward.sinks.mysql.encode import lines, load_statement

    table = pa.concat_tables(pq.read_table(path) for path in sorted(Path(source).glob("*.parquet")))
    mine = table.slice(half * table.num_rows // 2, table.num_rows // 2).combine_chunks()
    text = [part for batch in mine.to_batches(100_000) for part in lines(batch)]
    with Session(Address.parse(url), timeout_s=600, lock_wait_s=50) as server:
        ready.release()
        go.wait()
        server.load(load_statement("bench", mine.schema), text)
