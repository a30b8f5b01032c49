"""The director: starts the driver, kills it, starts it again, and in the end looks into every target."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from onceward.demo.pageviews import (
    WATCHED,
    Audit,
    compare,
    expected_updates,
    newest,
    read_parquet,
    read_table,
    write_input,
)
from onceward.errors import OncewardError
from onceward.spark.checkpoint import SparkLogs

FILES_PER_START = 4
"""An epoch has one. A start is killed after two or three of them, so that there is work left for the last."""
VIEWS_PER_FILE = 2000
_PATIENCE_S = 180.0
_ERROR = re.compile(r"[\w.]*(Error|Exception|Fenced|Lost|Refused|Failed)\b.*:")


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the audit found, ours and the naive job's."""

    seed: int
    kills: int
    seconds: float
    onceward: tuple[Audit, ...]
    naive: tuple[Audit, ...]

    @property
    def clean(self) -> bool:
        """Whether every target of ours has every row once."""
        return all(audit.clean for audit in self.onceward)


class DriverFailed(OncewardError):
    """The driver ended without being killed; its folder is left for a look."""


def play(
    *, kills: int = 5, seed: int | None = None, folder: str | None = None, quiet: bool = False, watch: bool = False
) -> DemoResult:
    """Run it all. The work folder is temporary unless one is given; it must not exist yet. With `watch` the dashboard
    shows it in a browser, and stays until Ctrl-C."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    console = Console(highlight=False, quiet=quiet, soft_wrap=True)
    work = Path(folder).resolve() if folder else Path(tempfile.mkdtemp(prefix="onceward-demo-"))
    if folder and work.exists():
        raise OncewardError(f"{work} exists already", hint="name a folder that does not exist yet")
    files = FILES_PER_START * (kills + 1)
    started = time.monotonic()
    dashboard: subprocess.Popen[bytes] | None = None
    try:
        write_input(work / "input", files=files, views_per_file=VIEWS_PER_FILE, seed=seed)
        console.print(
            f"{files * VIEWS_PER_FILE:,} page views of 5 apps, {files} epochs; two jobs in one Spark driver:\n"
            "  [bold green]onceward[/]  counts per app into SQLite (upsert) and Parquet, exactly-once\n"
            "  [bold yellow]naive[/]     the same counts, appended to SQLite and Parquet in a plain foreachBatch\n"
            f"the driver will be killed with SIGKILL {kills} times (seed {seed})\n"
        )
        if watch:
            os.environ[WATCHED] = "1"
            command = [sys.executable, "-m", "onceward", "dashboard", str(work), "--open"]
            # Standard output may be for a program, and is then one JSON document.
            dashboard = subprocess.Popen(command, stdout=sys.stderr if quiet else None)
        _kill_and_restart(work, files=files, kills=kills, chance=random.Random(seed), console=console)
        result = _audit(work, seed=seed, kills=kills, seconds=time.monotonic() - started)
        _show(result, console)
        if folder:
            console.print(f"\nleft in {work}; try: onceward status {work}/onceward-checkpoint")
        if dashboard is not None:
            console.print("\nthe dashboard stays until Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                dashboard.wait()
        return result
    except DriverFailed:
        folder = str(work)
        raise
    finally:
        if dashboard is not None and dashboard.poll() is None:
            dashboard.terminate()
            dashboard.wait()
        if not folder:
            shutil.rmtree(work, ignore_errors=True)


def _kill_and_restart(work: Path, *, files: int, kills: int, chance: random.Random, console: Console) -> None:
    done = 0
    while True:
        driver = _start(work)
        try:
            if done == kills:
                console.print("left alone, it works off the rest ...")
                _finish(driver, work)
                return
            where = _wait_for_a_bad_moment(driver, work, chance, files=files, after_a_write=done % 2 == 0)
            if driver.poll() is not None:
                _finish(driver, work)
                console.print("the input was worked off before the next kill")
                return
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
        done += 1
        ours, naive = SparkLogs(work / "onceward-checkpoint"), SparkLogs(work / "naive-checkpoint")
        console.print(
            f"[red]SIGKILL {done}[/]  {where}; onceward had decided epoch {ours.decided()} of {files - 1}, "
            f"naive {naive.decided()}"
        )


def _start(work: Path) -> subprocess.Popen[bytes]:
    """The driver in a session of its own, so that Python and JVM die together and the terminal's Ctrl-C spares them."""
    with (work / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "onceward.demo.driver", str(work)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )


