"""Savepoints of a job that runs in a process of its own: while it is killed again and again, and when it is stopped."""

from __future__ import annotations

import json
import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceward.api import read_discovery
from onceward.cli.app import app
from onceward.cli.savepoint_take import take
from onceward.errors import ConfigurationError
from onceward.savepoints import list_savepoints, restore_savepoint, verify_savepoint
from onceward.spark.checkpoint import SparkLogs

from .processes import ended_at_last, kill, said
from .tallies import JOB, Tallies, expect_tallies
from .workspace import PATIENCE_S, SparkWorkspace, wait_until

EVERY_S = 1.0
KILLS = 30
SNAPSHOTS = {
    "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}
"""So that state files come and go while they are copied."""


class Taker:
    """Gives the command again and again, as a timer of the user's would. The driver is asked if one answers."""

    def __init__(self, checkpoint: Path, folder: Path) -> None:
        self._checkpoint, self.folder = checkpoint, folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="taker", daemon=True)
        self.failures: list[BaseException] = []

    def __enter__(self) -> Taker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(EVERY_S):
            try:
                take(str(self._checkpoint), str(self.folder), json=True)
            except ConfigurationError as error:
                if self.taken():
                    self.failures.append(error)  # Only before its first epoch there is nothing to take.
            except BaseException as error:
                self.failures.append(error)

    def taken(self) -> list[Path]:
        return [one.path for one in list_savepoints(self.folder)] if self.folder.exists() else []


@pytest.fixture
def tallies(tmp_path: Path) -> Tallies:
    return Tallies(tmp_path)


@pytest.mark.soak
def test_savepoints_taken_every_second_of_a_job_that_is_killed_are_whole_and_go_on_right(
    tallies: Tallies, spark: SparkSession, seed: int, record_sweep: list[str]
) -> None:
    dice = random.Random(seed)
    with Taker(tallies.checkpoint, tallies.work / "saved") as taker:
        for _ in range(KILLS):
            tallies.add_files(dice.randrange(4, 8))
            live_and_die(tallies, dice, taker)
    assert not taker.failures, f"seed {seed}: {taker.failures}"
    found = taker.taken()
    assert found
    assert [verify_savepoint(path)[1] for path in found] == [[]] * len(found), f"seed {seed}"
    tallies.job().run(spark)
    for rows in (tallies.in_files(), tallies.in_table()):
        expect_tallies(rows, tallies.last())
    take(str(tallies.checkpoint), str(taker.folder), json=True)
    assert not list(taker.folder.glob(".*")), "what killed drivers have left of savepoints goes with the next one"
    tallies.checkpoint.rename(tallies.work / "gone")
    for number, path in enumerate(dice.sample(found, KILLS // 5)):
        copy = replace(tallies, at=f"elsewhere/{number}", out=f"out-{number}")
        saved = restore_savepoint(path, copy.checkpoint).savepoint
        copy.job().run(spark)
        for rows in (copy.in_files(), copy.in_table()):
            expect_tallies([*tallies.in_files(up_to=saved.epoch), *rows], tallies.last())
    record_sweep.append(f"savepoints of a job whose driver was killed {KILLS} times: {len(found)} taken, seed {seed}")


def live_and_die(tallies: Tallies, dice: random.Random, taker: Taker) -> None:
    """Kill it some time after a savepoint more was taken, or before that: while it recovers."""
    before, taken = tallies.starts(), len(taker.taken())
    process = replace(tallies, trigger=None).start(settings=SNAPSHOTS)
    with ended_at_last(process):
        wait_until(lambda: tallies.starts() > before or process.poll() is not None, "the driver starts")
        if not taken or dice.random() < 0.8:
            wait_until(
                lambda: len(taker.taken()) > taken or taker.failures or process.poll() is not None, "one is taken"
            )
        threading.Event().wait(dice.uniform(0.0, 4.0))
        assert process.poll() is None, said(SparkWorkspace(tallies.work))
        kill(process)


def test_stopped_with_a_savepoint_a_job_goes_on_elsewhere_where_it_ended(
    tallies: Tallies, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tallies.add_files(4)
    process = replace(tallies, trigger="100 milliseconds").start(settings=SNAPSHOTS)
    with ended_at_last(process):
        wait_until(lambda: process.poll() is not None or SparkLogs(tallies.checkpoint).decided() >= 1, "it runs")
        assert read_discovery(tallies.checkpoint) is not None, said(SparkWorkspace(tallies.work))
        tallies.add_files(20)
        stopped = onceward("stop", tallies.checkpoint, "--savepoint", tallies.work / "saved")
        assert process.wait(PATIENCE_S) == 0, said(SparkWorkspace(tallies.work))
    logs, saved = SparkLogs(tallies.checkpoint), stopped["savepoint"]
    assert saved["epoch"] == stopped["decided"] == stopped["settled"] == logs.decided()
    assert logs.planned() - logs.decided() in (0, 1), "Spark may have planned the epoch that was not begun any more"
    assert saved["epoch"] < 20, "it was to be stopped in the middle"
    shutil.rmtree(tallies.checkpoint)
    moved = replace(tallies, at="another place/checkpoint")
    monkeypatch.setenv("ONCEWARD_TEST", moved.environment())
    restored = onceward("savepoint", "restore", saved["path"], moved.checkpoint, "--job", JOB)
    assert [one["later"] for one in restored["sinks"]] == [None, None, None], "nothing is ahead of it"
    moved.job().run(spark)
    for rows in (moved.in_files(), moved.in_table()):
        expect_tallies(rows, tallies.last())
    assert set(moved.in_table("latest")) == tallies.last()


def onceward(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found
