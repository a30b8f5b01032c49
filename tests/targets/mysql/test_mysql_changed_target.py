"""Scenarios 90 and 91: indexes, engines and triggers that would lose rows or change them are refused at the start, and
when they come while the job runs it stops before it writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pymysql
import pytest
from mysql_workspace import JOB, MySQLWorkspace, pre_committed, send

from onceward.connections.mysql import Session
from onceward.contracts import Receipt, SlotContext, SlotValues, TryAgain
from onceward.errors import RowsRejected, TargetChanged, TargetRefused
from onceward.identity import Fingerprint, RunId
from onceward.sinks import MySQLSink
from onceward.sinks.mysql.compatibility import refuse_table
from onceward.sinks.mysql.look import _described
from onceward.sinks.mysql.table import Server
from onceward.testing import Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.conformance.base import AT
from onceward.testing.engine import SCHEMA as ENGINE_SCHEMA

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TWO = pa.record_batch([[1, 2], ["anna", "annika"]], schema=SCHEMA)
MYSQL_8 = Server((8, 0, 36), False, False, True, False)
UPSERT = {"mode": "upsert", "keys": ["id"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "append by xa": {},
    "append from the log": {"two_phase": False},
    "upsert": UPSERT,
    "replace": {"mode": "replace"},
}


def made(workspace: MySQLWorkspace, *more: str) -> None:
    workspace.query("CREATE TABLE `rows` (id BIGINT PRIMARY KEY, name VARCHAR(20)) ENGINE=InnoDB")
    for statement in more:
        workspace.query(statement)


def checked(workspace: MySQLWorkspace, **options: Any) -> Any:
    sink = workspace.sink(**options)
    sink.check(SCHEMA, output_mode="complete" if options.get("mode") == "replace" else "update")
    return sink


def slots(sink: Any, batch: pa.RecordBatch = TWO, epoch: int = 0) -> list[SlotValues]:
    receipt = Receipt(JOB.name, JOB.generation, sink.name, epoch, 0, Fingerprint("f"))
    return [SlotValues(0, batch.num_rows, receipt, lambda: iter([batch]))]


def write(sink: Any, batch: pa.RecordBatch = TWO) -> None:
    """By whichever way the sink has."""
    if hasattr(sink, "send_transaction"):
        sink.send_transaction(slots(sink, batch), JOB, 0, AT)
        return
    transaction = sink.begin_transaction(SlotContext(JOB, sink.name, 0, 0, 0, 1, RunId("rrrrrr"), AT, Fingerprint("f")))
    try:
        sink.invoke(transaction, batch)
        sink.commit(pre_committed(sink, transaction))
    except BaseException:
        sink.discard(transaction)
        raise


# --- 90: unique indexes beside the key ----------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "shown"),
    [("(name(3))", r"name\(3\)"), ("(name(3), id)", None), ("(name, id)", None), ("(name)", "name")],
)
def test_s90_a_unique_index_beside_the_key_is_refused_unless_it_has_the_whole_key_in_it(
    workspace: MySQLWorkspace, index: str, shown: str | None
) -> None:
    made(workspace, f"CREATE UNIQUE INDEX late ON `rows` {index}")
    if shown is None:
        send(checked(workspace, **UPSERT), 0, TWO)
        assert len(workspace.rows()) == 2
        return
    with pytest.raises(TargetRefused, match=f"second unique index on {shown}") as refused:
        checked(workspace, **UPSERT)
    workspace.query(str(refused.value.hint).partition("run: ")[2].removesuffix(";"))
    checked(workspace, **UPSERT)


def test_s90_an_index_over_a_part_of_the_key_is_neither_the_key_nor_harmless(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (id BIGINT, name VARCHAR(20), UNIQUE part (name(3))) ENGINE=InnoDB")
    with pytest.raises(TargetRefused, match="no unique index on name"):
        checked(workspace, mode="upsert", keys=["name"])
    workspace.query("CREATE UNIQUE INDEX whole ON `rows` (name)")
    with pytest.raises(TargetRefused, match=r"second unique index on name\(3\)"):
        checked(workspace, mode="upsert", keys=["name"])
    workspace.query("DROP INDEX part ON `rows`")
    send(checked(workspace, mode="upsert", keys=["name"]), 0, TWO)
    assert len(workspace.rows()) == 2


def test_s90_a_row_that_is_there_is_changed_by_its_key_and_not_by_an_index_that_the_server_asks_first(
    workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the look taken away: the other index stands before the key's own."""
    workspace.query("CREATE TABLE `rows` (id BIGINT, name VARCHAR(20), UNIQUE mine (id)) ENGINE=InnoDB")
    sink = checked(workspace, **UPSERT)
    send(sink, 0, pa.record_batch([[1, 2], ["anna", "bob"]], schema=SCHEMA))
    workspace.query("DROP INDEX mine ON `rows`")
    workspace.query("CREATE UNIQUE INDEX late ON `rows` (name(3))")
    workspace.query("CREATE UNIQUE INDEX mine ON `rows` (id)")
    monkeypatch.setattr("onceward.sinks.mysql.facts.refuse_change", lambda *_, **__: None)
    with pytest.raises(RowsRejected, match="Duplicate entry 'ann'"):
        send(sink, 1, pa.record_batch([[2], ["annika"]], schema=SCHEMA))
    assert {row["id"]: row["name"] for row in workspace.rows()} == {1: "anna", 2: "bob"}


