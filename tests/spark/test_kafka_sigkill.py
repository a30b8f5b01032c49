"""Kafka in, a count in Spark's state, Kafka and PostgreSQL out, while driver, broker and database are killed.

Scenarios 4, 5, 22, 47, 50, 51 and 60 with real Spark and real servers. Kafka's own consumer reads all the while.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as client
import pytest
from pyspark.sql import SparkSession

from onceward.testing.servers import SOON_BACK, KafkaServer, PostgresServer

from .console import ConsoleReader
from .kafka_counting import counting
from .processes import ended_at_last, kill, start
from .servers import Tables, starts
from .workspace import SparkWorkspace, wait_until

pytestmark = pytest.mark.cluster

KILLS = 50
JOB = Path(__file__).with_name("kafka_counting.py")
COMMAND = ["-c", "from onceward.cli import main; main()", "run", str(JOB), "--json", "--spark-log"]
APPS = [f"app{number}" for number in range(10)]


class Stage:
    """The servers of one test, which are killed, what was sent to them, and how often who died."""

    def __init__(
        self, workspace: SparkWorkspace, broker: KafkaServer, database: PostgresServer, jars: dict[str, str]
    ) -> None:
        self.workspace, self.broker, self.database, self._jars = workspace, broker, database, jars
        self.sent: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()

    def config(self) -> dict[str, Any]:
        return {"kafka": self.broker.bootstrap, "postgres": self.database.url, "settings": self._jars}

    def view(self, dice: random.Random) -> None:
        """Page views for a few epochs."""
        producer = client.Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        for app in dice.choices(APPS, k=dice.randrange(600, 1500)):
            producer.produce("views", app, app)
            self.sent[app] += 1
        assert producer.flush(60) == 0

    def live_and_die(self, dice: random.Random) -> None:
        """A driver is killed some time after it came up; in two of three lives a server too, before it or after it."""
        before = starts(self.workspace)
        process = start(self.workspace, *COMMAND, trigger=None, small=dice.choice([0, 1000]), **self.config())
        with ended_at_last(process):
            wait_until(lambda: starts(self.workspace) > before or process.poll() is not None, "the driver starts")
            threading.Event().wait(dice.uniform(1.0, 7.0))
            server = dice.choice((None, self.broker, self.database))
            driver_first = dice.random() < 0.5
            if driver_first:
                self._kill_driver(process)
            if server is not None:
                self.kills["broker" if server is self.broker else "database"] += 1
                server.kill()
                threading.Event().wait(dice.uniform(0.0, 1.0))
                server.start()
            if not driver_first:
                threading.Event().wait(dice.uniform(0.0, 3.0))
                self._kill_driver(process)

    def _kill_driver(self, process: Any) -> None:
        # Without its servers a driver may have given up by itself: then there is nobody to kill.
        self.kills["driver"] += process.poll() is None
        kill(process)


@pytest.fixture
def stage(workspace: SparkWorkspace, postgres: PostgresServer, connector: dict[str, str]) -> Iterator[Stage]:
    """For this test alone: they are killed. The session's own prove that there are some to be had."""
    with KafkaServer(**SOON_BACK) as broker, PostgresServer() as database:
        broker.create_topic("views", partitions=3)
        broker.create_topic("pv", partitions=2)
        yield Stage(workspace, broker, database, connector)


@pytest.mark.soak
def test_killed_with_its_servers_a_count_from_kafka_reaches_kafka_and_postgres_once(
    stage: Stage,
    spark: SparkSession,
    seed: int,
    record_sweep: list[str],
) -> None:
    dice = random.Random(seed)
    workspace, tables = stage.workspace, Tables(stage.database)
    with ConsoleReader(stage.broker, "pv", partitions=2, folder=workspace.work) as reader:
        while stage.kills["driver"] < KILLS:
            stage.view(dice)
            stage.live_and_die(dice)
        counting(workspace.work, kafka=stage.broker.bootstrap, postgres=stage.database.url).run(spark)
        changes = tables.query("SELECT app, count, luck FROM changes")
        wait_until(lambda: len(reader.rows()) >= len(changes), "the reader has caught up")
        read = [(row["app"], row["count"], row["luck"]) for row in reader.rows()]
    for app, sent in stage.sent.items():
        counts = [count for found, count, _ in read if found == app]
        assert counts == sorted(set(counts)), f"seed {seed}: {app} came twice or out of order: {counts}"
        assert counts[-1] == sent, f"seed {seed}: {app} was viewed {sent} times, and counted {counts[-1]} times"
    assert Counter(read) == Counter(changes), "both targets have every count once, and one computation of it"
    assert dict(tables.query("SELECT app, count FROM pv")) == dict(stage.sent)
    assert tables.query("SELECT gid::text FROM pg_prepared_xacts") == []
    workspace.expect_nothing_staged()
    died = ", ".join(f"{name} {count}" for name, count in sorted(stage.kills.items()))
    views = stage.sent.total()
    record_sweep.append(
        f"Kafka to Kafka and PostgreSQL, killed: {died}; {views} views, {len(read)} counts, seed {seed}"
    )
