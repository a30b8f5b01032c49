"""Starting drivers as processes of their own, and ending them as power cuts do: session by session, by process id."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .workspace import PATIENCE_S, SPARK_SETTINGS, SparkWorkspace, python, python_path

DRIVER = Path(__file__).with_name("driver.py")
_COMMAND = "from onceward.cli import main; main()"


def submit_arguments(master: str = "local[2]", **more: str) -> str:
    """What Spark is told through its environment variable."""
    settings = {**SPARK_SETTINGS, **more}
    if not master.startswith("local"):
        # The executors of a cluster do not find it.
        del settings["spark.python.daemon.module"]
    options = settings.pop("spark.driver.extraJavaOptions")
    confs = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in settings.items())
    return f'--master {master} --driver-java-options "{options}" {confs} pyspark-shell'


def environment(config: dict[str, object], *, master: str = "local[2]", **more: str) -> dict[str, str]:
    """For a driver: where our code is, which Spark, and what it is to do."""
    return {
        **os.environ,
        "ONCEWARD_TEST": json.dumps(config),
        "PYSPARK_PYTHON": python(),
        "PYSPARK_SUBMIT_ARGS": submit_arguments(master, **more),
        "PYTHONPATH": python_path(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def start(
    workspace: SparkWorkspace,
    *arguments: str,
    master: str = "local[2]",
    settings: dict[str, str] | None = None,
    **config: object,
) -> subprocess.Popen[bytes]:
    """A driver in a session of its own. Its output goes to a file in the work folder."""
    command = list(arguments) or ["-c", _COMMAND, "run", str(DRIVER), "--json", "--spark-log"]
    number = len(list(workspace.work.glob("driver-*.log")))
    log = workspace.work / f"driver-{number}.log"
    with log.open("wb") as output:
        return subprocess.Popen(
            [python(), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment({"work": str(workspace.work), **config}, master=master, **(settings or {})),
            cwd=workspace.work,
            start_new_session=True,
        )


def said(workspace: SparkWorkspace) -> str:
    """The newest driver's last words."""
    newest = max(workspace.work.glob("driver-*.log"), key=lambda path: int(path.stem.partition("-")[2]))
    return f"{newest.name}: {newest.read_text(errors='replace')[-3000:]}"


def run_to_end(workspace: SparkWorkspace, *arguments: str, **config: object) -> int:
    """Start a driver and wait for its exit code; a killed one has -9."""
    process = start(workspace, *arguments, **config)
    with ended_at_last(process):
        return process.wait(PATIENCE_S)


def members(session: int) -> list[int]:
    """The processes of a session, its leader last."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    found.append(int(entry.name))
            except (ProcessLookupError, PermissionError):
                continue
    return sorted(found, key=lambda pid: pid == session)


def signal_session(process: subprocess.Popen[bytes], number: int) -> None:
    """One signal to all of a driver's session: the driver, its JVM, and their Python workers."""
    for pid in members(process.pid):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the whole session; afterwards nobody of it runs."""
    while _alive(process.pid):
        signal_session(process, signal.SIGKILL)
        if process.poll() is None:
            process.wait(PATIENCE_S)


def _alive(session: int) -> list[int]:
    """Members that still run; one that waits to be reaped by its parent does no harm."""
    alive = []
    for pid in members(session):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                alive.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return alive


@contextmanager
def ended_at_last(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever the test does, nothing that it started outlives it."""
    try:
        yield
    finally:
        for process in processes:
            for pid in _alive(process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait(PATIENCE_S)
