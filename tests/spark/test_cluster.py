"""A standalone cluster of two workers on this machine: executors die under the job, and no row is lost or doubled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from .ground import PATIENCE_S, Ground, python, python_path, wait_until
from .processes import ended_at_last, said, start
from .reader import Reader

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = daemon(folder / "master.log", "master.Master", "--port", str(port))
        stack.enter_context(ended_at_last(master))
        wait_until(lambda: is_listening(port) or master.poll() is not None, "the master listens")
        for number in range(2):
            work = folder / f"worker-{number}"
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(work), address]
            stack.enter_context(ended_at_last(daemon(folder / f"{work.name}.log", "worker.Worker", *arguments)))
        registered = "Registering worker"
        wait_until(lambda: (folder / "master.log").read_text().count(registered) == 2, "two workers are registered")
        yield address


def daemon(log: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A part of the cluster, in a session of its own."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": python(),
        "PYTHONPATH": python_path(),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
        )


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_executors_killed_in_mid_stage_and_after_pre_commit_leave_no_trace(cluster: str, ground: Ground) -> None:
    ground.add_files(6)
    driver = start(ground, master=cluster, settings=SETTINGS, hold={"invoke": 1, "pre-commit": 3})
    with ended_at_last(driver), Reader(ground) as reader:
        for point in ("invoke", "pre-commit"):
            marker = ground.work / f"held-{point}"
            wait_until(lambda m=marker: is_written(m) or driver.poll() is not None, f"a task is held at {point}")  # type: ignore[misc]
            assert driver.poll() is None, said(ground)
            os.kill(executor_of(int(marker.read_text())), signal.SIGKILL)
        assert driver.wait(PATIENCE_S) == 0, said(ground)
    assert (ground.work / "driver-0.log").read_text().count("ERROR TaskSchedulerImpl: Lost executor") == 2
    ground.expect_exactly_once()
    # The lost attempt left a finished hidden file. It was never visible, and the reaper has removed it.
    ground.expect_nothing_staged()
    assert not reader.sights, reader.sights


def is_written(marker: Path) -> bool:
    return marker.exists() and marker.read_text().endswith("\n")


def executor_of(worker: int) -> int:
    """The executor's JVM: the parent of the daemon that made this Python worker."""
    pid = worker
    for _ in range(3):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise LookupError(f"process {worker} was not started by an executor")
