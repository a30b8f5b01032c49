"""Runs the benchmarks named on the command line, or all of them, and prints one table."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import NO_GOAL, SHARE, Ratio

NAMES = (
    "files",
    "small",
    "checks",
    "wal",
    "slots",
    "restart",
    "first_run",
    "postgres",
    "mysql",
    "redis",
    "kafka",
    "kafka_latency",
    "memory",
    "looks",
    "history",
    "savepoints",
    "operators",
    "dashboard",
    "watched",
)
OPTIONAL = ("flink",)
"""Only when named: they need more than `make bench` sets up."""


def main() -> int:
    """0 when every ratio meets its goal."""
    names = sys.argv[1:] or NAMES
    unknown = [name for name in names if name not in NAMES + OPTIONAL]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are: {', '.join(NAMES + OPTIONAL)}", file=sys.stderr)
        return 2
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    console = Console(highlight=False, soft_wrap=True)
    ratios: list[Ratio] = []
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        for name in names:
            console.print(f"[bold]{name}[/] (load {os.getloadavg()[0]:.1f})")
            for ratio in importlib.import_module(f"benchmarks.{name}").run(Path(folder) / name, console):
                console.print(f"  {ratio.what}: {ratio.ours} / {ratio.peer} = {ratio.value:.3g} (goal {ratio.goal})")
                ratios.append(ratio)
    title = "benchmarks (medians)" if SHARE == 1 else f"benchmarks (medians, {SHARE:.0%} of the rows)"
    table = Table("what", "ours", "peer", "ratio", "goal", "", title=title, title_justify="left")
    for ratio in ratios:
        verdict = "" if ratio.goal == NO_GOAL else "[green]met[/]" if ratio.is_met else "[red]missed[/]"
        table.add_row(ratio.what, ratio.ours, ratio.peer, f"{ratio.value:.3g}", ratio.goal, verdict)
    console.print(table)
    return 0 if all(ratio.is_met for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
