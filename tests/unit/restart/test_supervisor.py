"""The supervisor over real processes: a tiny driver that is killed, fails, hangs, and leaves its children behind."""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onceward.clock import SystemClock
from onceward.errors import ConfigurationError
from onceward.restart import (
    End,
    FixedDelay,
    How,
    LifeLog,
    Notifier,
    Reached,
    Restarts,
    RestartStrategy,
    Supervisor,
    SupervisorLimits,
)
from onceward.restart.driver_process import living_members
from onceward.storage import LocalStorage

DRIVER = Path(__file__).with_name("tiny_driver.py")
PATIENCE_S = 60.0
QUICK = SupervisorLimits(start_s=60.0, heartbeat_s=60.0, stop_s=60.0, stop_grace_s=0.0)


def wait_until(condition: Callable[[], object]) -> None:
    deadline, never = time.monotonic() + PATIENCE_S, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        never.wait(0.01)


class Supervised:
    """A folder with a script of lives, and the supervisor of whatever runs there."""

    def __init__(self, folder: Path, *lives: list[Any]) -> None:
        self.folder = folder
        self.reached = Reached(-1, -1)
        (folder / "script").write_text(json.dumps(lives))

    def supervisor(self, strategy: RestartStrategy, limits: SupervisorLimits = QUICK) -> Supervisor:
        log = LifeLog(LocalStorage(self.folder / "onceward"), SystemClock())
        restarts = Restarts(strategy, log, SystemClock(), lambda: self.reached)
        notifier = Notifier("tiny", self.folder / "ready")
        return Supervisor("tiny", self._command, restarts, notifier, limits=limits)

    def run(self, strategy: RestartStrategy, limits: SupervisorLimits = QUICK) -> End:
        with self.running(strategy, limits) as (_, ends):
            wait_until(lambda: ends)
        return ends[0]

    def _command(self, was_ready: bool) -> list[str]:
        return [sys.executable, str(DRIVER), str(self.folder), "again" if was_ready else "first"]

    @contextmanager
    def running(
        self, strategy: RestartStrategy, limits: SupervisorLimits = QUICK
    ) -> Iterator[tuple[Supervisor, list[End]]]:
        ends: list[End] = []
        supervisor = self.supervisor(strategy, limits)
        thread = threading.Thread(target=lambda: ends.append(supervisor.run()))
        thread.start()
        try:
            yield supervisor, ends
        finally:
            supervisor.stop()
            thread.join(PATIENCE_S)
        assert ends

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def ends(self) -> list[How]:
        lives = LifeLog(LocalStorage(self.folder / "onceward"), SystemClock()).read()
        return [life.ended.how for life in lives if life.ended is not None]


@pytest.fixture
def supervised(tmp_path: Path) -> Callable[..., Supervised]:
    return lambda *lives: Supervised(tmp_path, *lives)


def test_a_driver_that_is_killed_is_replaced_until_it_ends_by_itself(
    supervised: Callable[..., Supervised], caplog: pytest.LogCaptureFixture
) -> None:
    job = supervised(["beat", "ready", "die"], ["die"], ["beat", 0])
    assert job.run(FixedDelay(2, 0)) == End(0)
    assert job.ends() == [How.KILLED, How.KILLED, How.STOPPED]
    assert [record.getMessage().partition(", after")[0] for record in caplog.records] == [
        "restarting tiny in 0 s: killed by SIGKILL",
        "restarting tiny in 0 s: killed by SIGKILL",
    ]
    assert "(failure 2 since an epoch was published, 0 more allowed)" in caplog.text


def test_what_was_accepted_for_one_start_is_not_accepted_again_once_it_was_ready(
    supervised: Callable[..., Supervised],
) -> None:
    job = supervised(["die"], ["beat", "ready", "die"], ["die"], [0])
    job.run(FixedDelay(9, 0))
    assert job.lines("starts") == ["first", "first", "again", "again"]


