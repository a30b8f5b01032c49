"""What recovery adds to a restart: a crashed job's survey, plan and publication against Spark's own start-up."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.measure import Ratio


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Each restart in a process of its own, after a kill in mid-epoch."""
    folder.mkdir(parents=True)
    starts: list[tuple[float, float]] = []
    for repeat in range(6):
        script = [sys.executable, "-m", "benchmarks.restart_once", str(folder)]
        done = subprocess.run(script, check=False, capture_output=True, text=True)
        line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
        if line is None:
            raise RuntimeError(f"the restarted driver said nothing:\n{done.stderr[-2000:]}")
        if repeat:
            found = json.loads(line)
            starts.append((found["recovery"], found["spark"]))
    recovery, spark = (statistics.median(values) for values in zip(*starts, strict=True))
    console.print(f"  recovery {recovery * 1000:.0f} ms, Spark {spark:.2f} s", style="dim")
    yield Ratio(
        "recovery / Spark's own start-up", f"{recovery * 1000:.0f} ms", f"{spark:.2f} s", recovery / spark, "<= 0.1"
    )
