"""A real driver on a real Spark, killed with SIGKILL: at every named point, at random, and paused instead of killed."""

from __future__ import annotations

import json
import random
import signal
import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from .processes import DRIVER, ended_at_last, kill, run_to_end, said, signal_session, start
from .reader import Reader
from .workspace import SparkWorkspace, wait_until

# One start each, one list of them after the other on one checkpoint. A point in recovery needs what the death before it
# left behind. There is one while an epoch is taken over and one while epochs are published, by a start and by `onceward
# recover`, which needs no Spark.
BY_COMMAND = {"recovery-reserved", "recovery-sent"}
DEATHS: list[list[dict[str, Any]]] = [
    [{"die": "begin", "small": 1000}],
    [{"die": "pre-commit", "small": 1000}, {"die": "recovery-reserved"}],
    [{"die": "pre-commit"}, {"die": "recovery-abort"}],
    [{"die": "manifest"}],
    [{"die": "decision"}, {"die": "recovery-publish"}, {"die": "recovery-sent"}],
    [{"die": "slots"}],
    [{"die": "sinks", "small": 1000}],
    [{"die": "sent", "small": 1000}],
    [{"die": "settled", "small": 1000}],
]


@pytest.mark.parametrize("lists", [2, pytest.param(len(DEATHS), marks=pytest.mark.soak)])
def test_killed_at_named_points_each_row_arrives_once_and_from_one_computation(
    workspace: SparkWorkspace, seed: int, lists: int
) -> None:
    """At some of them, others each time, and by `make soak` at every one."""
    drawn = sorted(random.Random(seed).sample(range(len(DEATHS)), lists))
    points = [{**point, "epoch": epoch} for epoch, number in enumerate(drawn, 1) for point in DEATHS[number]]
    # Who dies while it publishes has decided a few epochs more by then.
    workspace.add_files(2 * lists + 2)
    recover = ["-m", "onceward", "recover", str(workspace.checkpoint), "--job", str(DRIVER)]
    with Reader(workspace) as reader:
        for number, config in enumerate(points):
            code = run_to_end(workspace, *(recover if config["die"] in BY_COMMAND else []), **config)
            assert code == -signal.SIGKILL, f"start {number}, {config}: ended with {code}; {said(workspace)}"
        assert run_to_end(workspace) == 0, said(workspace)
    words = (workspace.work / f"driver-{len(points)}.log").read_text()
    settled = json.loads(words[words.index("{\n") :])["settled"]
    assert settled == workspace.logs.planned(), "the command ends with its status as JSON"
    deaths = [line.split()[0] for line in (workspace.work / "deaths").read_text().splitlines()]
    assert deaths == [config["die"] for config in points]
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
    assert not reader.sights, reader.sights
    assert reader.looks > len(points)


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_random_a_reader_never_sees_a_duplicate_or_anything_early(
    workspace: SparkWorkspace, spark: SparkSession, seed: int, kills: int
) -> None:
    dice = random.Random(seed)
    with Reader(workspace) as reader:
        for _ in range(kills):
            workspace.add_files(dice.randrange(3, 7))
            start_and_kill(workspace, small=dice.choice([0, 1000]), after_s=dice.uniform(0.0, 5.0))
        workspace.job().run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
    assert not reader.sights, reader.sights


def start_and_kill(workspace: SparkWorkspace, *, small: int, after_s: float) -> None:
    """Kill so long after Spark has come up, when recovery is next."""
    before = starts(workspace)
    process = start(workspace, trigger=None, small=small)
    with ended_at_last(process):
        wait_until(lambda: starts(workspace) > before or process.poll() is not None, "the driver starts")
        threading.Event().wait(after_s)
        assert process.poll() is None, said(workspace)
        kill(process)


def starts(workspace: SparkWorkspace) -> int:
    """How many drivers have come so far that recovery is next."""
    path = workspace.work / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_paused_drivers_that_wake_after_a_takeover_are_fenced(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """The first sleeps before it stages epoch 2, the second after it has staged epoch 4; the third drains."""
    workspace.add_files(6)
    first = start(workspace, pause="begin", epoch=2, small=1000)
    with ended_at_last(first):
        wait_until(lambda: (workspace.work / "paused-begin").exists() or first.poll() is not None, "the first pauses")
        signal_session(first, signal.SIGSTOP)
        second = start(workspace, pause="pre-commit", epoch=4)
        with ended_at_last(second):
            paused = workspace.work / "paused-pre-commit"
            wait_until(lambda: paused.exists() or second.poll() is not None, "the second pauses")
            signal_session(second, signal.SIGSTOP)
            workspace.job().run(spark)
            workspace.expect_exactly_once()
            (workspace.work / "go-begin").touch()
            (workspace.work / "go-pre-commit").touch()
            for process in (first, second):
                signal_session(process, signal.SIGCONT)
            for number, process in enumerate((first, second)):
                words = workspace.work / f"driver-{number}.log"
                assert process.wait(240) == 4, words.read_text()[-3000:]
                assert '"error": "Fenced"' in words.read_text()
    workspace.expect_exactly_once()
    # What the first staged after it woke is an orphan now; the next start removes it.
    workspace.job().run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()


@pytest.mark.parametrize("small", [0, 1000])
def test_a_deleted_commit_entry_makes_spark_repeat_the_epoch_and_the_targets_not(
    workspace: SparkWorkspace, spark: SparkSession, small: int
) -> None:
    workspace.add_files(3)
    workspace.job(small_epoch_rows=small).run(spark)
    before = workspace.in_table()
    for _ in range(2):
        workspace.forget_commit(workspace.logs.planned())
        workspace.job(small_epoch_rows=small).run(spark)
        assert workspace.in_table() == before
        workspace.expect_exactly_once()
    workspace.add_files(1)
    workspace.job(small_epoch_rows=small).run(spark)
    workspace.expect_exactly_once()
    workspace.expect_nothing_staged()
