"""Real servers, one of each kind for the whole session. What cannot be had is skipped, or failed where all is asked."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest
from xdist.remote import Producer

from onceward.testing.servers import (
    KafkaServer,
    MariaDBServer,
    PostgresServer,
    RedisServer,
    Server,
    ServerMissing,
)
from pair_sample import PairSample
from worker_order import WholeModules, ordered

AnyServer = TypeVar("AnyServer", bound=Server)


_PROJECT = Path(__file__).resolve().parents[1]
_MEMORY = Path("/dev/shm")
_ROOM = 8 << 30


def pytest_configure() -> None:
    """Temporary files are in memory where there is room, so that no test waits for a disk: what a power loss leaves of
    them is shown on a file system of its own (`test_ext4_power_loss`)."""
    if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """See `worker_order`."""
    if hasattr(config, "workerinput"):
        items[:] = ordered(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WholeModules:
    """See `worker_order`."""
    return WholeModules(config, log)


def started(kind: type[AnyServer], **settings: str | int) -> AnyServer:
    """A running server of this kind; skips the test where its program is missing."""
    try:
        return kind(**settings).start()
    except ServerMissing as missing:
        do_without(str(missing))


def do_without(missing: str) -> NoReturn:
    """Skip the test for this reason, or fail it where all servers are asked for."""
    if os.environ.get("CI") == "true" or os.environ.get("ONCEWARD_REQUIRE_ALL") == "1":
        pytest.fail(f"a server is missing, and all are asked for: {missing}")
    pytest.skip(missing)


@pytest.fixture(scope="session")
def without() -> Callable[[str], NoReturn]:
    """`do_without`, for tests that find out by themselves what this machine does not give."""
    return do_without


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Loses nothing that it has confirmed unless its machine dies, and saves the tests the waiting for the disk."""
    server = started(PostgresServer, fsync="off")
    yield server
    server.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    server = started(MariaDBServer)
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    server = started(RedisServer)
    yield server
    server.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    server = started(KafkaServer)
    yield server
    server.close()


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """Those with which Spark reads Kafka, as it wants them named; none where there are none."""
    return ",".join(map(str, sorted((_PROJECT / ".jars" / "kafka-connector").glob("*.jar"))))


@pytest.fixture
def connector(kafka: KafkaServer, connector_jars: str) -> dict[str, str]:
    """Settings for a Spark that reads Kafka."""
    if not connector_jars:
        do_without("Spark's Kafka connector is not there (run tools/setup-maven-servers)")
    return {"spark.jars": connector_jars}


@pytest.fixture(params=[20, pytest.param(1, marks=pytest.mark.soak)], ids="one-in-{}".format)
def pair_sample(request: pytest.FixtureRequest) -> PairSample:
    """All pairs of crashes take many minutes: `make soak` tries them, `make test` a twentieth, another each time. Where
    rules are taken out of the code to see a test fail (`make mutants`), all of them are asked for."""
    one_in = 1 if "ONCEWARD_ALL_PAIRS" in os.environ else int(request.param)
    return PairSample(one_in, random.SystemRandom().randrange(one_in))


class Sweeps(list[str]):
    """Lines for the end of the report; they travel with it, since tests may run in several processes."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        super().__init__()
        self._record = record

    def append(self, line: str) -> None:
        self._record("sweep", line)


@pytest.fixture
def record_sweep(record_property: Callable[[str, object], None]) -> list[str]:
    """What was swept, for the end of the report."""
    return Sweeps(record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = (report for found in terminalreporter.stats.values() for report in found)
    tests = (report for report in reports if getattr(report, "when", "") == "call")
    lines = [value for report in tests for name, value in report.user_properties if name == "sweep"]
    if lines:
        terminalreporter.section("crash sweeps and simulations")
        for line in lines:
            terminalreporter.line(str(line))