def test_a_crash_loop_ends_as_the_strategy_says(supervised: Callable[..., Supervised]) -> None:
    job = supervised([{"fail": "PublishFailed", "code": 3}])
    end = job.run(FixedDelay(2, 0))
    assert (end.exit_code, end.gave_up) == (3, "3 failures since an epoch was published, and 2 restarts are allowed")
    assert len(job.lines("starts")) == 3
    lives = LifeLog(LocalStorage(job.folder / "onceward"), SystemClock()).read()
    last = lives[-1].ended
    assert last is not None
    assert (last.how, last.exit_code, last.error, last.message) == (How.FAILED, 3, "PublishFailed", "away")
    assert job.run(FixedDelay(2, 0)).gave_up, "nor does a new supervisor forget it"
    assert len(job.lines("starts")) == 4


@pytest.mark.parametrize("code", [1, 2, 4])
def test_what_no_restart_mends_is_not_restarted(supervised: Callable[..., Supervised], code: int) -> None:
    job = supervised([{"fail": "Fenced", "code": code}])
    end = job.run(FixedDelay(9, 0))
    assert (end.exit_code, end.gave_up, len(job.lines("starts"))) == (code, None, 1)
    assert end.document is not None
    assert job.ends() == [How.REFUSED]


@pytest.mark.parametrize("code", [3, 5, 134, 255])
def test_any_other_exit_code_is_a_crash(supervised: Callable[..., Supervised], code: int) -> None:
    job = supervised([code], [0])
    assert job.run(FixedDelay(1, 0)) == End(0)
    assert job.ends() == [How.FAILED, How.STOPPED]


def test_a_driver_that_falls_silent_is_killed_with_all_of_its_session(
    supervised: Callable[..., Supervised], caplog: pytest.LogCaptureFixture
) -> None:
    """Its child is in another process group, deaf, and stopped. The next life looks whether it is gone."""
    job = supervised(["child", "stop child", "deaf", "beat once", "ready", "wait"], [0])
    assert job.run(FixedDelay(1, 0), SupervisorLimits(heartbeat_s=0.5, stop_s=0.0, stop_grace_s=0.0)) == End(0)
    assert job.ends() == [How.HUNG, How.STOPPED]
    assert "no heartbeat through its JVM for 0.5 s" in caplog.text


def test_a_driver_that_never_begins_to_beat_is_killed_too(supervised: Callable[..., Supervised]) -> None:
    job = supervised(["wait"], [0])
    assert job.run(FixedDelay(99, 0), SupervisorLimits(start_s=3.0, heartbeat_s=0.1)) == End(0)
    # The next one is not killed, if it was quick enough.
    *hung, last = job.ends()
    assert ({*hung}, last) == ({How.HUNG}, How.STOPPED)


def test_what_outlives_its_driver_is_killed_before_the_next_begins(supervised: Callable[..., Supervised]) -> None:
    """The tiny driver fails if it finds the child of the one before."""
    job = supervised(["beat", "child", "die"], [0])
    assert job.run(FixedDelay(1, 0)) == End(0)
    assert job.ends() == [How.KILLED, How.STOPPED]


def test_told_to_stop_it_lets_the_driver_end_by_itself(supervised: Callable[..., Supervised]) -> None:
    job = supervised(["beat", "ready", "ends when told", "wait"])
    with job.running(FixedDelay(9, 0)) as (supervisor, ends):
        wait_until(lambda: job.lines("waiting"))
        supervisor.stop()
        wait_until(lambda: ends)
    assert ends == [End(0)]
    assert job.ends() == [How.STOPPED]


@pytest.mark.parametrize(("reached", "code"), [(Reached(7, 7), 0), (Reached(7, 6), 3)])
def test_a_driver_that_does_not_stop_is_killed_and_the_code_says_whether_anything_waits(
    supervised: Callable[..., Supervised], reached: Reached, code: int
) -> None:
    job = supervised(["deaf", "child", "beat", "wait"])
    job.reached = reached
    with job.running(FixedDelay(9, 0), SupervisorLimits(stop_s=0.3, stop_grace_s=0.2)) as (supervisor, ends):
        wait_until(lambda: job.lines("waiting"))
        supervisor.stop()
        wait_until(lambda: ends)
    assert ends == [End(code)]
    assert not living_members(int(job.lines("waiting")[0]))


def test_told_to_stop_in_a_pause_it_ends_at_once(supervised: Callable[..., Supervised]) -> None:
    job = supervised([3])
    with job.running(FixedDelay(9, "1 hour")) as (supervisor, ends):
        wait_until(lambda: job.ends())
        supervisor.stop()
        wait_until(lambda: ends)
    assert ends == [End(0)]


