"""`examples/app_pv` as a user runs it: generator, job and audit, each a process, with a broker and two databases."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceward.testing.servers import KafkaServer, PostgresServer, RedisServer

from .processes import ended_at_last, kill, run_to_end, said, start
from .workspace import PATIENCE_S, SparkWorkspace, python, wait_until

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "app_pv"
COMMAND = ["-c", "from onceward.cli import main; main()", "run", str(EXAMPLE / "job.py"), "--spark-log"]


@pytest.fixture
def surroundings(
    workspace: SparkWorkspace,
    kafka: KafkaServer,
    postgres: PostgresServer,
    redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """The variables that the example's README names, and a broker without the topics."""
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    monkeypatch.setenv("CHECKPOINT", str(workspace.checkpoint))
    # Databases that no other test has written to; that the session has them proves that there are some to be had.
    with PostgresServer(fsync="off") as tables, RedisServer() as keys:
        monkeypatch.setenv("POSTGRES_URL", tables.url)
        monkeypatch.setenv("REDIS_URL", keys.url)
        yield
    kafka.delete_topics("views", "pv")


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [python(), str(EXAMPLE / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=os.environ)


def generate(kafka: KafkaServer, views: int) -> None:
    done = script("generate.py", "--brokers", kafka.bootstrap, "--views", str(views), "--rate", str(views))
    assert f"{views:,} views sent" in done.stdout, done.stderr


def settled(workspace: SparkWorkspace) -> int:
    return len(list((workspace.checkpoint / "onceward" / "settled").glob("*")))


@pytest.mark.usefixtures("surroundings")
def test_killed_and_started_again_the_example_has_the_right_counts_in_kafka_redis_and_postgres(
    workspace: SparkWorkspace, kafka: KafkaServer, connector: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(kafka, 3000)
    process = start(workspace, *COMMAND, settings=connector)
    with ended_at_last(process):
        wait_until(lambda: settled(workspace) or process.poll() is not None, "an epoch is settled")
        assert process.poll() is None, said(workspace)
        generate(kafka, 4000)
        # The barrier of the next epoch: it is under way, and wherever it stands when the driver dies, it counts once.
        wait_until(lambda: workspace.logs.planned() >= 1 or process.poll() is not None, "the next epoch is under way")
        kill(process)
    generate(kafka, 2000)
    behind = script("audit.py")
    assert behind.returncode == 1, "an audit that finds nothing wrong here would find nothing ever"
    assert "they do not agree (yet)" in behind.stdout, behind.stderr
    monkeypatch.setenv("TRIGGER", "available-now")
    assert run_to_end(workspace, *COMMAND, settings=connector) == 0, said(workspace)
    right = script("audit.py")
    assert right.returncode == 0, right.stdout + right.stderr
    assert right.stdout.splitlines()[-2].split() == ["in", "all", *["9,000"] * 4], right.stdout
    assert "all agree" in right.stdout
