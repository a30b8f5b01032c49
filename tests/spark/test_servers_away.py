"""Servers are stopped under a running job until it has felt it, and come back: everything arrives, once.

Scenarios 16, 50 and 51 with real Spark and real servers.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from onceward.testing.servers import Server

from .processes import kill, said, start
from .servers import COMMAND, Servers, Tables, starts
from .workspace import PATIENCE_S, SparkWorkspace, expect_exactly_once, wait_until

pytestmark = pytest.mark.cluster

LONG_AWAY_S = 180.0


class Supervisor:
    """Starts a driver, and another whenever one ends, as an operator's tools would. Counts how they ended."""

    def __init__(self, workspace: SparkWorkspace, servers: Servers, sinks: str) -> None:
        self._workspace, self._servers, self._sinks = workspace, servers, sinks
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.process = self._start()
        self.failures: list[str] = []

    def _start(self) -> subprocess.Popen[bytes]:
        return start(self._workspace, *COMMAND, trigger=None, sinks=self._sinks, **self._servers.urls)

    def __enter__(self) -> Supervisor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        kill(self.process)

    def stop(self) -> int:
        """Let the driver finish its epoch and end, and do not start another; its exit code."""
        self._over.set()
        self._thread.join()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def _work(self) -> None:
        while not self._over.wait(0.2):
            if self.process.poll() is not None:
                self.failures.append(f"exit code {self.process.returncode}: {said(self._workspace)}")
                kill(self.process)
                self.process = self._start()


def all_of(servers: Servers) -> list[Server]:
    return [servers.postgres, servers.mariadb, servers.redis]


def settled(workspace: SparkWorkspace) -> int:
    names = [path.name for path in (workspace.checkpoint / "onceward" / "settled").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def all_sent(workspace: SparkWorkspace, servers: Servers) -> bool:
    """Not told by the number of epochs: one may have the files of several, if its driver died while it listed them."""
    return {row["id"] for row in Tables(servers.postgres).rows("by_key")} >= {*workspace.ids()}


def run_through_an_outage(
    workspace: SparkWorkspace,
    servers: Servers,
    which: list[Server],
    *,
    sinks: str,
    until: Callable[[Supervisor], object],
) -> Supervisor:
    """Three epochs before, three for which they are away, as an operator stops them; three afterwards, with the data
    they have; then a clean stop."""
    workspace.add_files(3)
    with Supervisor(workspace, servers, sinks) as supervisor:
        wait_until(lambda: settled(workspace) >= 1, "the job is at work")
        for server in which:
            server.stop()
        workspace.add_files(3)
        wait_until(lambda: until(supervisor), "the job feels that they are away", timeout_s=2 * PATIENCE_S)
        for server in which:
            server.start()
        workspace.add_files(3)
        wait_until(lambda: all_sent(workspace, servers), f"everything is sent; {supervisor.failures[-1:]}")
        assert supervisor.stop() == 0, said(workspace)
    return supervisor


def expect_all_once(workspace: SparkWorkspace, servers: Servers, *, sinks: str) -> None:
    tables = Tables(servers.postgres)
    found = [tables.rows("by_key"), servers.mysql_rows("added" if sinks == "all" else "by_key")]
    if sinks == "all":
        found += [tables.rows("added"), workspace.in_files()]
    first = {row["id"]: row["luck"] for row in found[0]}
    for rows in found:
        expect_exactly_once(rows, workspace.ids())
        assert {row["id"]: row["luck"] for row in rows} == first, "the targets have one computation of every row"
    assert servers.counts() == dict.fromkeys(workspace.ids(), 1), "a counter tells what came twice"
    assert tables.query("SELECT gid::text FROM pg_prepared_xacts") == []
    assert servers.mariadb.query("XA RECOVER") == []
    workspace.expect_nothing_staged()


def test_a_job_that_stages_without_its_servers_waits_for_them_and_goes_on(
    workspace: SparkWorkspace, servers: Servers
) -> None:
    """One and the same driver: the publisher repeats what fails, and the epochs queue up behind it."""

    def queued_up(_: Supervisor) -> bool:
        return workspace.logs.decided() == 5 and settled(workspace) < 5

    supervisor = run_through_an_outage(workspace, servers, all_of(servers), sinks="write-ahead", until=queued_up)
    assert supervisor.failures == []
    assert starts(workspace) == 1
    expect_all_once(workspace, servers, sinks="write-ahead")


@pytest.mark.soak
def test_a_job_that_ends_without_its_servers_is_started_again_until_they_are_back(
    workspace: SparkWorkspace, servers: Servers
) -> None:
    """Tasks cannot stage in a server that is away, so the driver ends, and so do those after it."""

    def has_failed(supervisor: Supervisor) -> bool:
        return len(supervisor.failures) >= 2

    run_through_an_outage(workspace, servers, all_of(servers), sinks="all", until=has_failed)
    expect_all_once(workspace, servers, sinks="all")


@pytest.mark.soak
@pytest.mark.parametrize("which", ["postgres", "mariadb", "redis"])
def test_each_server_is_away_for_minutes(workspace: SparkWorkspace, servers: Servers, which: str) -> None:
    def long_after(_: Supervisor) -> bool:
        return time.monotonic() > LONG_AWAY_S + began

    began = time.monotonic()
    run_through_an_outage(workspace, servers, [getattr(servers, which)], sinks="all", until=long_after)
    expect_all_once(workspace, servers, sinks="all")
