"""The suites on MySQL itself: the two servers differ where it matters (XA, locks, JSON, collations)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import test_mysql_conformance as suite
import test_mysql_upsert as upserts
import test_mysql_values as values
from mysql_workspace import MySQLWorkspace, send

from onceward.contracts import Severity, Workload
from onceward.errors import RowsRejected
from onceward.testing.servers import MySQLServer, ServerMissing

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def mariadb(without: object) -> Iterator[MySQLServer]:
    """In the place of the server that the other modules share."""
    try:
        server = MySQLServer().start()
    except ServerMissing as missing:
        without(str(missing))
    yield server
    server.close()


class TestAppend(suite.TestAppend):
    pass


class TestAppendByTheAlternate(suite.TestAppendByTheAlternate):
    pass


class TestUpsert(suite.TestUpsert):
    pass


test_every_value_comes_back_as_it_went_in = values.test_every_value_comes_back_as_it_went_in
sinks = values.sinks


def test_where_no_collation_minds_trailing_blanks_such_keys_are_rejected_and_overwrite_nothing(
    workspace: MySQLWorkspace,
) -> None:
    """Before 8.0.17, in a table of ours."""
    sink: Any = upserts.upserting(workspace)
    send(sink, 0, upserts.rows(("a", 1), ("A", 2)))
    collation = workspace.query(
        "SELECT COLLATION_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND COLUMN_NAME = 'app'"
    )
    if collation == [("utf8mb4_0900_bin",)]:
        send(sink, 1, upserts.rows(("a ", 3)))
        assert upserts.table(workspace) == {"a": 1, "A": 2, "a ": 3}
        return
    with pytest.raises(RowsRejected, match="Duplicate entry"):
        send(sink, 1, upserts.rows(("a ", 3)))
    with pytest.raises(RowsRejected, match="Duplicate entry"):
        send(sink, 1, upserts.rows(("b", 4), ("b ", 5)))
    assert upserts.table(workspace) == {"a": 1, "A": 2}


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": "id"}], ids=["append", "upsert"])
def test_the_doctor_has_nothing_to_say_against_it(workspace: MySQLWorkspace, options: dict[str, str]) -> None:
    sink = workspace.sink(**options)
    findings = {found.about: found for found in sink.diagnose(Workload(2, 10))}
    assert findings["server"].detail.startswith("MySQL 8.")
    assert Severity.ERROR not in {found.severity for found in findings.values()}
