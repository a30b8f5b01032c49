"""Receipts in PostgreSQL, MySQL and Redis keep their form: what version 1 wrote is read, and still written.

Golden files are never edited: see `test_golden`. Times are left out of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as driver

from onceward.committers import MySQLCheckpointCommitter, PostgresCheckpointCommitter, RedisCheckpointCommitter
from onceward.contracts import (
    AnySink,
    CheckpointCommitter,
    Receipt,
    Sink,
    SlotContext,
    SlotValues,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
)
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId, SinkName
from onceward.sinks import MySQLSink, PostgresSink, RedisSink
from onceward.testing.servers import MariaDBServer, PostgresServer, RedisServer

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parent / "golden" / "v1"
JOB = JobIdentity(JobName("app-pv é"), Generation("abcdefgh"))
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
FINGERPRINT = Fingerprint("fingerprintabcde")
ROWS = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "app": pa.array(["maps", "é"], pa.string())})
TABLES = ("onceward_receipts", "onceward_watermarks", "onceward_checkpoints")


def receipt(sink: SinkName, *, epoch: int = 7, slot: int = 0) -> Receipt:
    return Receipt(JOB.name, JOB.generation, sink, epoch, slot, FINGERPRINT)


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def stage_and_commit(sink: AnySink) -> None:
    assert isinstance(sink, TwoPhaseCommitSink)
    sink.check(ROWS.schema, output_mode="append")
    context = SlotContext(JOB, sink.name, 7, 1, 0, 35, RunId("runrun"), AT, FINGERPRINT)
    transaction = sink.begin_transaction(context)
    sink.invoke(transaction, ROWS)
    sink.commit({**sink.pre_commit(transaction), "transaction": str(context.transaction)})


def send(sink: AnySink) -> None:
    assert isinstance(sink, TransactionalWriteAheadSink)
    sink.check(ROWS.schema, output_mode="append")
    assert sink.send_transaction([SlotValues(3, 2, receipt(sink.name, slot=3), lambda: iter([ROWS]))], JOB, 7, AT)


def use(append: AnySink, upsert: AnySink, committer: CheckpointCommitter) -> None:
    """Everything that leaves a trace."""
    stage_and_commit(append)
    send(upsert)
    upsert.forget(JOB, below=6)
    committer.open(JOB, SinkName("plain"))
    committer.commit_checkpoint(0, 7)


Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def in_postgres(postgres: PostgresServer) -> Iterator[tuple[str, Query]]:
    postgres.query("CREATE SCHEMA golden")
    yield f"{postgres.url}?options=-csearch_path%3Dgolden", postgres.query
    postgres.query("DROP SCHEMA golden CASCADE")


def postgres_sinks(url: str) -> tuple[AnySink, AnySink]:
    append = PostgresSink(url, table="added", two_phase=True, name="postgres:added")
    return append.choose(), PostgresSink(url, table="by_id", mode="upsert", keys=["id"], name="postgres:by_id").choose()


def postgres_tables(query: Query) -> dict[str, Any]:
    """Name, type, not null, and place in the primary key of every column; and the rows, without their times."""
    found = {}
    for table in TABLES:
        shape = query(
            "SELECT attname::text, format_type(atttypid, atttypmod), attnotnull, "
            "coalesce(array_position(indkey::int[], attnum::int) + 1, 0) FROM pg_attribute "
            "JOIN pg_index ON indrelid = attrelid AND indisprimary "
            f"WHERE attrelid = 'golden.{table}'::regclass AND attnum > 0 ORDER BY attnum"
        )
        names = ", ".join(name for name, *_ in shape if not name.endswith("_at"))
        rows = query(f"SELECT {names} FROM golden.{table} ORDER BY {names}")
        found[table] = {"columns": [list(column) for column in shape], "rows": [list(row) for row in rows]}
    return found


def test_receipts_in_postgres_are_written_as_ever(in_postgres: tuple[str, Query]) -> None:
    url, query = in_postgres
    use(*postgres_sinks(url), PostgresCheckpointCommitter(url))
    assert postgres_tables(query) == golden("postgres.json")


def test_receipts_that_version_1_wrote_to_postgres_are_read(in_postgres: tuple[str, Query]) -> None:
    url, query = in_postgres
    append, upsert = postgres_sinks(url)
    make_tables(append, upsert)
    for table, content in golden("postgres.json").items():
        names = [name for name, *_ in content["columns"] if not name.endswith("_at")]
        for row in content["rows"] if table != "onceward_checkpoints" else ():
            query(f"INSERT INTO golden.{table} ({', '.join(names)}) VALUES ({', '.join(map(as_literal, row))})")
    expect_read(append, upsert)


@pytest.fixture
def in_mysql(mariadb: MariaDBServer) -> Iterator[tuple[str, Query]]:
    mariadb.query("CREATE DATABASE golden")
    yield mariadb.url.replace("/test", "/golden"), mariadb.query
    mariadb.query("DROP DATABASE golden")


def mysql_sinks(url: str) -> tuple[AnySink, AnySink]:
    append = MySQLSink(url, table="added", name="mysql:added")
    return append.choose(), MySQLSink(url, table="by_id", mode="upsert", keys=["id"], name="mysql:by_id").choose()


def mysql_tables(query: Query) -> dict[str, Any]:
    """Name, type, length, collation, whether null may be, and place in the primary key; and the rows."""
    found = {}
    for table in TABLES:
        here = f"TABLE_SCHEMA = 'golden' AND TABLE_NAME = '{table}'"
        keys = dict(
            query(
                f"SELECT COLUMN_NAME, SEQ_IN_INDEX FROM information_schema.STATISTICS WHERE {here} "
                "AND INDEX_NAME = 'PRIMARY'"
            )
        )
        shape = query(
            "SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, COLLATION_NAME, IS_NULLABLE "
            f"FROM information_schema.COLUMNS WHERE {here} ORDER BY ORDINAL_POSITION"
        )
        names = ", ".join(name for name, *_ in shape if not name.endswith("_at"))
        rows = query(f"SELECT {names} FROM golden.{table} ORDER BY {names}")
        columns = [[*column, int(keys.get(column[0], 0))] for column in shape]
        found[table] = {"columns": columns, "rows": [list(row) for row in rows]}
    return found


def test_receipts_in_mysql_are_written_as_ever(in_mysql: tuple[str, Query]) -> None:
    url, query = in_mysql
    use(*mysql_sinks(url), MySQLCheckpointCommitter(url))
    assert mysql_tables(query) == golden("mysql.json")


def test_receipts_that_version_1_wrote_to_mysql_are_read(in_mysql: tuple[str, Query]) -> None:
    url, query = in_mysql
    append, upsert = mysql_sinks(url)
    make_tables(append, upsert)
    for table, content in golden("mysql.json").items():
        if table == "onceward_checkpoints":
            continue
        names = [name for name, *_ in content["columns"]]
        for row in content["rows"]:
            values = [*map(as_literal, row), *(["UTC_TIMESTAMP(6)"] if len(names) > len(row) else [])]
            query(f"INSERT INTO golden.{table} ({', '.join(names)}) VALUES ({', '.join(values)})")
    expect_read(append, upsert)


def make_tables(*sinks: AnySink) -> None:
    for sink in sinks:
        sink.check(ROWS.schema, output_mode="append")


def as_literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def expect_read(append: Sink, upsert: Sink) -> None:
    assert list(append.receipts(JOB)) == [receipt(append.name)]
    assert list(upsert.receipts(JOB)) == [receipt(upsert.name, slot=3)]
    # Neither the slot with a receipt nor an epoch below the watermark is sent again: reading it would fail.
    assert isinstance(upsert, TransactionalWriteAheadSink)
    for epoch, slot in ((7, 3), (5, 0)):
        mark = receipt(upsert.name, epoch=epoch, slot=slot)
        assert upsert.send_transaction([SlotValues(slot, 1, mark, _never_read)], JOB, epoch, AT)


def _never_read() -> Iterator[pa.RecordBatch]:
    raise AssertionError("rows were sent again")


# --- Redis ----------------------------------------------------------------------------------------


@pytest.fixture
def in_redis(redis: RedisServer) -> Iterator[tuple[str, Any]]:
    url = redis.url.replace("/0", "/7")
    with driver.Redis.from_url(url, decode_responses=True) as client:
        client.flushdb()
        yield url, client
        client.flushdb()


def redis_sink(url: str) -> RedisSink:
    return RedisSink(url, type="counter", key="pv:{app}", max_rows_per_script=1, name="redis:pv:{app}")


def redis_keys(client: Any) -> dict[str, dict[str, str]]:
    """The fields of every hash that is ours; a time is the last word of a value, or all of it."""
    ours = sorted(key for key in client.keys("*") if key.startswith("onceward:"))
    return {key: {field: without_time(value) for field, value in sorted(client.hgetall(key).items())} for key in ours}


def without_time(value: str) -> str:
    *words, last = value.split(" ")
    return " ".join([*words, "<time>"] if "T" in last else [*words, last])


def test_receipts_in_redis_are_written_as_ever(in_redis: tuple[str, Any]) -> None:
    url, client = in_redis
    sink = redis_sink(url)
    send(sink)
    # Of a slot in parts, the second one is refused: the first has its receipt.
    client.rpush("pv:list", "in the way")
    batch = pa.record_batch({"app": ["maps", "list"]})
    with pytest.raises(Exception, match="list"):
        sink.send_transaction([SlotValues(1, 2, receipt(sink.name, slot=1), lambda: iter([batch]))], JOB, 7, AT)
    sink.forget(JOB, below=6)
    committer = RedisCheckpointCommitter(url)
    committer.open(JOB, SinkName("plain"))
    committer.commit_checkpoint(0, 7)
    assert redis_keys(client) == golden("redis.json")


def test_receipts_that_version_1_wrote_to_redis_are_read(in_redis: tuple[str, Any]) -> None:
    url, client = in_redis
    sink = redis_sink(url)
    for key, fields in golden("redis.json").items():
        client.hset(key, mapping={field: value.replace("<time>", AT.isoformat()) for field, value in fields.items()})
    partly = replace(receipt(sink.name, slot=1), is_whole=False)
    assert set(sink.receipts(JOB)) == {receipt(sink.name, slot=3), partly}
    for epoch, slot in ((7, 3), (5, 0)):
        mark = receipt(sink.name, epoch=epoch, slot=slot)
        assert sink.send_transaction([SlotValues(slot, 1, mark, _never_read)], JOB, epoch, AT)
    batch = pa.record_batch({"app": ["maps", "list"]})
    assert sink.send_transaction([SlotValues(1, 2, receipt(sink.name, slot=1), lambda: iter([batch]))], JOB, 7, AT)
    assert (client.get("pv:maps"), client.get("pv:list")) == (None, "1"), "the first row was in"
    committer = RedisCheckpointCommitter(url)
    committer.open(JOB, SinkName("plain"))
    assert [committer.is_checkpoint_committed(slot, 7) for slot in (0, 1)] == [True, False]
