"""A standalone cluster on this machine: a master, and workers that may each have a machine of their own, in part."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from .processes import ended_at_last
from .workspace import python, python_path, wait_until

SPARK_CLASS = Path(_find_spark_home(), "bin", "spark-class")
# With the archive of classes that `make test` names, if it does.
JAVA_OPTIONS = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]).strip()
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "512m",
}


@contextmanager
def standalone(folder: Path, *starts: Sequence[str]) -> Iterator[str]:
    """The address of a master with a worker of one core for each of `starts`: what stands before its command."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = daemon(folder / "master.log", "master.Master", "--port", str(port))
        stack.enter_context(ended_at_last(master))
        wait_until(lambda: is_listening(port) or master.poll() is not None, "the master listens")
        for number, first in enumerate(starts):
            work = folder / f"worker-{number}"
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(work), address]
            worker = daemon(folder / f"{work.name}.log", "worker.Worker", *arguments, first=first)
            stack.enter_context(ended_at_last(worker))
        registered = "Registering worker"
        log = folder / "master.log"
        wait_until(lambda: log.read_text().count(registered) == len(starts), "all workers are registered")
        yield address


def daemon(log: Path, name: str, *arguments: str, first: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """A part of the cluster, in a session of its own."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": python(),
        "PYTHONPATH": python_path(),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*first, *command, *arguments],
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
