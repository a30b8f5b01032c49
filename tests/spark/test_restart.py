"""A supervised driver on a real Spark: killed, stopped, out of memory, orphaned, told to end. Each row arrives once."""

from __future__ import annotations

import os
import random
import signal
import socket
import tempfile

import pytest
from pyspark.sql import SparkSession

from onceward.restart import How
from onceward.restart.driver_process import living_members

from .processes import ended_at_last, kill, said, start
from .reader import Reader
from .supervised import DRIVER, Supervised, cmdline, kill_all, lives, supervised
from .workspace import PATIENCE_S, SparkWorkspace, wait_until

FOR_EVER = ("--restart", "fixed-delay:-:0.1s", "--heartbeat-timeout", "15 s")


def ends(workspace: SparkWorkspace) -> list[How]:
    return [life.ended.how for life in lives(workspace) if life.ended is not None]


def settled(workspace: SparkWorkspace) -> int:
    folder = workspace.checkpoint / "onceward" / "settled"
    return max((int(path.name) for path in folder.glob("[0-9]*")), default=-1)


def all_published(workspace: SparkWorkspace) -> bool:
    """Not told by the number of epochs: one may have the files of several, if its driver died while it listed them."""
    return {row["id"] for row in workspace.in_table()} >= {*workspace.ids()}


def kill_somehow(job: Supervised, driver: int, number: int) -> How:
    """The driver alone, its JVM alone, or all at once; how that life has ended then."""
    match number % 3:
        case 0:
            os.kill(driver, signal.SIGKILL)
        case 1:
            os.kill(job.jvm(), signal.SIGKILL)
            return How.FAILED
        case _:
            kill_all(driver)
    return How.KILLED


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_stopped_and_orphaned_drivers_are_replaced_and_each_row_arrives_once(
    workspace: SparkWorkspace, kills: int, seed: int
) -> None:
    dice, killed = random.Random(seed), set()
    turn = dice.randrange(3)
    workspace.add_files(1)
    with Reader(workspace) as reader:
        with supervised(workspace, *FOR_EVER, trigger=None, small=1000) as job:
            driver = None
            for number in range(kills):
                driver = job.wait_for_another(driver)
                workspace.add_files(3)
                # At whatever point that is of the epochs that now begin.
                enough = settled(workspace) + dice.randrange(3)
                wait_until(
                    lambda enough=enough: settled(workspace) >= enough or all_published(workspace),
                    "epochs are published",
                )
                killed.add(kill_somehow(job, driver, turn + number))
            driver = job.wait_for_another(driver)
            workspace.add_files(1)
            os.kill(job.jvm(), signal.SIGSTOP)
            driver = job.wait_for_another(driver)
            assert How.HUNG in ends(workspace)
            # The supervisor is killed: its driver ends between two epochs, with everything decided published.
            workspace.add_files(2)
            job.process.kill()
            job.process.wait(PATIENCE_S)
            wait_until(lambda: not living_members(driver), "the driver notices, and ends")
            assert settled(workspace) == workspace.logs.decided()
        before = len(ends(workspace))
        with supervised(workspace, *FOR_EVER, trigger=None, small=1000) as job:
            job.wait_for_another(None)
            assert ends(workspace)[before:] == [How.VANISHED]
            wait_until(lambda: all_published(workspace), "the rest is published")
            os.kill(job.process.pid, signal.SIGTERM)
            assert job.process.wait(PATIENCE_S) == 0, said(workspace)
            assert not job.ready.exists()
    assert ends(workspace)[-1] is How.STOPPED
    assert killed <= {*ends(workspace)}
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
    assert not reader.sights, f"seed {seed}: {reader.sights}"


def test_a_jvm_that_runs_out_of_memory_is_replaced_and_a_crash_loop_ends_with_its_history(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(3)
    (workspace.work / "exhaust").touch()
    with supervised(workspace, "--restart", "fixed-delay:1:0", exhaust="begin", epoch=1, small=1000) as job:
        assert job.process.wait(PATIENCE_S) == 3, said(workspace)
    # The first life published epoch 0, so that its failure is the first of the row.
    assert [life.published for life in lives(workspace)] == [True, False]
    for life in lives(workspace):
        assert life.ended is not None
        assert (life.ended.how, life.ended.exit_code, life.ended.error) == (How.FAILED, 3, "JvmEnded")
        assert "run out of memory" in (life.ended.message or "")
    words = (workspace.work / "driver-0.log").read_text()
    assert words.count("Terminating due to java.lang.OutOfMemoryError") == 2
    assert words.count("warning: restarting tested in 0 s: JvmEnded: Spark's JVM ended with exit code 3") == 1
    history = words[words.index("how it came to this") :]
    assert history.count("JvmEnded") == 2, history
    assert "RestartsExhausted: tested is not started again: 2 failures" in history
    workspace.job().run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


def test_a_driver_of_its_own_tells_systemd_and_stops_between_two_epochs(
    workspace: SparkWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a strategy: one process, as ever."""
    workspace.add_files(2)
    ready, heard = workspace.work / "ready", []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        # In a folder with a short name: there is not room for a long one.
        path = f"{tempfile.mkdtemp()}/notify"
        systemd.bind(path)
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        command = ("run", str(DRIVER), "--spark-log", "--restart", "none", "--ready-file", str(ready))
        process = start(workspace, "-m", "onceward", *command, "--heartbeat-timeout", "2", trigger=None, small=1000)
        with ended_at_last(process):
            while "READY=1" not in heard or heard.count("WATCHDOG=1") < 3:
                heard += systemd.recv(4096).decode().splitlines()
            assert ready.exists()
            assert b"onceward" in cmdline(process.pid)
            wait_until(lambda: settled(workspace) == 1, "both epochs are published")
            # To all of its group, as a terminal or `timeout` does it: Spark is in another one.
            os.killpg(process.pid, signal.SIGTERM)
            while "STOPPING=1" not in heard:
                heard += systemd.recv(4096).decode().splitlines()
            assert process.wait(PATIENCE_S) == 0, said(workspace)
            kill(process)
    assert not ready.exists()
    assert not lives(workspace), "nothing is recorded for a job that is not restarted"
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
