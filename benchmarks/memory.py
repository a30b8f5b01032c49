"""Memory of executors and driver for an epoch of a million rows and for one of ten million."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from benchmarks.measure import Ratio, narrow_rows

FEW, MANY = 1_000_000, 10_000_000
WAYS = {
    "postgres append": "PostgresSink append (two-phase commit)",
    "postgres upsert": "PostgresSink upsert (write-ahead log)",
    "mysql append": "MySQLSink append (XA)",
}


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Each in a process of its own, so that its memory is its own."""
    sources = {rows: narrow_rows(folder / f"{rows}", rows=rows, files=1) for rows in (FEW, MANY)}
    for way, what in WAYS.items():
        found = {rows: _once(way, rows, source, folder / f"{way} {rows}") for rows, source in sources.items()}
        for who in ("executor", "driver"):
            few, many = found[FEW][who], found[MANY][who]
            console.print(f"  {way}, {who}: {few:.0f} and {many:.0f} MB", style="dim")
            yield Ratio(
                f"{what}: memory of the {who}, an epoch of 10 million rows / of 1 million",
                f"{many:.0f} MB",
                f"{few:.0f} MB",
                many / few,
                "<= 1.25",
            )


def _once(way: str, rows: int, source: Path, work: Path) -> dict[str, float]:
    script = [sys.executable, "-m", "benchmarks.memory_once", way, str(rows), str(source), str(work)]
    done = subprocess.run(script, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
