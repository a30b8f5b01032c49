"""The upgrade that docs/upgrading.md works through, with its own code and its own words, on a real broker."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka as client
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.cli.load import load_job
from onceward.errors import CheckpointRolledBack, PipelineChanged
from onceward.testing.servers import KafkaServer

from .test_kafka_source import counts

pytestmark = [pytest.mark.cluster, pytest.mark.soak]
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text()
EXAMPLE = (ROOT / "examples" / "app_pv" / "job.py").read_text()
SECOND_MS = (int(time.time()) - 3600) * 1000
"""A whole second of today: a broker does not keep what is older than a week."""


def changed() -> str:
    """The example with the pipeline and the names of the page."""
    found = re.search(r"^def page_views.*?\n\n(?=job)", PAGE, re.DOTALL | re.MULTILINE)
    names = re.search(r'operators=\["per second".*?\]', PAGE)
    assert found is not None
    assert names is not None
    text = re.sub(r"^def page_views.*?\n\n\n", f"{found[0]}\n", EXAMPLE, flags=re.DOTALL | re.MULTILINE)
    return text.replace('operators=["pv"]', names[0])


@dataclass
class Walk:
    """One job after the other, as the page has them; each savepoint is taken of the one before."""

    folder: Path
    spark: SparkSession
    broker: KafkaServer
    monkeypatch: pytest.MonkeyPatch
    savepoints: list[Path] = field(default_factory=list)

    def view(self, app: str, *seconds: int) -> None:
        producer = client.Producer({"bootstrap.servers": self.broker.bootstrap})
        for second in seconds:
            producer.produce("views", app, timestamp=SECOND_MS + second * 1000)
        assert producer.flush(30) == 0

    def run(self, file: str, at: str, *accept: str) -> dict[str, int]:
        """To the end of the topic; the newest count of each app."""
        self.monkeypatch.setenv("CHECKPOINT", str(self.folder / at))
        load_job(str(self.folder / file)).run(self.spark, accept=accept)
        return dict(counts(self.broker))

    def take(self, at: str) -> None:
        self._onceward("savepoint", "take", str(self.folder / at), str(self.folder / "savepoints"))
        known = set(self.savepoints)
        self.savepoints += [one for one in (self.folder / "savepoints").iterdir() if one not in known]

    def restore(self, number: int, at: str, file: str, *options: str) -> str:
        self.monkeypatch.setenv("CHECKPOINT", str(self.folder / at))
        where = (str(self.savepoints[number]), str(self.folder / at))
        return self._onceward("savepoint", "restore", *where, "--job", str(self.folder / file), *options)

    def _onceward(self, *arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output


@pytest.fixture
def walk(
    tmp_path: Path, spark: SparkSession, kafka: KafkaServer, connector: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Walk]:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    monkeypatch.setenv("TRIGGER", "available-now")
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "job.py").write_text(changed())
    (tmp_path / "old_job.py").write_text(EXAMPLE)
    kafka.create_topic("views", partitions=2)
    kafka.create_topic("pv", partitions=2)
    session = spark.newSession()
    session.conf.unset("spark.sql.shuffle.partitions")
    yield Walk(tmp_path, session, kafka, monkeypatch)
    kafka.delete_topics("views", "pv")


def test_the_worked_upgrade_of_the_page_says_and_does_what_the_page_says(walk: Walk) -> None:
    walk.view("maps", 1, 1)
    walk.view("mail", 1)
    assert walk.run("old_job.py", "app-pv") == {"maps": 2, "mail": 1}
    with pytest.raises(PipelineChanged) as refused:
        walk.run("job.py", "app-pv")
    shown = [line.strip() for line in PAGE.splitlines() if "  stateStoreSave" in line or line.startswith("  ≠")]
    said = [line.strip() for line in refused.value.message.splitlines()]
    assert {re.sub(" +", " ", line) for line in shown} <= {re.sub(" +", " ", line) for line in said}
    walk.take("app-pv")

    expect_on_the_page(walk.restore(0, "app-pv-2", "job.py"), "is new: it starts with no state")
    walk.view("maps", 1, 1, 2)
    assert walk.run("job.py", "app-pv-2") == {"maps": 4, "mail": 1}, "two seconds more, and not three views"
    walk.take("app-pv-2")

    with pytest.raises(PipelineChanged):
        walk.restore(1, "app-pv-3", "old_job.py")
    told = walk.restore(1, "app-pv-3", "old_job.py", "--allow-non-restored-state")
    expect_on_the_page(told, "is left behind")
    told = walk.restore(1, "app-pv-4", "job.py", "--state-partitions", "8")
    assert "state goes from 2 partitions to 8" in told
    walk.view("maps", 2, 2)
    assert walk.run("job.py", "app-pv-4") == {"maps": 4, "mail": 1}, "that second was counted"
    with pytest.raises(CheckpointRolledBack):
        walk.restore(0, "app-pv-5", "old_job.py")
    walk.restore(0, "app-pv-5", "old_job.py", "--accept", "rollback")
    assert walk.run("old_job.py", "app-pv-5", "rollback") == {"maps": 7, "mail": 1}, "every view since counts"


def expect_on_the_page(told: str, ending: str) -> None:
    (line,) = [line for line in told.splitlines() if line.endswith(ending)]
    assert line in PAGE