def test_s90_an_index_over_an_expression_is_refused_and_one_over_a_part_of_the_key_is_not_the_key() -> None:
    """As MySQL 8 describes them: no column, and the expression beside it. No such server is at hand."""
    column = ("bigint", "bigint", None, "19", "0", None, "NO", None, "", None, None)
    text = ("varchar", "varchar(20)", "20", None, None, None, "YES", None, "", "utf8mb4", "utf8mb4_bin")
    rows: list[Any] = [
        ("table", "BASE TABLE", "InnoDB"),
        ("column", "id", *column),
        ("column", "name", *text),
        ("unique", "PRIMARY", "1", "id", None, None),
    ]
    options = _options()
    table = _described(rows)
    assert table is not None
    refuse_table(table, options, SCHEMA, MYSQL_8)
    table = _described([*rows, ("unique", "low", "1", None, None, "lower(`name`)")])
    assert table is not None
    with pytest.raises(TargetRefused, match=r"second unique index on \(lower\(`name`\)\)"):
        refuse_table(table, options, SCHEMA, MYSQL_8)


def _options() -> Any:
    return MySQLSink("mysql://h/d", table="rows", **UPSERT)._options


@pytest.mark.parametrize("deleted", [None, "gone"])
def test_s90_an_upsert_never_changes_a_row_of_another_key_even_where_nobody_looked_at_the_index(
    workspace: MySQLWorkspace, deleted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statements themselves, with the look taken away."""
    made(workspace)
    batch = TWO.append_column("gone", pa.array([False, False])) if deleted else TWO
    sink = workspace.sink(**UPSERT, deleted=deleted)
    sink.check(batch.schema, output_mode="update")
    workspace.query("CREATE UNIQUE INDEX late ON `rows` (name(3))")
    monkeypatch.setattr("onceward.sinks.mysql.facts.refuse_change", lambda *_, **__: None)
    with pytest.raises(Exception, match="Duplicate entry 'ann'"):
        send(sink, 0, batch)
    assert workspace.rows() == []


def test_s90_a_unique_index_that_comes_while_the_job_runs_stops_it_and_the_next_start_says_what_to_mend(
    workspace: MySQLWorkspace,
) -> None:
    sink = workspace.sink(**UPSERT)
    sink.check(ENGINE_SCHEMA, output_mode="append")
    harness = Harness(SinkUnderTest(sink, workspace.rows, ordered=False), source=Source(ends=(4, 8), keys=3))
    harness.life(until=0)
    before = workspace.rows(order="ORDER BY id")
    assert before
    workspace.query("CREATE UNIQUE INDEX late ON `rows` (id, `key`)")
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetChanged), ending.error
    assert "unique indexes of 'rows' was PRIMARY (id) and is PRIMARY (id); late" in str(ending.error)
    assert workspace.rows(order="ORDER BY id") == before
    workspace.query("ALTER TABLE `rows` DROP INDEX late")
    assert isinstance(harness.life(), Finished)
    assert harness.problems() == []


# --- 91: tables without transactions ------------------------------------------------------------


@pytest.mark.parametrize("table", ["rows", "onceward_receipts", "onceward_watermarks"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_s91_an_engine_without_transactions_is_refused_at_the_start_with_the_statement_that_mends_it(
    workspace: MySQLWorkspace, variant: str, table: str
) -> None:
    checked(workspace, **VARIANTS[variant])
    workspace.query(f"ALTER TABLE `{table}` ENGINE=MyISAM")
    with pytest.raises(TargetRefused, match=f"table '{table}' is kept by MyISAM, which has no transactions") as refused:
        checked(workspace, **VARIANTS[variant])
    workspace.query(str(refused.value.hint).partition("run: ")[2].removesuffix(";"))
    write(checked(workspace, **VARIANTS[variant]))
    assert len(workspace.rows()) == 2


@pytest.mark.parametrize("table", ["rows", "onceward_receipts", "onceward_watermarks"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_s91_an_engine_that_changes_while_the_job_runs_stops_it_before_a_row_is_written(
    workspace: MySQLWorkspace, variant: str, table: str
) -> None:
    sink = checked(workspace, **VARIANTS[variant])
    workspace.query(f"ALTER TABLE `{table}` ENGINE=Aria")
    with pytest.raises(TargetChanged, match=f"engine of '?{table}'? was InnoDB and is Aria"):
        write(sink)
    assert (workspace.rows(), workspace.query("SELECT * FROM onceward_receipts"), workspace.prepared()) == ([], [], [])
    workspace.query(f"ALTER TABLE `{table}` ENGINE=InnoDB")
    write(sink)
    assert len(workspace.rows()) == 2


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("table", ["rows", "onceward_receipts"])
def test_s91_no_change_slips_in_between_the_look_and_the_commit(
    workspace: MySQLWorkspace, variant: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the look until the end of the transaction the table is locked against every change of its definition."""
    sink = checked(workspace, **VARIANTS[variant])
    execute, tried = Session.execute, list[str]()
    trigger = f"BEFORE INSERT ON `{table}` FOR EACH ROW SET @x = 1"

    def altered(self: Session, statement: str) -> Any:
        found = execute(self, statement)
        if "information_schema.STATISTICS" in statement:
            for change in (f"ALTER TABLE `{table}` ENGINE=MyISAM", f"CREATE TRIGGER t {trigger}"):
                with pytest.raises(pymysql.MySQLError, match="Lock wait timeout"):
                    workspace.query(f"SET STATEMENT lock_wait_timeout = 0 FOR {change}")
                tried.append(change)
        return found

    monkeypatch.setattr(Session, "execute", altered)
    write(sink)
    assert len(tried) == 2, "one look a transaction"
    assert len(workspace.rows()) == 2


def test_s91_a_sink_that_was_never_checked_examines_the_target_at_its_first_use(workspace: MySQLWorkspace) -> None:
    """As a command has it."""
    checked(workspace, two_phase=False)
    workspace.query("ALTER TABLE onceward_receipts ENGINE=MyISAM")
    with pytest.raises(TargetRefused, match="table 'onceward_receipts' is kept by MyISAM"):
        write(workspace.sink(two_phase=False))
    assert workspace.rows() == []


def test_s91_receipts_without_their_key_are_refused(workspace: MySQLWorkspace) -> None:
    checked(workspace)
    workspace.query("ALTER TABLE onceward_receipts DROP PRIMARY KEY")
    with pytest.raises(TargetRefused, match="has lost its primary key") as refused:
        checked(workspace)
    workspace.query(str(refused.value.hint).partition("run: ")[2].removesuffix(";"))
    checked(workspace)


# --- triggers and columns -----------------------------------------------------------------------

CHANGES = "CREATE TRIGGER tell BEFORE {} ON `rows` FOR EACH ROW SET NEW.name = 'changed'"


@pytest.mark.parametrize(
    ("variant", "event"),
    [("append from the log", "INSERT"), ("upsert", "INSERT"), ("upsert", "UPDATE"), ("replace", "INSERT")],
)
def test_s92_a_trigger_that_may_change_values_is_refused_unless_it_is_wished(
    workspace: MySQLWorkspace, variant: str, event: str
) -> None:
    made(workspace, CHANGES.format(event))
    with pytest.raises(TargetRefused, match=f"trigger 'tell' of table 'rows' runs before each {event}"):
        checked(workspace, **VARIANTS[variant])
    sink = checked(workspace, **VARIANTS[variant], before_triggers="allow")
    write(sink)
    write(checked(workspace, **VARIANTS[variant], before_triggers="allow"))
    assert {row["name"] for row in workspace.rows()} == ({"changed"} if event == "INSERT" else {"anna", "annika"})


def test_a_trigger_that_runs_afterwards_changes_nothing_and_is_no_reason(workspace: MySQLWorkspace) -> None:
    made(workspace, "CREATE TRIGGER tell AFTER INSERT ON `rows` FOR EACH ROW SET @told = NEW.name")
    for variant in ("append from the log", "upsert"):
        checked(workspace, **VARIANTS[variant])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (CHANGES.format("INSERT"), "triggers of 'rows' before rows are stored was none and is BEFORE INSERT tell"),
        ("ALTER TABLE `rows` MODIFY name CHAR(20)", "column 'name' was longtext.* and is char"),
        ("ALTER TABLE `rows` MODIFY id BIGINT UNSIGNED NOT NULL", "column 'id' was bigint.* and is bigint.* unsigned"),
        ("ALTER TABLE `rows` ADD must INT NOT NULL", "that need a value was none and is must"),
        ("ALTER TABLE `rows` DROP COLUMN name", "column 'name' was longtext.* and is not there"),
    ],
)
def test_s92_a_change_that_would_change_values_stops_the_job_before_a_row_is_written(
    workspace: MySQLWorkspace, variant: str, change: str, fact: str
) -> None:
    if variant == "upsert" and "name CHAR" in change:
        change = change.replace("CHAR(20)", "CHAR(20) CHARACTER SET utf8mb4")
    sink = checked(workspace, **VARIANTS[variant])
    workspace.query(change)
    with pytest.raises(TargetChanged, match=fact):
        write(sink)
    assert (workspace.rows(), workspace.prepared()) == ([], [])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_change_that_harms_nothing_stops_nothing(workspace: MySQLWorkspace, variant: str) -> None:
    sink = checked(workspace, **VARIANTS[variant])
    workspace.query("ALTER TABLE `rows` ADD note VARCHAR(20), ADD kept INT NOT NULL DEFAULT 7, ADD INDEX some (note)")
    workspace.query("ALTER TABLE `rows` AUTO_INCREMENT = 100, COMMENT = 'ours'")
    write(sink)
    assert [row["kept"] for row in workspace.rows()] == [7, 7]


