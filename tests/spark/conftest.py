"""One Spark for all tests in this process, and a folder of JSON files for it to read."""

from __future__ import annotations

import atexit
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from pyspark.sql import SparkSession

from onceward.testing.servers import MariaDBServer, PostgresServer, RedisServer

from .servers import Servers
from .workspace import PATIENCE_S, SPARK_SETTINGS, SparkWorkspace, python_path

SPARK_SAYS: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 (for the whole session)
atexit.register(SPARK_SAYS.close)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder starts a Spark."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, connector_jars: str) -> Iterator[SparkSession]:
    """In-process, two cores, few partitions, no user interface, able to read Kafka."""
    os.environ["PYTHONPATH"] = python_path()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("onceward-tests")
    for key, value in {**SPARK_SETTINGS, "spark.jars": connector_jars}.items():
        builder = builder.config(key, value)
    folder = tmp_path_factory.mktemp("spark")
    builder = builder.config("spark.sql.warehouse.dir", str(folder)).config("spark.local.dir", str(folder))
    with standard_error_to(SPARK_SAYS):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@contextmanager
def standard_error_to(file: BinaryIO) -> Iterator[None]:
    """Who is started inside keeps writing there: pytest's own capture does not reach into the JVM."""
    before = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.fixture
def spark_says(spark: SparkSession) -> Callable[[], str]:
    """What Spark has printed since the test began."""
    before = os.fstat(SPARK_SAYS.fileno()).st_size

    def words() -> str:
        after = os.fstat(SPARK_SAYS.fileno()).st_size
        return os.pread(SPARK_SAYS.fileno(), after - before, before).decode(errors="replace")

    return words


@pytest.fixture
def workspace(tmp_path: Path) -> SparkWorkspace:
    """A source folder, a checkpoint and targets, all empty."""
    return SparkWorkspace(tmp_path)


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a short `publish_deadline_s` that is about repetitions: no call that only takes its time is given up."""
    monkeypatch.setattr("onceward.epoch.watchdog._LEAST_S", 60.0)


@pytest.fixture
def slow_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a stop that has little time: what has that little is not Spark, when it is told to end the query."""
    for module in ("delivery", "run"):
        monkeypatch.setattr(f"onceward.spark.{module}._SHUTDOWN_GRACE_S", PATIENCE_S)


@pytest.fixture
def seed(record_property: pytest.RecordProperty) -> int:
    """Another each time, unless `ONCEWARD_SEED` asks for one again. The report of a test that fails has it."""
    seed = int(os.environ.get("ONCEWARD_SEED", random.SystemRandom().randrange(10**6)))
    print(f"ONCEWARD_SEED={seed}")
    record_property("seed", seed)
    return seed


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    for name in ("postgres", "mariadb", "redis"):
        # The session's own: a proof that there is one to be had, or the reason to skip.
        request.getfixturevalue(name)
    with PostgresServer() as one, MariaDBServer() as two, RedisServer() as three:
        yield Servers(one, two, three)
