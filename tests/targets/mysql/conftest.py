"""A database of its own for every test, on the server that all share; and nothing of ours left prepared after it."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator

import pymysql
import pytest
from mysql_workspace import MySQLWorkspace

from onceward.testing.servers import MariaDBServer

_numbers = itertools.count()


@pytest.fixture
def workspace(mariadb: MariaDBServer) -> Iterator[MySQLWorkspace]:
    name = f"t{next(_numbers)}"
    mariadb.query(f"CREATE DATABASE {name}")
    workspace = MySQLWorkspace(mariadb, name)
    yield workspace
    left = workspace.prepared()
    for gtrid in left:
        workspace.query(f"XA ROLLBACK X'{gtrid.hex()}'")
    workspace.close()
    with contextlib.suppress(pymysql.MySQLError):
        # A test that failed may still hold a transaction, and with it the table.
        mariadb.query(f"SET STATEMENT lock_wait_timeout = 2 FOR DROP DATABASE {name}")
    assert left == [] or workspace.expects_leftovers, f"still prepared: {left}"


@pytest.fixture(autouse=True)
def _expected_failures_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="onceward")


@pytest.fixture
def quick(workspace: MySQLWorkspace) -> Iterator[MySQLWorkspace]:
    """The same, for tests of a thousand commits: the server writes its log and does not wait for the disk, so that its
    own death loses nothing and a power loss might."""
    workspace.query("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    yield workspace
    workspace.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


@pytest.fixture(params=[{}, {"log-bin": "log", "server-id": 1, "sync-binlog": 1}], ids=["plain", "with a binary log"])
def own(request: pytest.FixtureRequest) -> Iterator[MySQLWorkspace]:
    """A server that a test may kill. The binary log takes part in every commit, and in the recovery from a crash."""
    server = MariaDBServer(**request.param).start()
    yield MySQLWorkspace(server, "test")
    server.close()
