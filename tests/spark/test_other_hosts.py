"""Scenario 73 on the real thing: a worker in a mount namespace of its own, with another disk at the job's paths."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.dataset as ds
import pytest

from .cluster import SETTINGS, standalone
from .processes import ended_at_last, said, start
from .workspace import PATIENCE_S, SparkWorkspace

ROWS = 5000
DRIVER = Path(__file__).with_name("other_hosts_driver.py")
# Both executors are there before the first job begins, and neither waits for the other's tasks.
BOTH = {
    "spark.locality.wait": "0s",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


class Results(dict[str, Any]):
    """What came of each case, and where."""

    work: Path


def other_machine(folder: Path, without: Callable[[str], NoReturn]) -> list[str]:
    """What to put before a command so that it runs with an empty disk of its own at `folder`."""
    mount = f'mount -t tmpfs none \'{folder}\' && exec "$0" "$@"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount]
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        without("another machine's disk needs root and unshare")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        without(f"a mount namespace of its own cannot be had here: {tried.stderr.strip()}")
    return command


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, without: Callable[[str], NoReturn]) -> Results:
    """One cluster and one driver for all cases: a worker on this machine, and one as on another."""
    work = tmp_path_factory.mktemp("hosts")
    for name in ("shared", "unshared", "cluster"):
        (work / name).mkdir()
    elsewhere = other_machine(work / "unshared", without)
    with standalone(work / "cluster", (), elsewhere) as address:
        driver = start(SparkWorkspace(work), str(DRIVER), master=address, settings=SETTINGS | BOTH, rows=ROWS)
        with ended_at_last(driver):
            assert driver.wait(PATIENCE_S) == 0, said(SparkWorkspace(work))
    found = Results(json.loads((work / "came-of-it.json").read_text()))
    found.work = work
    return found


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("case", "folder"), [("probe-parquet", "out/.onceward"), ("probe-log", "checkpoint/onceward")])
def test_a_folder_that_an_executor_does_not_share_is_refused_before_anything_is_staged(
    results: Results, case: str, folder: str
) -> None:
    came = results[case]
    assert (came["error"], came["decided"]) == ("NotShared", -1), came
    assert f"{results.work / 'unshared' / case / folder} on {platform.node()}" in came["says"]
    left = {path.name for path in files_below(results.work / "unshared" / case / "out")}
    assert left == set(), "neither rows nor the probe itself"
    assert not [path for path in files_below(results.work) if "probe" in path.name and path.is_file()]


@pytest.mark.parametrize("case", ["late-parquet", "late-lines", "late-log"])
def test_what_such_an_executor_staged_is_missed_before_the_decision(results: Results, case: str) -> None:
    came = results[case]
    assert (came["error"], came["decided"]) == ("StagedRowsMissing", -1), came
    assert str(results.work / "unshared" / case) in came["says"]
    assert platform.node() in came["says"]
    assert not [
        path
        for path in files_below(results.work / "unshared" / case)
        if path.suffix in {".arrow", ".jsonl", ".parquet"}
    ]


def test_where_all_is_shared_every_row_arrives(results: Results) -> None:
    for case in ("all-shared", "parquet-shared"):
        assert results[case]["error"] == "NoneType", results[case]
    shared = results.work / "shared"
    lines = [line for path in (shared / "all-shared" / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(ROWS))
    with closing(sqlite3.connect(shared / "all-shared" / "rows.db")) as database:
        assert [row[0] for row in database.execute("SELECT id FROM t ORDER BY id")] == list(range(ROWS))
    files = [str(path) for path in (shared / "parquet-shared" / "out").glob("*.parquet")]
    assert sorted(ds.dataset(files).to_table()["id"].to_pylist()) == list(range(ROWS))
