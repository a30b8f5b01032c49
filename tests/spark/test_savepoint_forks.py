"""Two jobs restored from one savepoint, both live, on the same servers: receipts, transactions, files kept apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import confluent_kafka as client
import pytest
from pyspark.sql import SparkSession

from onceward.clock import SystemClock
from onceward.savepoints import restore_savepoint, take
from onceward.testing.servers import KafkaServer, PostgresServer

from .processes import ended_at_last, kill, said
from .servers import Tables
from .tallies import Tallies, Tally, expect_tallies, tally
from .workspace import PATIENCE_S, SparkWorkspace, wait_until

pytestmark = pytest.mark.cluster


TARGETS = ("before", "one", "two")


@pytest.fixture
def first(tmp_path: Path, kafka: KafkaServer, postgres: PostgresServer) -> Iterator[Tallies]:
    """Under a name that the session's servers do not know yet."""
    for topic in TARGETS:
        kafka.create_topic(topic)
    yield Tallies(tmp_path, out="before", name=tmp_path.name, kafka=kafka.bootstrap, postgres=postgres.url)
    kafka.delete_topics(*TARGETS)
    for table in TARGETS:
        Tables(postgres).query(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.parametrize(
    ("name", "out"),
    [
        pytest.param(None, "two", id="one name, targets of its own"),
        pytest.param("fork", "one", id="another name, the same targets", marks=pytest.mark.soak),
    ],
)
def test_two_forks_of_one_savepoint_live_side_by_side_and_neither_touches_the_others_work(
    first: Tallies, spark: SparkSession, kafka: KafkaServer, postgres: PostgresServer, name: str | None, out: str
) -> None:
    """One dies with prepared transactions while the other lives, is started again, and cleans up after itself."""
    first.add_files(3)
    first.job().run(spark)
    saved = take(first.checkpoint, first.work / "saved", clock=SystemClock(), spark=spark.version)
    epoch, tables = saved.savepoint.epoch, Tables(postgres)
    one = replace(first, at="one", who="one", out="one")
    two = replace(first, at="two", who="two", out=out, name=name or first.name)
    restore_savepoint(saved.path, one.checkpoint)
    restore_savepoint(saved.path, two.checkpoint, name=name)
    first.add_files(4)
    dies = replace(two, dies_after=epoch + 2).start()
    lives = replace(one, trigger="100 milliseconds").job().start(spark)
    with ended_at_last(dies), ExitStack() as at_last:
        at_last.callback(lives.stop)
        dies.wait(PATIENCE_S)
        kill(dies)
        wait_until(lambda: lives.status().settled >= epoch + 4, "the one fork delivers all that there is")
    prepared = tables.query("SELECT gid::text FROM pg_prepared_xacts")
    assert prepared, said(SparkWorkspace(first.work))
    first.add_files(3)
    one.job().run(spark)
    assert tables.query("SELECT gid::text FROM pg_prepared_xacts") == prepared, "they are the other one's"
    two.job().run(spark)
    assert tables.query("SELECT gid::text FROM pg_prepared_xacts") == []
    for fork in (one, two):
        rows = fork.in_files()
        expect_tallies([*first.in_files(), *rows], first.last())
        assert set(fork.in_table("latest")) == first.last()
        for found in (fork.in_table(), in_postgres(tables, fork), in_kafka(kafka, fork)):
            assert sorted(found) == sorted(rows)
        assert not list((fork.work / fork.out / ".onceward").iterdir()), "nothing is left staged"


def in_postgres(tables: Tables, fork: Tallies) -> list[Tally]:
    rows = tables.query(f"SELECT k, n, total, who FROM {fork.out}")
    return [(k, n, total) for k, n, total, who in rows if who == fork.who]


def in_kafka(server: KafkaServer, fork: Tallies) -> list[Tally]:
    """What a reader of committed records sees."""
    consumer = client.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([client.TopicPartition(fork.out, 0, client.OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is None or message.error() is None:
        assert message is not None, "the broker does not answer"
        found.append(json.loads(message.value()))
    consumer.close()
    return [tally(row) for row in found if row["who"] == fork.who]
