"""How long a new user waits: `onceward init`, then `onceward run`, for three rows in a folder of its own."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.measure import Ratio, rounds, timed

GOAL_S = 15


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Spark as it comes: without the archive of classes that the tests start it with."""
    plain = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    numbers = itertools.count()

    def first_run() -> float:
        work = folder / f"work-{next(numbers)}"
        work.mkdir(parents=True)
        return timed(lambda: [_onceward(command, work, plain) for command in ("init", "run")])

    seconds = rounds({"init and run": first_run}, repeats=3, console=console, warm_up=0)
    took = statistics.median(seconds["init and run"])
    yield Ratio("onceward init, onceward run, 3 rows", f"{took:.1f} s", f"{GOAL_S} s", took / GOAL_S, "<= 1")


def _onceward(command: str, work: Path, environment: dict[str, str]) -> None:
    arguments = [sys.executable, "-m", "onceward", command, "job.py"]
    subprocess.run(arguments, check=True, capture_output=True, cwd=work, env=environment)