def test_the_facts_are_short_and_name_what_the_sink_relies_on(workspace: MySQLWorkspace) -> None:
    made(workspace)
    assert dict(checked(workspace, **UPSERT).target_facts()) == {
        "engine of onceward_receipts": "InnoDB",
        "engine of onceward_watermarks": "InnoDB",
        "engine of 'rows'": "InnoDB",
        "triggers of 'rows' before rows are stored": "none",
        "columns of 'rows' that need a value": "none",
        "unique indexes of 'rows'": "PRIMARY (id)",
        "column 'id'": "bigint(20), not null",
        "column 'name'": "varchar(20), " + workspace.query("SELECT @@collation_database")[0][0],
    }


# --- errors of the server -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sabotage", "fix"),
    [
        ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
        ("SET GLOBAL local_infile = 0", "SET GLOBAL local_infile = 1"),
        ("RENAME TABLE `rows` TO hidden", "RENAME TABLE hidden TO `rows`"),
        ("REVOKE INSERT ON {database}.* FROM {user}", "GRANT INSERT ON {database}.* TO {user}"),
        ("RENAME USER {user} TO gone@localhost", "RENAME USER gone@localhost TO {user}"),
    ],
)
def test_s95_what_the_server_says_is_told_as_busy_or_as_changed_and_no_row_is_blamed(
    workspace: MySQLWorkspace, sabotage: str, fix: str
) -> None:
    user = f"u_{workspace.database}@localhost"
    names = {"database": workspace.database, "user": user}
    workspace.query(f"CREATE USER {user}")
    workspace.query(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, TRIGGER ON {workspace.database}.* TO {user}")
    sink = MySQLSink(
        workspace.url(user=f"u_{workspace.database}"), table="rows", two_phase=False, timeout_s=30.0
    ).choose()
    sink.check(SCHEMA, output_mode="append")
    workspace.query(sabotage.format(**names))
    try:
        expected = TryAgain if "read_only" in sabotage else TargetChanged
        with pytest.raises(expected):
            write(sink)
        with pytest.raises(Exception):  # noqa: B017, PT011 (whatever it says: it names no row)
            sink.find_rejected(slots(sink), JOB, 0)
    finally:
        workspace.query(fix.format(**names))
    write(sink)
    assert len(workspace.rows()) == 2
    workspace.query(f"DROP USER {user}")
