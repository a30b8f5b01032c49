"""An epoch of ten thousand slots: manifest written, read back, planned and settled; beside one of a hundred."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.measure import Ratio

FEW, MANY = 100, 10_000


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Each in a process of its own, so that its memory is its own."""
    folder.mkdir(parents=True)
    results: dict[int, list[tuple[float, float]]] = {FEW: [], MANY: []}
    for repeat in range(5):
        for slots in (FEW, MANY):
            work = folder / f"{slots}-{repeat}"
            script = [sys.executable, "-m", "benchmarks.slots_once", str(slots), str(work)]
            found = json.loads(subprocess.run(script, check=True, capture_output=True, text=True).stdout)
            results[slots].append((found["seconds"], found["megabytes"]))
    seconds = {slots: statistics.median(s for s, _ in values) for slots, values in results.items()}
    megabytes = statistics.median(m for _, m in results[MANY])
    console.print(f"  {FEW} slots {seconds[FEW]:.3f} s, {MANY} slots {seconds[MANY]:.3f} s", style="dim")
    yield Ratio(f"{MANY:,} slots, seconds", f"{seconds[MANY]:.2f} s", "2 s", seconds[MANY] / 2.0, "<= 1")
    yield Ratio(f"{MANY:,} slots, memory", f"{megabytes:.0f} MB", "200 MB", megabytes / 200.0, "<= 1")
    per_slot = seconds[MANY] / MANY / (seconds[FEW] / FEW)
    yield Ratio(
        f"time a slot, {MANY:,} slots / {FEW} slots",
        f"{seconds[MANY] / MANY * 1e6:.0f} µs",
        f"{seconds[FEW] / FEW * 1e6:.0f} µs",
        per_slot,
        "<= 1.5",
    )
