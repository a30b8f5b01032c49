"""MySQLSink, exactly-once, against Spark's own JDBC writer, as it comes and tuned, and against bare LOAD DATA: a
million rows an epoch.

Two JDBC drivers: MySQL's, which can rewrite a batch into one statement, and MariaDB's, which cannot any more and sends
a batch by a binary protocol that only MariaDB has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from benchmarks.measure import NO_GOAL, Ratio, in_two_processes, interleaved, rates, session, share_of
from benchmarks.relational import TUNED, Delivery
from onceward.sinks import MySQLSink
from onceward.testing.servers import MariaDBServer

EPOCHS = 2
ROWS = EPOCHS * share_of(1_000_000)
TABLE = "id BIGINT, app VARCHAR(20), value DOUBLE, ts DATETIME(6)"


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Time from the start of the query until every row is visible."""
    settings = {"innodb-buffer-pool-size": "512M", "innodb-log-file-size": "1G", "character-set-server": "utf8mb4"}
    with MariaDBServer(**settings) as server:
        delivery = Delivery(session(), folder, rows=ROWS, epochs=EPOCHS)
        medians = interleaved(_contenders(delivery, server), repeats=3, console=console)
    for name, peer, goal in (
        ("append", "JDBC writer, default, MySQL's driver", NO_GOAL),
        ("append", "JDBC writer, tuned (rewriteBatchedStatements=true, batchsize 10000), MySQL's driver", ">= 2"),
        ("append", "JDBC writer, tuned (bulk protocol, batchsize 10000), MariaDB's driver", ">= 1"),
        ("append", "two bare LOAD DATA processes", ">= 0.5"),
        ("upsert", "JDBC writer, tuned (rewriteBatchedStatements=true, batchsize 10000), MySQL's driver", ">= 1"),
    ):
        what = f"MySQL {name}, exactly-once / {peer}"
        yield rates(what, rows=ROWS, ours=medians[name], peer=medians[peer], goal=goal)


def _contenders(delivery: Delivery, server: MariaDBServer) -> dict[str, Callable[[], float]]:
    def fresh(work: Callable[[], float], *, key: str = "") -> float:
        server.query("DROP TABLE IF EXISTS bench")
        server.query(f"CREATE TABLE bench ({TABLE}{key}) ENGINE=InnoDB")
        seconds = work()
        (found,) = server.query("SELECT COUNT(*) FROM bench")[0]
        if found != ROWS:
            raise AssertionError(f"the table has {found} rows, not {ROWS}")
        return seconds

    def ours(**options: Any) -> float:
        return delivery.ours(lambda name: MySQLSink(server.url, table="bench", name=name, **options))

    def jdbc(parameters: str = "", driver: str = "com.mysql.cj.jdbc.Driver", **options: str) -> float:
        url = f"jdbc:mysql://127.0.0.1:{server.port}/test?user=root{parameters}"
        return delivery.jdbc(url, "bench", driver=driver, **options)

    def rewritten() -> float:
        return jdbc("&rewriteBatchedStatements=true", **TUNED)

    def bulk() -> float:
        # Under MySQL's name, by which Spark knows how to quote.
        return jdbc("&permitMysqlScheme&useBulkStmts=true", "org.mariadb.jdbc.Driver", **TUNED)

    return {
        "append": lambda: fresh(ours),
        "upsert": lambda: fresh(lambda: ours(mode="upsert", keys=["id"]), key=", PRIMARY KEY (id)"),
        "JDBC writer, default, MySQL's driver": lambda: fresh(jdbc),
        "JDBC writer, tuned (rewriteBatchedStatements=true, batchsize 10000), MySQL's driver": lambda: fresh(rewritten),
        "JDBC writer, tuned (bulk protocol, batchsize 10000), MariaDB's driver": lambda: fresh(bulk),
        "two bare LOAD DATA processes": lambda: fresh(
            lambda: in_two_processes(_load, str(delivery.source), server.url)
        ),
    }


def _load(half: int, ready: Any, go: Any, source: str, url: str) -> None:
    from onceward.connections.mysql import Address, Session
    from onceward.sinks.mysql.encode import lines
    from onceward.sinks.mysql.loader import load_statement

    table = pa.concat_tables(pq.read_table(path) for path in sorted(Path(source).glob("*.parquet")))
    mine = table.slice(half * table.num_rows // 2, table.num_rows // 2).combine_chunks()
    text = [part for batch in mine.to_batches(100_000) for part in lines(batch)]
    with Session(Address.parse(url), timeout_s=600, lock_wait_s=50) as server:
        ready.release()
        go.wait()
        server.load(load_statement("bench", mine.schema), text)
