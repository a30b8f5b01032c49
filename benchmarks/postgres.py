"""PostgresSink, exactly-once, against Spark's own JDBC writer, as it comes and tuned, and against bare ADBC: a million
rows an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from rich.console import Console

from benchmarks.measure import NO_GOAL, Ratio, in_two_processes, interleaved, rates, session, share_of
from benchmarks.relational import TUNED, Delivery
from onceward.sinks import PostgresSink
from onceward.testing.servers import PostgresServer

EPOCHS = 3
ROWS = EPOCHS * share_of(1_000_000)
TABLE = "id bigint, app text, value double precision, ts timestamptz"


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Time from the start of the query until every row is visible."""
    with PostgresServer(shared_buffers="256MB", max_wal_size="4GB", checkpoint_timeout="30min") as server:
        delivery = Delivery(session(), folder, rows=ROWS, epochs=EPOCHS)
        medians = interleaved(_contenders(delivery, server), repeats=5, console=console)
    for name, peer, goal in (
        ("append", "JDBC writer, default", NO_GOAL),
        ("append", "JDBC writer, tuned (reWriteBatchedInserts=true, batchsize 10000)", ">= 3"),
        ("append", "two bare ADBC processes", ">= 0.5"),
        ("append", "the rows through Python and nowhere", ">= 0.5"),
        ("upsert", "JDBC writer, tuned, plain inserts beside the unique key", ">= 2"),
    ):
        what = f"PostgreSQL {name}, exactly-once / {peer}"
        yield rates(what, rows=ROWS, ours=medians[name], peer=medians[peer], goal=goal)


def _contenders(delivery: Delivery, server: PostgresServer) -> dict[str, Callable[[], float]]:
    def fresh(work: Callable[[], float], *, key: str = "") -> float:
        server.query("DROP TABLE IF EXISTS rows")
        server.query(f"CREATE TABLE rows ({TABLE}{key})")
        server.query("CHECKPOINT")
        seconds = work()
        (found,) = server.query("SELECT count(*) FROM rows")[0]
        if found != ROWS:
            raise AssertionError(f"the table has {found} rows, not {ROWS}")
        return seconds

    def ours(**options: Any) -> float:
        return delivery.ours(lambda name: PostgresSink(server.url, table="rows", name=name, **options))

    def jdbc(parameters: str = "", **options: str) -> float:
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?user=owner{parameters}"
        return delivery.jdbc(url, "rows", driver="org.postgresql.Driver", **options)

    def tuned() -> float:
        return jdbc("&reWriteBatchedInserts=true", **TUNED)

    def nowhere(batch: DataFrame, _: int) -> None:
        batch.mapInArrow(_counted, "rows long").collect()

    unique = ", UNIQUE (id)"
    return {
        "append": lambda: fresh(ours),
        "upsert": lambda: fresh(lambda: ours(mode="upsert", keys=["id"]), key=unique),
        "JDBC writer, default": lambda: fresh(jdbc),
        "JDBC writer, tuned (reWriteBatchedInserts=true, batchsize 10000)": lambda: fresh(tuned),
        "JDBC writer, tuned, plain inserts beside the unique key": lambda: fresh(tuned, key=unique),
        "two bare ADBC processes": lambda: fresh(lambda: in_two_processes(_load, str(delivery.source), server.url)),
        "the rows through Python and nowhere": lambda: delivery.each_batch(nowhere),
    }


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def _load(half: int, ready: Any, go: Any, source: str, url: str) -> None:
    from adbc_driver_postgresql import dbapi

    table = pa.concat_tables(pq.read_table(path) for path in sorted(Path(source).glob("*.parquet")))
    mine = table.slice(half * table.num_rows // 2, table.num_rows // 2)
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        ready.release()
        go.wait()
        cursor.adbc_ingest("rows", mine, mode="append")
        connection.commit()
