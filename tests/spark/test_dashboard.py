"""The dashboard in a real browser, over a real job whose driver is killed: one story, in its order."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from onceward.identity import JobIdentity, SinkName, TransactionName, new_run
from onceward.journal import IdentityFile
from onceward.observe import read_status
from onceward.storage import LocalStorage
from onceward.testing.servers import PostgresServer

from .processes import environment
from .workspace import PATIENCE_S, python

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

_COMMAND = "from onceward.cli import main; main()"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = PATIENCE_S * 1000
ROWS = 40
HOSTILE = "<img src=x onerror=alert(1)>"
VIEWS = ("", "/epochs", "/epoch/0", "/summary", "/transactions", "/state", "/checkpoint", "/lives", "/settings")


class Story:
    """The work folder, the two processes and the page."""

    def __init__(self, work: Path, postgres: PostgresServer, page: Any) -> None:
        self.work, self.postgres, self.page = work, postgres, page
        self.errors: list[str] = []
        self.fed = 0
        (work / "input").mkdir(parents=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda told: self.errors.append(told.text) if told.type in ("error", "warning") else None)

    @property
    def checkpoint(self) -> Path:
        return self.work / "checkpoint"

    def command(self, *arguments: str, output: str) -> subprocess.Popen[bytes]:
        more = {"DASHBOARD_WORK": str(self.work), "DASHBOARD_POSTGRES": self.postgres.url}
        with (self.work / output).open("wb") as file:
            process = subprocess.Popen(
                [python(), "-c", _COMMAND, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**environment({}), **more},
                cwd=self.work,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def drive(self) -> None:
        number = len(self._processes)
        self.driver = self.command("run", str(JOB_FILE), "--api", "--spark-log", output=f"driver-{number}.log")

    def feed(self, files: int = 1) -> None:
        """A file is an epoch."""
        for _ in range(files):
            lines = [json.dumps({"id": self.fed * ROWS + n, "app": f"a{n % 5}"}) for n in range(ROWS)]
            path = self.work / f"{self.fed:04}.json"
            path.write_text("\n".join(lines))
            path.replace(self.work / "input" / path.name)
            self.fed += 1

    def see(self, text: str | re.Pattern[str], *, where: str = "main") -> Any:
        found = self.page.locator(where).get_by_text(text).first
        found.wait_for(timeout=PATIENCE_MS)
        return found

    def go(self, tail: str) -> None:
        """To a view of the job, as its link would."""
        self.page.evaluate("tail => { location.hash = location.hash.split('/').slice(0, 3).join('/') + tail; }", tail)
        self.page.locator("main .loading").first.wait_for(state="detached", timeout=PATIENCE_MS)
        self.page.locator("main .card").first.wait_for(timeout=PATIENCE_MS)

    def stat(self, name: str) -> str:
        """A number on the page, by what stands above it."""
        entry = self.page.locator(".stats > div", has=self.page.locator("dt", has_text=re.compile(f"^{name}$")))
        return str(entry.locator("dd").inner_text())

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


JOB_FILE = Path(__file__).with_name("dashboard_job.py")


@pytest.fixture(scope="module")
def chromium(without: Callable[[str], NoReturn]) -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        without("no chromium is installed (run tools/setup-servers)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, chromium: Any) -> Iterator[Story]:
    """The dashboard is there first; then the job begins, and three epochs are through."""
    postgres.query("CREATE TABLE watched (id bigint, app text)")
    page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
    one = Story(tmp_path_factory.mktemp("dashboard"), postgres, page)
    try:
        dashboard = one.command("dashboard", str(JOB_FILE), "--json", output="dashboard.log")
        log = one.work / "dashboard.log"
        page.goto(entrance(dashboard, log, page))
        one.see("Not begun yet")
        one.drive()
        one.feed(3)
        one.see("Running")
        one.page.locator(".stats dd").nth(1).get_by_text("2", exact=True).wait_for(timeout=PATIENCE_MS)
        yield one
        assert one.errors == []
    finally:
        one.close()
        postgres.query("DROP TABLE watched")


def entrance(process: subprocess.Popen[bytes], log: Path, page: Any) -> str:
    """The address, once it is printed."""
    while process.poll() is None:
        if found := re.search(r'"entrance": "(\S+)"', log.read_text()):
            return found[1]
        page.wait_for_timeout(100)
    raise AssertionError(log.read_text())


def pending(story: Story) -> list[str]:
    return [row[0] for row in story.postgres.query("SELECT gid FROM pg_prepared_xacts ORDER BY gid")]


def test_every_view_of_a_running_job_is_shown_without_a_barrier_or_an_error(story: Story) -> None:
    """Axe has a page of its own: it styles elements to measure them, which the policy does not allow."""
    from axe_playwright_python.sync_playwright import Axe

    assert "token" not in story.page.url
    base = "/".join(story.page.url.split("/")[:6])
    looked_at = story.page.context.new_page()
    for tail in VIEWS:
        story.go(tail)
        looked_at.goto(f"{base}{tail}")
        looked_at.locator("main .card").first.wait_for(timeout=PATIENCE_MS)
        for theme in ("light", "dark") if tail in ("", "/epochs") else ("light",):
            looked_at.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            found = Axe().run(looked_at)
            assert found.violations_count == 0, f"{tail} {theme}\n{found.generate_report()}"
    looked_at.close()
    assert story.errors == []


def test_what_the_page_says_is_what_checkpoint_and_target_say(story: Story) -> None:
    story.go("")
    status = read_status(story.checkpoint)
    assert story.stat("Newest published") == str(status.settled) == "2"
    story.see(HOSTILE)
    story.see("first <b> of an id")
    story.go("/summary")
    story.see(re.compile("^Rows$"))
    assert story.stat("Rows") == str(3 * ROWS)
    assert story.postgres.query("SELECT count(*) FROM watched") == [(3 * ROWS,)]
    story.go("/epoch/1")
    story.see("Settled")
    assert story.stat("Rows staged") == str(ROWS)


def test_a_savepoint_is_taken_by_a_click(story: Story) -> None:
    story.go("/checkpoint")
    story.page.get_by_label("Folder on the driver's host").fill(str(story.work / "savepoints"))
    story.page.get_by_role("button", name="Take a savepoint").click()
    story.see("Done")
    (taken,) = (story.work / "savepoints").iterdir()
    story.see(re.compile(re.escape(str(taken))))
    story.page.locator("summary", has_text="Restore it").click()
    story.see(re.compile(f"^onceward savepoint restore {re.escape(str(taken))}"))


def test_the_page_survives_the_drivers_death_and_what_waits_is_committed_by_a_click(story: Story) -> None:
    story.go("")
    (story.work / "die").touch()
    story.feed()
    # A dead process counts as one until its parent has asked for its end.
    assert story.driver.wait(PATIENCE_S) == -signal.SIGKILL
    story.see(re.compile("it was killed"))
    story.see("Failed")
    story.go("/transactions")
    waiting = pending(story)
    assert waiting
    story.see(waiting[0])
    story.page.get_by_role("button", name="Commit …").first.click()
    story.see(re.compile("they are published now"), where="dialog")
    assert pending(story) == waiting, "nothing happens before it is confirmed"
    story.page.get_by_role("button", name="Commit it").click()
    story.see("Everything up to epoch 3 is settled.", where="dialog")
    story.page.get_by_role("button", name="Close").click()
    story.see("Nothing waits")
    assert pending(story) == []
    assert story.postgres.query("SELECT count(*) FROM watched") == [(4 * ROWS,)]
    assert read_status(story.checkpoint).settled == 3


def left_behind(story: Story) -> str:
    """Prepared in the server by a task that nobody waits for any more: an attempt at an epoch that is settled."""
    from adbc_driver_postgresql import dbapi

    record = IdentityFile(LocalStorage(story.checkpoint / "onceward")).read()
    assert record is not None
    job = JobIdentity(record.job, record.generation)
    name = str(TransactionName.of(job, SinkName(HOSTILE), epoch=1, takeover=0, slot=0, attempt=9, run=new_run()))
    with dbapi.connect(story.postgres.url, autocommit=True) as session, session.cursor() as cursor:
        for statement in ("BEGIN", "INSERT INTO watched VALUES (-1, 'left')", f"PREPARE TRANSACTION '{name}'"):
            cursor.execute(statement)
    return name


def test_what_a_lost_task_left_in_the_server_is_aborted_by_a_click_with_who_and_why(story: Story) -> None:
    name = left_behind(story)
    assert pending(story) == [name]
    story.go("")
    story.go("/transactions")
    story.see(name)
    story.see(re.compile("a lost attempt or a zombie task left it"))
    story.page.get_by_role("button", name="Abort …").click()
    story.see("what is in it is lost for good", where="dialog")
    story.page.get_by_role("button", name="Leave it").click()
    assert pending(story) == [name], "nothing happens before it is confirmed"
    story.page.get_by_role("button", name="Abort …").click()
    story.page.get_by_label("Why? It is kept in the checkpoint.").fill("left by a lost task <i>")
    story.page.get_by_label(re.compile("Who are you")).fill("ada")
    story.page.get_by_role("button", name="Abort it").click()
    story.see("Aborted", where="dialog")
    story.page.get_by_role("button", name="Close").click()
    story.see("Nothing waits")
    assert pending(story) == []
    assert story.postgres.query("SELECT count(*) FROM watched WHERE id < 0") == [(0,)]
    story.go("/lives")
    story.see("left by a lost task <i>")
    story.see(re.compile("^ada "))


def test_the_page_shows_the_drivers_return_without_being_loaded_again(story: Story) -> None:
    story.go("")
    story.page.evaluate("() => { window.isTheSame = true; }")
    (story.work / "die").unlink()
    story.drive()
    story.see("Running")
    story.feed(2)
    story.page.locator(".stats dd").nth(1).get_by_text("5", exact=True).wait_for(timeout=PATIENCE_MS)
    assert story.page.evaluate("() => window.isTheSame")
    story.driver.send_signal(signal.SIGTERM)
    assert story.driver.wait(PATIENCE_S) == 0
    story.see("Stopped")
    assert story.postgres.query("SELECT count(*), count(DISTINCT id) FROM watched") == [(6 * ROWS, 6 * ROWS)]


_SHOWN_AGAIN = """async () => {
  const { h, show } = await import("./static/js/dom.js");
  const box = h("tbody");
  const line = (key) => h("tr", { "data-key": key }, h("td", h("details", h("summary", key))));
  const chance = (most) => Math.floor(Math.random() * most);
  let keys = ["a", "b", "c"];
  show(box, keys.map(line));
  const wrong = [];
  for (let round = 0; round < 500; round += 1) {
    const kept = new Map([...box.children].map((row) => [row.dataset.key, row]));
    for (const row of box.children) row.querySelector("details").open = row.dataset.key < "m";
    keys = [..."abcdefghijklmnopqrstuvwxyz"].filter(() => chance(2)).sort(() => chance(3) - 1);
    show(box, keys.map(line));
    if ([...box.children].map((row) => row.dataset.key).join() !== keys.join()) wrong.push(["order", keys]);
    for (const row of box.children) {
      const before = kept.get(row.dataset.key);
      if (before && before !== row) wrong.push(["made anew", row.dataset.key]);
      const isOpen = row.querySelector("details").open;
      if (before && isOpen !== row.dataset.key < "m") wrong.push(["closed", row.dataset.key]);
      if (row.textContent !== row.dataset.key) wrong.push(["text", row.dataset.key]);
    }
  }
  return wrong.slice(0, 3);
}"""
"""Lines that come, go and change places, 500 times; what is wrong with them afterwards."""


def test_lines_that_are_shown_again_keep_their_order_and_what_was_unfolded(story: Story) -> None:
    assert story.page.evaluate(_SHOWN_AGAIN) == []


def test_the_table_is_searched_and_an_epoch_opened_by_the_keyboard(story: Story) -> None:
    story.go("/epochs")
    story.page.get_by_label("Epoch, range or time").fill("1-1")
    story.page.get_by_label("Epoch, range or time").press("Enter")
    story.see(re.compile("^1.1 of 1$"))
    assert "q=1-1" in story.page.url
    story.go("")
    story.page.locator(".chart canvas").wait_for(timeout=PATIENCE_MS)
    story.page.locator(".chart").focus()
    story.page.keyboard.press("Home")
    story.see("epoch 0", where=".readout")
    story.page.keyboard.press("Enter")
    story.see("Epoch 0")


def test_the_state_is_browsed_by_operator_and_key(story: Story) -> None:
    """The page starts a Spark for it, and says so until it answers."""
    story.go("/state")
    story.see("first <b> of an id")
    story.page.get_by_label("Key: id").fill("7")
    story.page.get_by_role("button", name="Look").click()
    story.see(re.compile("Starting Spark"))
    story.see(re.compile("State at the end of epoch 5"))
    assert story.page.locator("#main tbody").last.inner_text().split() == ["7", "null"]
    story.page.get_by_label("Key: id").fill("-7")
    story.page.get_by_role("button", name="Look").click()
    story.see("No such entry")
