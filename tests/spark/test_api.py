"""A real job with its API: asked, measured, told to log more, stopped by the command; and a stop that nobody awaits."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onceward.api import ApiConfig, Discovery, Driver, find_driver, read_discovery

from .processes import ended_at_last, environment
from .workspace import PATIENCE_S, SparkWorkspace, python, wait_until

pytest.importorskip("fastapi", reason="the extra onceward[api] is not installed")

JOB = """
from pathlib import Path
from onceward import Job
from onceward.sinks import FileSink, SQLiteSink

FOLDER = Path(__file__).parent

def views(spark):
    return spark.readStream.schema("app string").json(str(FOLDER / "views"))

job = Job(name="watched", checkpoint=FOLDER / "checkpoint", output_mode="update", trigger="500 milliseconds",
          pipeline=lambda spark: views(spark).groupBy("app").count(),
          sinks=[SQLiteSink(FOLDER / "pv.db", table="pv", mode="upsert", keys=["app"]),
                 FileSink(FOLDER / "out", format="jsonl")])
"""


def onceward(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [python(), "-m", "onceward", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment({}), cwd=folder, check=False
    )


def metrics(found: Discovery) -> str:
    request = urllib.request.Request(f"{found.url}/metrics", headers={"Authorization": f"Bearer {found.token}"})
    return str(urllib.request.urlopen(request, timeout=60).read().decode())


def add(folder: Path, name: str) -> None:
    """A whole file at once."""
    (folder / name).write_text('{"app": "maps"}\n{"app": "mail"}\n')
    (folder / name).rename(folder / "views" / name)


def test_a_running_job_is_asked_measured_and_stopped_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    add(tmp_path, "0.json")
    log, checkpoint = tmp_path / "log", tmp_path / "checkpoint"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python(), "-m", "onceward", "run", "job.py", "--api", "--log", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
            env={**environment({}), "XDG_CACHE_HOME": str(tmp_path)},
            cwd=tmp_path,
            start_new_session=True,
        )
    with ended_at_last(process):
        wait_until(lambda: process.poll() is not None or read_discovery(checkpoint), "no API")
        driver = find_driver(checkpoint)
        assert isinstance(driver, Driver), log.read_text()
        wait_until(lambda: driver.get("/v1/status")["settled"] == 0, "epoch 0 is not settled")
        _ask(driver, process.pid)
        _log_more(driver, tmp_path)
        _look_by_the_command(tmp_path, process.pid)
        done = onceward("stop", checkpoint, "--json", folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout) == {"stopped": True, "pid": process.pid, "decided": 1, "settled": 1}
        assert process.wait(PATIENCE_S) == 0, log.read_text()
    assert read_discovery(checkpoint) is None
    _every_line_is_json(log.read_text(), driver.found.token)
    again = onceward("stop", checkpoint, "--json", folder=tmp_path)
    assert again.returncode == 2
    assert "SIGTERM" in json.loads(again.stdout)["hint"]
    files = json.loads(onceward("status", checkpoint, "--json", folder=tmp_path).stdout)
    assert (files["driver"], files["settled"]) == (None, 1)
    assert "from files" in onceward("status", checkpoint, folder=tmp_path).stdout


def _ask(driver: Driver, pid: int) -> None:
    status = driver.get("/v1/status")
    assert (status["name"], status["active"], status["pid"], status["error"]) == ("watched", True, pid, None)
    assert [sink["name"] for sink in status["sinks"]] == ["sqlite:pv", "files:out"]
    wait_until(lambda: driver.get("/v1/epochs/0")["attempts"][-1]["engine_ms"], "Spark has not reported")
    (attempt,) = driver.get("/v1/epochs/0")["attempts"]
    assert attempt["outcome"] == "settled"
    assert {"planning", "barrier", "staging", "manifest", "decision", "settle"} <= set(attempt["phases"])
    assert attempt["input_rows"] == 2
    assert [size["name"] for size in attempt["state"]] == ["stateStoreSave"]
    assert driver.get("/v1/summary")["settled"] == 1
    fresh = driver.get("/v1/transactions?fresh=true")
    assert (fresh["transactions"], [one["sink"] for one in fresh["sinks"]]) == ([], ["files:out"])
    text = metrics(driver.found)
    for line in (
        'onceward_epochs_total{outcome="settled"} 1.0',
        'onceward_settled_rows_total{sink="sqlite:pv"} 2.0',
        'onceward_newest_epoch{step="settled"} 0.0',
        'onceward_state_rows{name="stateStoreSave",operator="0"} 2.0',
        "onceward_input_rows_total 2.0",
        "onceward_run_active 1.0",
    ):
        assert line in text.splitlines(), text


def _log_more(driver: Driver, folder: Path) -> None:
    token = {"Authorization": f"Bearer {driver.found.token}", "Content-Type": "application/json"}
    body = b'{"level": "DEBUG"}'
    request = urllib.request.Request(f"{driver.found.url}/v1/log-level", data=body, headers=token, method="PUT")
    assert json.loads(urllib.request.urlopen(request, timeout=60).read()) == {"level": "DEBUG"}
    add(folder, "1.json")
    wait_until(lambda: driver.get("/v1/status")["settled"] == 1, "epoch 1 is not settled")


def _look_by_the_command(folder: Path, pid: int) -> None:
    looked = json.loads(onceward("status", folder / "checkpoint", "--json", folder=folder).stdout)
    assert (looked["settled"], looked["driver"]["pid"], looked["driver"]["limit"]) == (1, pid, 10)
    printed = onceward("status", folder / "checkpoint", folder=folder).stdout
    assert f"from the running driver: process {pid} on" in printed


def _every_line_is_json(text: str, token: str) -> None:
    assert token not in text
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, lines))
    settled = next(line for line in lines if line["message"] == "epoch 1 is settled")
    assert (settled["job"], settled["epoch"], settled["level"]) == ("watched", 1, "DEBUG")
    delivered = [line for line in lines if line.get("sink") == "sqlite:pv" and line.get("epoch") == 1]
    assert delivered
    assert any(line["message"] == "asked to stop through the API" for line in lines)


def test_a_run_that_nobody_waits_for_stops_when_it_is_asked(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """As in a notebook."""
    workspace.add_files(1)
    run = workspace.job(trigger="100 milliseconds", api=ApiConfig()).start(spark)
    wait_until(lambda: run.status().settled == 0, "epoch 0 is not settled")
    driver = find_driver(workspace.checkpoint)
    assert isinstance(driver, Driver)
    driver.stop()
    assert driver.await_end(PATIENCE_S)
    assert not run.query.isActive
    assert run.await_termination(timeout_s=PATIENCE_S)
    assert run.status().error is None


def test_who_waits_is_told_how_the_stop_went_and_a_second_request_does_no_harm(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(1)
    run = workspace.job(trigger="100 milliseconds").start(spark)
    wait_until(lambda: run.status().settled == 0, "epoch 0 is not settled")
    run.request_stop()
    run.request_stop()
    assert run.is_stopping
    assert run.await_termination(timeout_s=PATIENCE_S)
    assert not run.query.isActive
    run.stop()
