"""Scenarios 90 and 91: indexes, engines and triggers that would lose rows or change them are refused at the start, and
when they come while the job runs it stops before it writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pymysql
import pytest
from mysql_ground import JOB, Ground, send

from onceward.connections.mysql import Session
from onceward.contracts import Receipt, SlotContext, SlotValues, TryAgain
from onceward.errors import RowsRejected, TargetChanged, TargetRefused
from onceward.identity import Fingerprint, RunId
from onceward.sinks import MySQLSink
from onceward.sinks.mysql.fitting import refuse_table
from onceward.sinks.mysql.look import _described
from onceward.sinks.mysql.table import Server
from onceward.testing import Failed, Finished, Harness, Outlet, Source
from onceward.testing.conformance.base import AT
from onceward.testing.engine import SCHEMA as ENGINE_SCHEMA

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TWO = pa.record_batch([[1, 2], ["anna", "annika"]], schema=SCHEMA)
MYSQL_8 = Server((8, 0, 36), False, False, True, False)
UPSERT = {"mode": "upsert", "keys": ["id"]}
WAYS: dict[str, dict[str, Any]] = {
    "append by xa": {},
    "append from the log": {"two_phase": False},
    "upsert": UPSERT,
    "replace": {"mode": "replace"},
}


def made(ground: Ground, *more: str) -> None:
    ground.query("CREATE TABLE `rows` (id BIGINT PRIMARY KEY, name VARCHAR(20)) ENGINE=InnoDB")
    for statement in more:
        ground.query(statement)


def checked(ground: Ground, **options: Any) -> Any:
    sink = ground.sink(**options)
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
        sink.commit(sink.pre_commit(transaction))
    except BaseException:
        sink.discard(transaction)
        raise


# --- 90: unique indexes beside the key ----------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "shown"),
    [("(name(3))", r"name\(3\)"), ("(name(3), id)", None), ("(name, id)", None), ("(name)", "name")],
)
def test_s90_a_unique_index_beside_the_key_is_refused_unless_it_has_the_whole_key_in_it(
    ground: Ground, index: str, shown: str | None
) -> None:
    made(ground, f"CREATE UNIQUE INDEX late ON `rows` {index}")
    if shown is None:
        send(checked(ground, **UPSERT), 0, TWO)
        assert len(ground.rows()) == 2
        return
    with pytest.raises(TargetRefused, match=f"second unique index on {shown}") as refused:
        checked(ground, **UPSERT)
    ground.query(str(refused.value.hint).partition("run: ")[2].removesuffix(";"))
    checked(ground, **UPSERT)


def test_s90_an_index_over_a_part_of_the_key_is_neither_the_key_nor_harmless(ground: Ground) -> None:
    ground.query("CREATE TABLE `rows` (id BIGINT, name VARCHAR(20), UNIQUE part (name(3))) ENGINE=InnoDB")
    with pytest.raises(TargetRefused, match="no unique index on name"):
        checked(ground, mode="upsert", keys=["name"])
    ground.query("CREATE UNIQUE INDEX whole ON `rows` (name)")
    with pytest.raises(TargetRefused, match=r"second unique index on name\(3\)"):
        checked(ground, mode="upsert", keys=["name"])
    ground.query("DROP INDEX part ON `rows`")
    send(checked(ground, mode="upsert", keys=["name"]), 0, TWO)
    assert len(ground.rows()) == 2


def test_s90_a_row_that_is_there_is_changed_by_its_key_and_not_by_an_index_that_the_server_asks_first(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the look taken away: the other index stands before the key's own."""
    ground.query("CREATE TABLE `rows` (id BIGINT, name VARCHAR(20), UNIQUE mine (id)) ENGINE=InnoDB")
    sink = checked(ground, **UPSERT)
    send(sink, 0, pa.record_batch([[1, 2], ["anna", "bob"]], schema=SCHEMA))
    ground.query("DROP INDEX mine ON `rows`")
    ground.query("CREATE UNIQUE INDEX late ON `rows` (name(3))")
    ground.query("CREATE UNIQUE INDEX mine ON `rows` (id)")
    monkeypatch.setattr("onceward.sinks.mysql.reliance.refuse_change", lambda *_, **__: None)
    with pytest.raises(RowsRejected, match="Duplicate entry 'ann'"):
        send(sink, 1, pa.record_batch([[2], ["annika"]], schema=SCHEMA))
    assert {row["id"]: row["name"] for row in ground.rows()} == {1: "anna", 2: "bob"}


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
    settings = _settings()
    table = _described(rows)
    assert table is not None
    refuse_table(table, settings, SCHEMA, MYSQL_8)
    table = _described([*rows, ("unique", "low", "1", None, None, "lower(`name`)")])
    assert table is not None
    with pytest.raises(TargetRefused, match=r"second unique index on \(lower\(`name`\)\)"):
        refuse_table(table, settings, SCHEMA, MYSQL_8)


def _settings() -> Any:
    return MySQLSink("mysql://h/d", table="rows", **UPSERT)._settings  # type: ignore[arg-type]


