"""One job into files and databases at once, while driver and servers are killed: all targets get every epoch, once.

Scenarios 4, 5, 45, 50, 51 and 60 with real Spark and real servers.
"""

from __future__ import annotations

import random
import threading

import pytest

from onceward.connections.postgres import PostgresError

from .processes import ended_at_last, kill, run_to_end, said, start
from .servers import COMMAND, Servers, Tables, starts
from .workspace import ROWS, SparkWorkspace, expect_exactly_once, wait_until

pytestmark = pytest.mark.cluster


class Watcher:
    """Polls the tables all the while, and notes what must never be seen."""

    def __init__(self, tables: Tables, workspace: SparkWorkspace) -> None:
        self._tables, self._workspace = tables, workspace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.sights: set[str] = set()
        self.looks = 0

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(0.05):
            try:
                self._look()
                self.looks += 1
            except PostgresError:
                continue  # The server is down, or the tables are not made yet.
            except Exception as error:
                self.sights.add(f"the watcher itself failed: {error!r}")

    def _look(self) -> None:
        for table in ("added", "by_key"):
            found = self._tables.query(f"SELECT file, count(*), count(DISTINCT id) FROM {table} GROUP BY file")
            decided = self._workspace.logs.decided()
            epochs = self._workspace.epochs_of(file for file, _, _ in found)
            for epoch, (file, rows, ids) in zip(epochs, found, strict=True):
                if rows != ids:
                    self.sights.add(f"{table} has {rows} rows and {ids} ids of file {file}")
                if epoch > decided:
                    self.sights.add(f"{table} has epoch {epoch}, and only {decided} is decided")
                if table == "by_key" and ids != ROWS:
                    self.sights.add(f"{table} shows {ids} of the {ROWS} rows of file {file}")


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_with_their_servers_all_targets_get_every_epoch_once_and_from_one_computation(
    workspace: SparkWorkspace, servers: Servers, kills: int, seed: int
) -> None:
    dice = random.Random(seed)
    tables = Tables(servers.postgres)
    with Watcher(tables, workspace) as watcher:
        for number in range(kills):
            workspace.add_files(dice.randrange(3, 6))
            live_and_die(workspace, servers, dice, kills_servers=number % 2 == 0)
        code = run_to_end(workspace, *COMMAND, **servers.urls)
        assert code == 0, said(workspace)
    files = {row["id"]: row["luck"] for row in workspace.in_files()}
    for rows in (workspace.in_files(), tables.rows("added"), tables.rows("by_key"), servers.mysql_rows()):
        expect_exactly_once(rows, workspace.ids())
        assert {row["id"]: row["luck"] for row in rows} == files, "the targets have one computation of every row"
    assert servers.counts() == dict.fromkeys(workspace.ids(), 1), "a counter tells what came twice"
    assert tables.query("SELECT gid::text FROM pg_prepared_xacts") == []
    assert servers.mariadb.query("XA RECOVER") == []
    workspace.expect_nothing_staged()
    assert not watcher.sights, f"seed {seed}: {watcher.sights}"
    assert watcher.looks


def live_and_die(workspace: SparkWorkspace, servers: Servers, dice: random.Random, *, kills_servers: bool) -> None:
    """A driver that is killed some time after it came up; one of its servers too, and first, where that is asked."""
    before = starts(workspace)
    process = start(workspace, *COMMAND, trigger=None, small=dice.choice([0, 1000]), **servers.urls)
    with ended_at_last(process):
        wait_until(lambda: starts(workspace) > before or process.poll() is not None, "the driver starts")
        threading.Event().wait(dice.uniform(0.0, 4.0))
        if kills_servers:
            server = dice.choice([servers.postgres, servers.mariadb, servers.redis])
            server.kill()
            threading.Event().wait(dice.uniform(0.0, 1.0))
            server.start()
            threading.Event().wait(dice.uniform(0.0, 3.0))
        kill(process)