def _wait_for_a_bad_moment(
    driver: subprocess.Popen[bytes], work: Path, chance: random.Random, *, files: int, after_a_write: bool
) -> str:
    """Let both jobs get on a little, then return at a moment that hurts: just after a write, or at random."""
    ours, naive = SparkLogs(work / "onceward-checkpoint"), SparkLogs(work / "naive-checkpoint")
    ours_goal, naive_goal = (min(log.planned() + 2, files - 2) for log in (ours, naive))
    _poll(driver, lambda: ours.planned() >= ours_goal and naive.planned() >= naive_goal)
    if not after_a_write:
        delay = chance.uniform(0.0, 1.0)
        deadline = time.monotonic() + delay
        _poll(driver, lambda: time.monotonic() >= deadline)
        return f"after a random {delay:.2f} s"
    while not _stopped_after_a_write(driver, work, naive) and driver.poll() is None:
        pass  # On a busy machine Spark may have noted that write by now: the next one is waited for.
    return "just after the naive job wrote and before Spark noted it"


def _stopped_after_a_write(driver: subprocess.Popen[bytes], work: Path, naive: SparkLogs) -> bool:
    """Wait for the naive job's next write; whether the driver stands still before Spark has noted it."""
    before = _changed(work / "naive.db")
    _poll(driver, lambda: _changed(work / "naive.db") != before)
    if driver.poll() is not None:
        return False
    os.killpg(driver.pid, signal.SIGSTOP)
    if _has_undecided_write(work, naive):
        return True
    os.killpg(driver.pid, signal.SIGCONT)
    return False


def _has_undecided_write(work: Path, naive: SparkLogs) -> bool:
    planned = naive.planned()
    begun = _changed(work / "naive-checkpoint" / "offsets" / str(planned))
    return naive.decided() < planned and _changed(work / "naive.db") > begun


def _changed(path: Path) -> int:
    """When the file was changed; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _poll(driver: subprocess.Popen[bytes], done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while driver.poll() is None and not done():
        if time.monotonic() > deadline:
            raise OncewardError("the demo's driver makes no progress", hint="is the machine very busy? try again")
        time.sleep(0.002)


def _finish(driver: subprocess.Popen[bytes], work: Path) -> None:
    """Wait for the end of the input."""
    if driver.wait() != 0:
        lines = (work / "driver.log").read_text(errors="replace").splitlines()
        said = [line for line in lines if _ERROR.match(line)] or lines
        raise DriverFailed(
            "the demo's driver failed by itself:\n" + "\n".join(said[-3:]), hint=f"see {work}/driver.log"
        )


def _audit(work: Path, *, seed: int, kills: int, seconds: float) -> DemoResult:
    ours = expected_updates(work / "input", work / "onceward-checkpoint")
    naive = expected_updates(work / "input", work / "naive-checkpoint")
    return DemoResult(
        seed=seed,
        kills=kills,
        seconds=round(seconds, 1),
        onceward=(
            compare("onceward, SQLite", newest(ours), read_table(work / "onceward.db", "pv")),
            compare("onceward, Parquet", ours, read_parquet(work / "onceward-parquet")),
        ),
        naive=(
            compare("naive, SQLite", naive, read_table(work / "naive.db", "pv")),
            compare("naive, Parquet", naive, read_parquet(work / "naive-parquet")),
        ),
    )


def _show(result: DemoResult, console: Console) -> None:
    table = Table("target", "expected", "found", "lost", "duplicated", "", title="audit: rows", title_justify="left")
    for audit in (*result.onceward, *result.naive):
        verdict = "[green]every row once[/]" if audit.clean else "[red]wrong[/]"
        table.add_row(
            audit.target, *(f"{n:,}" for n in (audit.expected, audit.found, audit.lost, audit.duplicated)), verdict
        )
    console.print()
    console.print(table)
    duplicates = sum(audit.duplicated for audit in result.naive)
    ours = "nothing was lost and nothing was duplicated" if result.clean else "THE AUDIT FAILED"
    console.print(
        f"\n[bold]onceward[/]: {ours} through {result.kills} kills ({result.seconds:.0f} s, seed {result.seed})\n"
        f"[bold]naive[/]: {duplicates:,} duplicated rows after the same kills"
    )