@pytest.mark.parametrize("deleted", [None, "gone"])
def test_s90_an_upsert_never_changes_a_row_of_another_key_even_where_nobody_looked_at_the_index(
    ground: Ground, deleted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statements themselves, with the look taken away."""
    made(ground)
    batch = TWO.append_column("gone", pa.array([False, False])) if deleted else TWO
    sink = ground.sink(**UPSERT, deleted=deleted)
    sink.check(batch.schema, output_mode="update")
    ground.query("CREATE UNIQUE INDEX late ON `rows` (name(3))")
    monkeypatch.setattr("onceward.sinks.mysql.reliance.refuse_change", lambda *_, **__: None)
    with pytest.raises(Exception, match="Duplicate entry 'ann'"):
        send(sink, 0, batch)
    assert ground.rows() == []


def test_s90_a_unique_index_that_comes_while_the_job_runs_stops_it_and_the_next_start_says_what_to_mend(
    ground: Ground,
) -> None:
    sink = ground.sink(**UPSERT)
    sink.check(ENGINE_SCHEMA, output_mode="append")
    harness = Harness(Outlet(sink, ground.rows, ordered=False), source=Source(ends=(4, 8), keys=3))
    harness.life(until=0)
    before = ground.rows(order="ORDER BY id")
    assert before
    ground.query("CREATE UNIQUE INDEX late ON `rows` (id, `key`)")
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetChanged), ending.error
    assert "unique indexes of 'rows' was PRIMARY (id) and is PRIMARY (id); late" in str(ending.error)
    assert ground.rows(order="ORDER BY id") == before
    ground.query("ALTER TABLE `rows` DROP INDEX late")
    assert isinstance(harness.life(), Finished)
    assert harness.problems() == []


# --- 91: tables without transactions ------------------------------------------------------------


@pytest.mark.parametrize("table", ["rows", "onceward_receipts", "onceward_watermarks"])
@pytest.mark.parametrize("way", WAYS)
def test_s91_an_engine_without_transactions_is_refused_at_the_start_with_the_statement_that_mends_it(
    ground: Ground, way: str, table: str
) -> None:
    checked(ground, **WAYS[way])
    ground.query(f"ALTER TABLE `{table}` ENGINE=MyISAM")
    with pytest.raises(TargetRefused, match=f"table '{table}' is kept by MyISAM, which has no transactions") as refused:
        checked(ground, **WAYS[way])
    ground.query(str(refused.value.hint).partition("run: ")[2].removesuffix(";"))
    write(checked(ground, **WAYS[way]))
    assert len(ground.rows()) == 2


@pytest.mark.parametrize("table", ["rows", "onceward_receipts", "onceward_watermarks"])
@pytest.mark.parametrize("way", WAYS)
def test_s91_an_engine_that_changes_while_the_job_runs_stops_it_before_a_row_is_written(
    ground: Ground, way: str, table: str
) -> None:
    sink = checked(ground, **WAYS[way])
    ground.query(f"ALTER TABLE `{table}` ENGINE=Aria")
    with pytest.raises(TargetChanged, match=f"engine of '?{table}'? was InnoDB and is Aria"):
        write(sink)
    assert (ground.rows(), ground.query("SELECT * FROM onceward_receipts"), ground.prepared()) == ([], [], [])
    ground.query(f"ALTER TABLE `{table}` ENGINE=InnoDB")
    write(sink)
    assert len(ground.rows()) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("table", ["rows", "onceward_receipts"])
def test_s91_no_change_slips_in_between_the_look_and_the_commit(
    ground: Ground, way: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the look until the end of the transaction the table is locked against every change of its definition."""
    sink = checked(ground, **WAYS[way])
    execute, tried = Session.execute, list[str]()
    trigger = f"BEFORE INSERT ON `{table}` FOR EACH ROW SET @x = 1"

    def altered(self: Session, statement: str) -> Any:
        found = execute(self, statement)
        if "information_schema.STATISTICS" in statement:
            for change in (f"ALTER TABLE `{table}` ENGINE=MyISAM", f"CREATE TRIGGER t {trigger}"):
                with pytest.raises(pymysql.MySQLError, match="Lock wait timeout"):
                    ground.query(f"SET STATEMENT lock_wait_timeout = 0 FOR {change}")
                tried.append(change)
        return found

    monkeypatch.setattr(Session, "execute", altered)
    write(sink)
    assert len(tried) == 2, "one look a transaction"
    assert len(ground.rows()) == 2


def test_s91_a_sink_that_was_never_checked_examines_the_target_at_its_first_use(ground: Ground) -> None:
    """As a command has it."""
    checked(ground, two_phase=False)
    ground.query("ALTER TABLE onceward_receipts ENGINE=MyISAM")
    with pytest.raises(TargetRefused, match="table 'onceward_receipts' is kept by MyISAM"):
        write(ground.sink(two_phase=False))
    assert ground.rows() == []


def test_s91_receipts_without_their_key_are_refused(ground: Ground) -> None:
    checked(ground)
    ground.query("ALTER TABLE onceward_receipts DROP PRIMARY KEY")
    with pytest.raises(TargetRefused, match="has lost its primary key") as refused:
        checked(ground)
    ground.query(str(refused.value.hint).partition("run: ")[2].removesuffix(";"))
    checked(ground)


# --- triggers and columns -----------------------------------------------------------------------

CHANGES = "CREATE TRIGGER tell BEFORE {} ON `rows` FOR EACH ROW SET NEW.name = 'changed'"


@pytest.mark.parametrize(
    ("way", "event"),
    [("append from the log", "INSERT"), ("upsert", "INSERT"), ("upsert", "UPDATE"), ("replace", "INSERT")],
)
def test_s92_a_trigger_that_may_change_values_is_refused_unless_it_is_wished(
    ground: Ground, way: str, event: str
) -> None:
    made(ground, CHANGES.format(event))
    with pytest.raises(TargetRefused, match=f"trigger 'tell' of table 'rows' runs before each {event}"):
        checked(ground, **WAYS[way])
    sink = checked(ground, **WAYS[way], before_triggers="allow")
    write(sink)
    write(checked(ground, **WAYS[way], before_triggers="allow"))
    assert {row["name"] for row in ground.rows()} == ({"changed"} if event == "INSERT" else {"anna", "annika"})


def test_a_trigger_that_runs_afterwards_changes_nothing_and_is_no_reason(ground: Ground) -> None:
    made(ground, "CREATE TRIGGER tell AFTER INSERT ON `rows` FOR EACH ROW SET @told = NEW.name")
    for way in ("append from the log", "upsert"):
        checked(ground, **WAYS[way])


@pytest.mark.parametrize("way", WAYS)
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
    ground: Ground, way: str, change: str, fact: str
) -> None:
    if way == "upsert" and "name CHAR" in change:
        change = change.replace("CHAR(20)", "CHAR(20) CHARACTER SET utf8mb4")
    sink = checked(ground, **WAYS[way])
    ground.query(change)
    with pytest.raises(TargetChanged, match=fact):
        write(sink)
    assert (ground.rows(), ground.prepared()) == ([], [])


