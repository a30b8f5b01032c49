"""How fast the dashboard answers over 10,000 epochs, how soon its first view is there, and whether it stays fluid."""

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
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.many_epochs import make_checkpoint
from benchmarks.measure import Ratio, timed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPEATS = 15
TURNS = 5
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
            yield from _in_a_browser(entrance, console)
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
        seconds = [timed(lambda path=path: _get(url, token, path)) for _ in range(REPEATS)]
        took = statistics.median(seconds)
        yield Ratio(f"dashboard, {EPOCHS:,} epochs: {what}", f"{took * 1000:.0f} ms", "100 ms", took / 0.1, "<= 1")


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


def _in_a_browser(entrance: str, console: Console) -> Iterator[Ratio]:
    program = shutil.which("chromium")
    if program is None:
        console.print("  no chromium: the first view and the frames are not measured")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=_FLAGS)
        yield from _first_view(browser, entrance)
        yield from _frames(browser, entrance, console)
        browser.close()


def _first_view(browser: Browser, entrance: str) -> Iterator[Ratio]:
    """Until the jobs are on the screen, in a browser that has seen nothing before."""
    seconds, sizes = [], []
    for _ in range(5):
        page = browser.new_page()
        answers: list[Any] = []
        page.on("response", lambda answer: answers.append(answer))  # noqa: B023 - of this page
        begun = time.perf_counter()
        page.goto(entrance, wait_until="commit")
        page.locator(".job").first.wait_for()
        seconds.append(time.perf_counter() - begun)
        whole = [one for one in answers if one.status == 200 and "events" not in one.url]
        sizes.append(sum(len(one.body()) for one in whole))
        page.close()
    took, size = statistics.median(seconds), statistics.median(sizes)
    yield Ratio("dashboard: first view", f"{took:.2f} s", "1 s", took, "<= 1")
    yield Ratio("dashboard: bytes of the first view", f"{size / 1000:.0f} kB", "200 kB", size / 200_000, "<= 1")


def _frames(browser: Browser, entrance: str, console: Console) -> Iterator[Ratio]:
    """Frames a second while the page scrolls by itself, and while the mouse goes over the timeline of all epochs."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(entrance)
    page.get_by_role("link", name="page-views").click()
    page.locator(".chart canvas").wait_for()
    page.get_by_role("button", name="All", exact=True).click()
    # Here as below: what is measured is not how the view came to be there.
    page.wait_for_timeout(1000)
    box = page.locator(".chart").bounding_box() or {}
    moved: list[list[float]] = []
    for _ in range(TURNS):
        page.evaluate(_COUNTED)
        for place in range(300):
            page.mouse.move(box["x"] + 80 + (box["width"] - 100) * (place % 100) / 100, box["y"] + 90)
        moved.append(page.evaluate("() => window.counted()"))
    yield _rate("over the timeline of all", moved, console)
    base = page.url.split("/epochs")[0].rstrip("/")
    for what, tail in (("the table of epochs", "/epochs"), ("an epoch", "/epoch/5000")):
        page.goto(f"{base}{tail}")
        page.locator("main table").first.wait_for()
        page.wait_for_timeout(1000)
        yield _rate(f"scrolling {what}", [page.evaluate(_SCROLLED) for _ in range(TURNS)], console)


def _rate(what: str, turns: list[list[float]], console: Console) -> Ratio:
    rate = statistics.median(1000 * len(gaps) / sum(gaps) for gaps in turns)
    for gaps in turns:
        late = sum(gap > 1000 / 60 * 1.5 for gap in gaps)
        console.print(f"  {what}: {len(gaps)} frames, {late} late, longest {max(gaps):.0f} ms", style="dim")
    return Ratio(f"dashboard, {EPOCHS:,} epochs: {what}", f"{rate:.1f} frames/s", "60 frames/s", rate / 60, ">= 0.98")


_COUNTED = """() => {
  const gaps = []; let last = performance.now(); let on = true;
  const next = (now) => { gaps.push(now - last); last = now; if (on) requestAnimationFrame(next); };
  requestAnimationFrame(next);
  window.counted = () => { on = false; return gaps.slice(1); };
}"""
"""Milliseconds between one frame and the next, until they are asked for."""
_SCROLLED = """() => new Promise((done) => {
  const gaps = []; let last = performance.now(); let down = true;
  const next = (now) => {
    gaps.push(now - last); last = now;
    const before = scrollY; scrollBy(0, down ? 24 : -24); if (scrollY === before) down = !down;
    if (gaps.length < 240) requestAnimationFrame(next); else done(gaps.slice(1));
  };
  requestAnimationFrame(next);
})"""
