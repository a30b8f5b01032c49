"""A real driver on a real Spark, killed with SIGKILL: at every named point, at random, and paused instead of killed."""

from __future__ import annotations

import json
import os
import random
import signal
import threading

import pytest
from pyspark.sql import SparkSession

from .ground import Ground, wait_until
from .processes import ended_at_last, kill, run_to_end, said, signal_session, start
from .reader import Reader

KILLS = 8

# One start each, on one checkpoint. A point in recovery needs what the death before it left behind.
POINTS = [
    {"die": "begin", "epoch": 1},
    {"die": "pre-commit", "epoch": 2, "small": 1000},
    {"die": "recovery-reserved"},
    {"die": "pre-commit", "epoch": 2},
    {"die": "recovery-abort"},
    {"die": "manifest", "epoch": 3},
    {"die": "decision", "epoch": 4},
    {"die": "recovery-publish"},
    {"die": "recovery-sent"},
    {"die": "slots", "epoch": 5},
    {"die": "sinks", "epoch": 6},
    {"die": "sent", "epoch": 7, "small": 1000},
    {"die": "settled", "epoch": 8},
]


def test_killed_at_every_named_point_each_row_arrives_once_and_from_one_computation(ground: Ground) -> None:
    ground.add_files(12)
    with Reader(ground) as reader:
        for number, config in enumerate(POINTS):
            code = run_to_end(ground, **config)
            assert code == -signal.SIGKILL, f"start {number}, {config}: ended with {code}; {said(ground)}"
        assert run_to_end(ground) == 0, said(ground)
    words = (ground.work / f"driver-{len(POINTS)}.log").read_text()
    settled = json.loads(words[words.index("{\n") :])["settled"]
    assert settled == ground.logs.planned(), "the command ends with its status as JSON"
    deaths = [line.split()[0] for line in (ground.work / "deaths").read_text().splitlines()]
    assert deaths == [config["die"] for config in POINTS]
    ground.expect_exactly_once()
    ground.expect_nothing_staged()
    assert not reader.sights, reader.sights
    assert reader.looks > len(POINTS)


def test_killed_at_random_a_reader_never_sees_a_duplicate_or_anything_early(
    ground: Ground, record_property: pytest.RecordProperty
) -> None:
    seed = int(os.environ.get("ONCEWARD_SEED", random.SystemRandom().randrange(10**6)))
    print(f"ONCEWARD_SEED={seed}")
    record_property("seed", seed)
    dice = random.Random(seed)
    with Reader(ground) as reader:
        for _ in range(KILLS):
            ground.add_files(dice.randrange(3, 7))
            start_and_kill(ground, small=dice.choice([0, 1000]), after_s=dice.uniform(0.0, 5.0))
        assert run_to_end(ground) == 0, said(ground)
    ground.expect_exactly_once()
    ground.expect_nothing_staged()
    assert not reader.sights, f"seed {seed}: {reader.sights}"


def start_and_kill(ground: Ground, *, small: int, after_s: float) -> None:
    """Kill so long after Spark has come up, when recovery is next."""
    before = starts(ground)
    process = start(ground, trigger=None, small=small)
    with ended_at_last(process):
        wait_until(lambda: starts(ground) > before or process.poll() is not None, "the driver starts")
        threading.Event().wait(after_s)
        assert process.poll() is None, said(ground)
        kill(process)


def starts(ground: Ground) -> int:
    """How many drivers have come so far that recovery is next."""
    path = ground.work / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_paused_drivers_that_wake_after_a_takeover_are_fenced(ground: Ground, spark: SparkSession) -> None:
    """The first sleeps before it stages epoch 2, the second after it has staged epoch 4; the third drains."""
    ground.add_files(6)
    first = start(ground, pause="begin", epoch=2)
    with ended_at_last(first):
        wait_until(lambda: (ground.work / "paused-begin").exists() or first.poll() is not None, "the first pauses")
        signal_session(first, signal.SIGSTOP)
        second = start(ground, pause="pre-commit", epoch=4)
        with ended_at_last(second):
            paused = ground.work / "paused-pre-commit"
            wait_until(lambda: paused.exists() or second.poll() is not None, "the second pauses")
            signal_session(second, signal.SIGSTOP)
            assert run_to_end(ground) == 0, said(ground)
            ground.expect_exactly_once()
            (ground.work / "go-begin").touch()
            (ground.work / "go-pre-commit").touch()
            for process in (first, second):
                signal_session(process, signal.SIGCONT)
            for number, process in enumerate((first, second)):
                words = ground.work / f"driver-{number}.log"
                assert process.wait(240) == 4, words.read_text()[-3000:]
                assert '"error": "Fenced"' in words.read_text()
    ground.expect_exactly_once()
    # What the first staged after it woke is an orphan now; the next start removes it.
    ground.job().run(spark)
    ground.expect_exactly_once()
    ground.expect_nothing_staged()


@pytest.mark.parametrize("small", [0, 1000])
def test_a_deleted_commit_entry_makes_spark_repeat_the_epoch_and_the_targets_not(
    ground: Ground, spark: SparkSession, small: int
) -> None:
    ground.add_files(3)
    ground.job(small_epoch_rows=small).run(spark)
    before = ground.in_table()
    for _ in range(2):
        ground.forget_commit(ground.logs.planned())
        ground.job(small_epoch_rows=small).run(spark)
        assert ground.in_table() == before
        ground.expect_exactly_once()
    ground.add_files(1)
    ground.job(small_epoch_rows=small).run(spark)
    ground.expect_exactly_once()
    ground.expect_nothing_staged()
