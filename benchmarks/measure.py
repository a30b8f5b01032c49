"""What the benchmarks share: a session, an input, and a ratio with its goal."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console

JARS = Path(__file__).resolve().parent.parent / ".jars"
CONNECTOR = JARS / "kafka-connector"
ROW_SCHEMA = "id long, app string, value double, ts timestamp"
NO_GOAL = "-"
SHARE = float(os.environ.get("ONCEWARD_BENCH_SHARE", "1"))
"""Of the rows, on a machine that has little time; the results count only with all of them."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours against the peer's, and what it should be: at least (`>=`) or at most (`<=`) the goal, or nothing (`-`)."""

    what: str
    ours: str
    peer: str
    value: float
    goal: str

    @property
    def is_met(self) -> bool:
        """Whether the goal is reached, if there is one."""
        if self.goal == NO_GOAL:
            return True
        comparison, bound = self.goal.split()
        return self.value >= float(bound) if comparison == ">=" else self.value <= float(bound)


def rates(what: str, *, rows: int, ours: float, peer: float, goal: str = NO_GOAL) -> Ratio:
    """The ratio of the speeds, from the seconds that each took."""
    return Ratio(what, f"{rows / ours:,.0f} rows/s", f"{rows / peer:,.0f} rows/s", peer / ours, goal)


def share_of(rows: int) -> int:
    """All of them, unless `ONCEWARD_BENCH_SHARE` asks for less; in whole thousands."""
    return max(1000, int(rows * SHARE) // 1000 * 1000)


def session(cores: int = 2) -> SparkSession:
    """Local Spark as a user would start it, quiet."""
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("onceward benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        # On few cores the threads of the default collector come and go, and with them up to half of the processor time.
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", ",".join(str(jar) for jar in [*JARS.glob("*.jar"), *CONNECTOR.glob("*.jar")]))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def narrow_rows(folder: Path, *, rows: int, files: int) -> Path:
    """Parquet files of narrow rows (bigint, short text, double, timestamp), the same in every run."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    chance = np.random.default_rng(20261115)
    apps = pa.array([f"app-{number:02}" for number in range(20)])
    start = int(datetime(2026, 1, 1).timestamp() * 1_000_000)
    each = rows // files
    for number in range(files):
        ids = np.arange(number * each, (number + 1) * each)
        table = pa.table(
            {
                "id": ids,
                "app": apps.take(pa.array(chance.integers(0, 20, each))),
                "value": chance.random(each),
                "ts": pa.array(start + ids * 1000, pa.timestamp("us", "UTC")),
            }
        )
        # Several row groups, so that Spark can read one file with two tasks.
        pq.write_table(table, folder / f"{number:03}.parquet", row_group_size=125_000)
    return folder


def interleaved(
    contenders: Mapping[str, Callable[[], float]], *, repeats: int, console: Console, warm_up: int = 1
) -> dict[str, float]:
    """The median seconds of each contender, run in turns so that a noisy minute hits all of them alike."""
    seconds = rounds(contenders, repeats=repeats, console=console, warm_up=warm_up)
    return {name: statistics.median(values) for name, values in seconds.items()}


def rounds(
    contenders: Mapping[str, Callable[[], float]], *, repeats: int, console: Console, warm_up: int = 1
) -> dict[str, list[float]]:
    """The same, round by round: two contenders of one round had the same minute."""
    for _ in range(warm_up):
        for contender in contenders.values():
            contender()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            seconds[name].append(contender())
    for name, values in seconds.items():
        console.print(f"  {name}: " + ", ".join(f"{value:.3f}" for value in values) + " s", style="dim")
    return seconds


def in_two_processes(load: Callable[..., None], *arguments: object) -> float:
    """Seconds that `load(half, ready, go, *arguments)` takes in two processes, once both have their rows."""
    spawning = multiprocessing.get_context("spawn")
    ready, go = spawning.Semaphore(0), spawning.Event()
    workers = [spawning.Process(target=load, args=(half, ready, go, *arguments)) for half in (0, 1)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    started = time.perf_counter()
    go.set()
    for worker in workers:
        worker.join()
    return time.perf_counter() - started


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def processor_seconds(work: Callable[[], object]) -> float:
    """Processor time that the work takes in this process and all below it: Spark's JVM and its Python workers.

    On a shared machine it says more than the clock, which also counts what others do.
    """
    before = _ticks()
    work()
    return (_ticks() - before) / os.sysconf("SC_CLK_TCK")


def _ticks() -> int:
    stats: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            stats[int(entry.name)] = int(fields[1]), sum(int(field) for field in fields[11:15])
    family = {os.getpid()}
    while more := {pid for pid, (parent, _) in stats.items() if parent in family and pid not in family}:
        family |= more
    return sum(stats[pid][1] for pid in family if pid in stats)
