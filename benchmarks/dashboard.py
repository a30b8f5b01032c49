"""How fast the dashboard answers over 10,000 epochs, and how soon and with how many bytes its first view is there."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.many_epochs import make_checkpoint
from benchmarks.measure import NO_GOAL, Ratio, timed

REPEATS = 15
EPOCHS = 10_000
SLOTS_OF_THE_NEWEST = 1000
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """The command as people start it, asked by a program and by a browser."""
    make_checkpoint(folder / "long", epochs=EPOCHS, slots=8)
    make_checkpoint(folder / "wide", epochs=100, slots=SLOTS_OF_THE_NEWEST, job="wide")
    command = [sys.executable, "-m", "onceward", "dashboard", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            entrance = str(json.loads(b"".join(iter(process.stdout.readline, b"}\n")) + b"}")["entrance"])
            yield from _answers(entrance)
            yield from _first_view(entrance, console)
        finally:
            process.terminate()


def _answers(entrance: str) -> Iterator[Ratio]:
    url, _, token = entrance.partition("?token=")
    ids = {job["job"]: job["id"] for job in _complete(url, token)}
    long, wide = ids["page-views"], ids["wide"]
    asked = {
        "a page of the table": f"jobs/{long}/epochs?offset=5000",
        "a filtered page": f"jobs/{long}/epochs?unusual=true",
        "the timeline of all": f"jobs/{long}/timeline",
        "the timeline, zoomed": f"jobs/{long}/timeline?first=5000&last=5200",
        "the summary": f"jobs/{long}/summary",
        f"an epoch with {SLOTS_OF_THE_NEWEST:,} slots": f"jobs/{wide}/epochs/99",
    }
    for what, path in asked.items():
        seconds = [timed(lambda path=path: _get(url, token, path)) for _ in range(REPEATS)]  # type: ignore[misc]
        took = statistics.median(seconds)
        # An epoch is read from its file, with up to 500 others in it: that is not what is paged through.
        goal = NO_GOAL if what.startswith("an epoch") else "<= 1"
        yield Ratio(f"dashboard, {EPOCHS:,} epochs: {what}", f"{took * 1000:.0f} ms", "100 ms", took / 0.1, goal)


def _complete(url: str, token: str) -> list[dict[str, Any]]:
    """Once every epoch has been read."""
    while True:
        jobs: list[dict[str, Any]] = _get(url, token, "jobs")["jobs"]
        if len(jobs) == 2 and all(job["complete"] for job in jobs):
            return jobs
        time.sleep(0.2)


def _get(url: str, token: str, path: str) -> Any:
    request = urllib.request.Request(f"{url}api/{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def _first_view(entrance: str, console: Console) -> Iterator[Ratio]:
    """Until the jobs are on the screen, in a browser that has seen nothing before."""
    program = shutil.which("chromium")
    if program is None:
        console.print("  no chromium: the first view is not measured")
        return
    from playwright.sync_api import sync_playwright

    seconds, sizes = [], []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=_FLAGS)
        for _ in range(5):
            page = browser.new_page()
            answers: list[Any] = []
            page.on("response", answers.append)
            begun = time.perf_counter()
            page.goto(entrance, wait_until="commit")
            page.locator(".job").first.wait_for()
            seconds.append(time.perf_counter() - begun)
            whole = [one for one in answers if one.status == 200 and "events" not in one.url]
            sizes.append(sum(len(one.body()) for one in whole))
            page.close()
        browser.close()
    took, size = statistics.median(seconds), statistics.median(sizes)
    yield Ratio("dashboard: first view", f"{took:.2f} s", "1 s", took, "<= 1")
    yield Ratio("dashboard: bytes of the first view", f"{size / 1000:.0f} kB", "200 kB", size / 200_000, "<= 1")