@pytest.mark.parametrize("way", WAYS)
def test_a_change_that_harms_nothing_stops_nothing(ground: Ground, way: str) -> None:
    sink = checked(ground, **WAYS[way])
    ground.query("ALTER TABLE `rows` ADD note VARCHAR(20), ADD kept INT NOT NULL DEFAULT 7, ADD INDEX some (note)")
    ground.query("ALTER TABLE `rows` AUTO_INCREMENT = 100, COMMENT = 'ours'")
    write(sink)
    assert [row["kept"] for row in ground.rows()] == [7, 7]


def test_the_facts_are_short_and_name_what_the_sink_relies_on(ground: Ground) -> None:
    made(ground)
    assert dict(checked(ground, **UPSERT).target_facts()) == {
        "engine of onceward_receipts": "InnoDB",
        "engine of onceward_watermarks": "InnoDB",
        "engine of 'rows'": "InnoDB",
        "triggers of 'rows' before rows are stored": "none",
        "columns of 'rows' that need a value": "none",
        "unique indexes of 'rows'": "PRIMARY (id)",
        "column 'id'": "bigint(20), not null",
        "column 'name'": "varchar(20), " + ground.query("SELECT @@collation_database")[0][0],
    }


# --- errors of the server -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sabotage", "mend"),
    [
        ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
        ("SET GLOBAL local_infile = 0", "SET GLOBAL local_infile = 1"),
        ("RENAME TABLE `rows` TO hidden", "RENAME TABLE hidden TO `rows`"),
        ("REVOKE INSERT ON {database}.* FROM {user}", "GRANT INSERT ON {database}.* TO {user}"),
        ("RENAME USER {user} TO gone@localhost", "RENAME USER gone@localhost TO {user}"),
    ],
)
def test_s95_what_the_server_says_is_told_as_busy_or_as_changed_and_no_row_is_blamed(
    ground: Ground, sabotage: str, mend: str
) -> None:
    user = f"u_{ground.database}@localhost"
    names = {"database": ground.database, "user": user}
    ground.query(f"CREATE USER {user}")
    ground.query(f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, TRIGGER ON {ground.database}.* TO {user}")
    sink = MySQLSink(ground.url(user=f"u_{ground.database}"), table="rows", two_phase=False, timeout_s=30.0).choose()
    sink.check(SCHEMA, output_mode="append")
    ground.query(sabotage.format(**names))
    try:
        expected = TryAgain if "read_only" in sabotage else TargetChanged
        with pytest.raises(expected):
            write(sink)
        with pytest.raises(Exception):  # noqa: B017, PT011 (whatever it says: it names no row)
            sink.find_rejected(slots(sink), JOB, 0)  # type: ignore[union-attr]
    finally:
        ground.query(mend.format(**names))
    write(sink)
    assert len(ground.rows()) == 2
    ground.query(f"DROP USER {user}")