def test_the_ready_file_is_there_while_the_driver_is_ready(supervised: Callable[..., Supervised]) -> None:
    job = supervised(["beat", "ready", "wait"], ["beat", "wait"])
    ready = job.folder / "ready"
    ready.touch()
    with job.running(FixedDelay(9, 0)):
        wait_until(lambda: job.lines("waiting") and ready.exists())
        before = ready.stat().st_mtime_ns
        wait_until(lambda: ready.stat().st_mtime_ns > before)
        os.kill(int(job.lines("waiting")[0]), signal.SIGKILL)
        wait_until(lambda: len(job.lines("waiting")) == 2)
        assert not ready.exists()
        os.kill(int(job.lines("waiting")[1]), signal.SIGKILL)
    assert not ready.exists()


def test_a_ready_file_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--ready-file"):
        Notifier("tiny", tmp_path / "nowhere" / "ready")


def listen(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under an abstract name, as systemd itself may: a path could be too long."""
    name = f"onceward-{secrets.token_hex(8)}"
    systemd.bind(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")


def test_systemd_is_told_and_the_driver_is_not_to_speak_for_it(
    supervised: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = supervised(["beat", "ready", "ends when told", "wait"])
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        listen(systemd, monkeypatch)
        systemd.settimeout(PATIENCE_S)
        with job.running(FixedDelay(9, 0)) as (supervisor, _):
            while "READY=1" not in heard:
                heard += systemd.recv(4096).decode().splitlines()
            beats = heard.count("WATCHDOG=1")
            while heard.count("WATCHDOG=1") < beats + 3:
                heard += systemd.recv(4096).decode().splitlines()
            supervisor.stop()
            while "STOPPING=1" not in heard:
                heard += systemd.recv(4096).decode().splitlines()
    assert "STATUS=tiny: running" in heard
    assert job.lines("environment") == ["None"]


def test_the_heartbeat_of_the_watchdog_ends_with_that_of_the_driver(
    supervised: Callable[..., Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = supervised(["beat once", "ready", "wait"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        listen(systemd, monkeypatch)
        with job.running(FixedDelay(9, 0)):
            wait_until(lambda: job.lines("waiting") and (job.folder / "ready").exists())
            deadline = time.monotonic() + PATIENCE_S
            while systemd in select.select([systemd], [], [], 1.0)[0]:
                systemd.recv(4096)
                assert time.monotonic() < deadline, "it goes on"
            os.kill(int(job.lines("waiting")[0]), signal.SIGKILL)


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_supervisor import FixedDelay, Supervised
job = Supervised.__new__(Supervised)
job.folder, job.reached = Path({folder!r}), __import__("onceward.restart").restart.Reached(-1, -1)
job.run(FixedDelay(1, 0))
"""


def test_a_driver_sees_that_its_supervisor_is_gone_and_the_next_one_that_a_life_vanished(
    supervised: Callable[..., Supervised], caplog: pytest.LogCaptureFixture
) -> None:
    job = supervised(["beat", "ready", "wait for the supervisor's end"], [0])
    program = PROGRAM.format(here=str(DRIVER.parent), folder=str(job.folder))
    with subprocess.Popen([sys.executable, "-c", program]) as supervisor:
        wait_until(lambda: job.lines("waiting"))
        supervisor.kill()
    wait_until(lambda: job.lines("orphaned"))
    with caplog.at_level(logging.WARNING):
        assert job.run(FixedDelay(1, 0)) == End(0)
    assert job.ends() == [How.VANISHED, How.STOPPED]
    assert "restarting tiny in 0 s: vanished" in caplog.text


def test_a_driver_that_was_itself_asked_to_stop_is_not_restarted_however_that_ends(tmp_path: Path) -> None:
    """As by `onceward stop`: a target that did not take the last epoch in time is no reason to go on."""
    fails = {"fail": "PublishFailed", "code": 3}
    supervised = Supervised(tmp_path, ["beat", "ready", "deaf", "stopping", fails], ["beat", "ready", 0])
    end = supervised.run(FixedDelay(5, 0.0))
    assert (end.exit_code, end.gave_up) == (3, None)
    assert len(supervised.lines("starts")) == 1
