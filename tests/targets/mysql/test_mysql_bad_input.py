"""What cannot work is refused before anything moves, by name, with the statement that fixes it; and tells no secret."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from mysql_workspace import JOB, MySQLWorkspace, pre_committed, send

from onceward.committers import MySQLCheckpointCommitter
from onceward.connections.mysql import MySQLError
from onceward.contracts import Committed, Handle, Severity, SlotContext, Workload
from onceward.errors import ConfigurationError, OncewardError, TargetRefused, TargetUnavailable
from onceward.identity import Fingerprint, RunId, SinkName
from onceward.sinks import MySQLSink
from onceward.sinks.mysql.facts import TargetFacts
from onceward.sinks.mysql.preflight import Readiness
from onceward.sinks.mysql.session import connect
from onceward.sinks.mysql.table import Server
from onceward.sinks.mysql.two_phase import MySQLTwoPhaseSink
from onceward.storage import LocalStorage
from onceward.testing import DirectoryLogs, Harness, SinkUnderTest, Source
from onceward.testing.conformance.base import AT
from onceward.testing.engine import SCHEMA as ENGINE_SCHEMA

pytestmark = pytest.mark.cluster

URL = "mysql://root@127.0.0.1:1/test"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("localhost/test", {}, "does not begin with mysql://"),
        ("postgresql://host/db", {}, "does not begin with mysql://"),
        ("mysql:///db", {}, "names no host"),
        ("mysql://host", {}, "names no database"),
        ("mysql://host:port/db", {}, "cannot be read"),
        ("mysql://user:p@ss/word@host/db", {}, "is ambiguous"),
        ("mysql://host/db?charset=latin1", {}, "unknown option 'charset'"),
        (URL, {"table": ""}, "cannot be a table"),
        (URL, {"table": "a.b.c"}, "cannot be a table"),
        (URL, {"table": "x" * 65}, "1 to 64 characters"),
        (URL, {"table": "duck 🦆"}, "beyond U"),
        (URL, {"table": "onceward_receipts"}, "reserved"),
        (URL, {"mode": "merge"}, "unknown mode"),
        (URL, {"mode": "upsert"}, "needs keys"),
        (URL, {"keys": "id"}, "no use for keys"),
        (URL, {"deleted": "gone"}, "no use for keys"),
        (URL, {"mode": "upsert", "keys": ["a", "A"]}, "twice"),
        (URL, {"mode": "upsert", "keys": ["a"], "deleted": "A"}, "is a key"),
        (URL, {"non_finite": "zero"}, "unknown non_finite"),
        (URL, {"timeout_s": 0}, "timeout_s"),
    ],
)
def test_wrong_options_are_refused_at_once(url: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        MySQLSink(url, **{"table": "t", **options})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("definition", "said", "hint"),
    [
        ("id BIGINT, name TEXT", "has no column at", "ALTER TABLE .* ADD COLUMN `at` DATETIME"),
        ("id BIGINT, name TEXT, at DATETIME", "declared datetime", "MODIFY `at` DATETIME"),
        ("id BIGINT, name TEXT, at DATETIME(6), must INT NOT NULL", "needs a value for must", "MODIFY `must`"),
        ("id INT, name TEXT, at DATETIME(6)", "declared int", "MODIFY `id` BIGINT"),
        ("id BIGINT UNSIGNED, name TEXT, at DATETIME(6)", "unsigned", "MODIFY `id` BIGINT"),
        ("id BIGINT, name BLOB, at DATETIME(6)", "declared blob", "MODIFY `name` LONGTEXT"),
        ("id BIGINT, name INT, at DATETIME(6)", "declared int", "MODIFY `name` LONGTEXT"),
        ("id BIGINT, name TEXT, at DATE", "declared date", "MODIFY `at` DATETIME"),
        ("id BIGINT, name TEXT AS ('x'), at DATETIME(6)", "computed by the table", "leave it out"),
        ("id BIGINT, name TEXT, at DATETIME(6)) ENGINE=Aria COMMENT=('x'", "has no transactions", "ENGINE=InnoDB"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_and_left_alone(
    workspace: MySQLWorkspace, definition: str, said: str, hint: str
) -> None:
    definition = definition.replace(" COMMENT=('x'", "")
    closing = "" if "ENGINE" in definition else ")"
    workspace.query(f"CREATE TABLE `rows` ({definition}{closing}")
    before = workspace.query("SHOW CREATE TABLE `rows`")
    with pytest.raises(TargetRefused, match=said) as caught:
        workspace.sink().check(SCHEMA, output_mode="append")
    assert caught.value.sink == "mysql:rows"
    assert caught.match(hint)
    assert workspace.query("SHOW CREATE TABLE `rows`") == before


def test_the_statement_that_a_refusal_names_mends_it(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (id INT NOT NULL, at DATETIME, name VARCHAR(9)) ENGINE=Aria")
    sink = workspace.sink(mode="upsert", keys=["id", "name"])
    schema = SCHEMA.append(pa.field("more", pa.bool_()))
    hints: list[str] = []
    while len(hints) < 10:
        try:
            sink.check(schema, output_mode="update")
            break
        except TargetRefused as refused:
            hints.append(str(refused.hint))
        workspace.query(hints[-1].partition("run: ")[2].partition(";")[0])
    assert [word in hint for word, hint in zip(("ENGINE", "ADD COLUMN", "`id`", "`at`", "UNIQUE"), hints, strict=True)]


def test_an_upsert_wants_one_unique_index_and_no_other(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (id BIGINT, name VARCHAR(20), at DATETIME(6), KEY (id)) ENGINE=InnoDB")
    sink = workspace.sink(mode="upsert", keys=["ID"])
    with pytest.raises(TargetRefused, match="no unique index on ID") as caught:
        sink.check(SCHEMA, output_mode="update")
    assert "ADD UNIQUE (`ID`)" in str(caught.value)
    workspace.query("ALTER TABLE `rows` ADD UNIQUE (ID), ADD UNIQUE (name)")
    with pytest.raises(TargetRefused, match="second unique index on name"):
        sink.check(SCHEMA, output_mode="update")
    workspace.query("ALTER TABLE `rows` DROP INDEX name, ADD UNIQUE (id, name), ADD n INT AUTO_INCREMENT PRIMARY KEY")
    sink.check(SCHEMA, output_mode="update")
    assert send(sink, 0, pa.record_batch([[1], ["x"], [AT]], schema=SCHEMA))


@pytest.mark.parametrize(
    ("schema", "options", "mode", "said"),
    [
        (SCHEMA, {}, "complete", "pile it up"),
        (SCHEMA, {"mode": "replace"}, "update", "needs output mode complete"),
        (pa.schema([("a", pa.int8()), ("A", pa.int8())]), {}, "append", "ignores case"),
        (pa.schema([]), {}, "append", "no columns"),
        (SCHEMA, {"mode": "upsert", "keys": "key"}, "update", "no key column key"),
        (SCHEMA, {"mode": "upsert", "keys": "id", "order_by": "x"}, "update", "no order_by column x"),
        (SCHEMA, {"mode": "upsert", "keys": "id", "deleted": "x"}, "update", "no deleted column x"),
        (SCHEMA, {"mode": "upsert", "keys": "id", "deleted": "name"}, "update", "cannot tell which rows are deleted"),
        (pa.schema([("f", pa.float64())]), {"mode": "upsert", "keys": "f"}, "update", "cannot be a key"),
        (pa.schema([("x" * 65, pa.int8())]), {}, "append", "1 to 64 characters"),
        (pa.schema([("blank ", pa.int8())]), {}, "append", "end with a blank"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused(
    workspace: MySQLWorkspace, schema: pa.Schema, options: dict[str, Any], mode: str, said: str
) -> None:
    with pytest.raises(TargetRefused, match=said):
        workspace.sink(**options).check(schema, output_mode=mode)
    assert workspace.query("SHOW TABLES") == []


def test_a_missing_table_is_made_only_if_that_is_wished(workspace: MySQLWorkspace) -> None:
    with pytest.raises(TargetRefused, match="there is no table 'rows'") as caught:
        workspace.sink(create_table=False).check(SCHEMA, output_mode="append")
    assert workspace.query("SHOW TABLES") == []
    workspace.query(str(caught.value.hint).removeprefix("run: ").removesuffix(";"))
    workspace.sink(create_table=False).check(SCHEMA, output_mode="append")


def test_a_view_a_missing_database_and_a_wrong_password_are_refused(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE VIEW `rows` AS SELECT 1 AS id")
    with pytest.raises(TargetRefused, match="is a view"):
        workspace.sink().check(SCHEMA, output_mode="append")
    port = workspace.server.port
    with pytest.raises(TargetRefused, match="refuses"):
        MySQLSink(f"mysql://root@127.0.0.1:{port}/nowhere", table="t").choose()
    with pytest.raises(TargetRefused, match="Access denied"):
        MySQLSink(f"mysql://root:wrong@127.0.0.1:{port}/test", table="t").choose()
    with pytest.raises(TargetUnavailable, match="does not answer"):
        MySQLSink(URL, table="t").choose()


def test_hostile_identifiers_are_nothing_but_names(workspace: MySQLWorkspace) -> None:
    hostile = "x`; DROP TABLE `safe`; -- %s '\"\\ ?\n数"
    workspace.query("CREATE TABLE safe (id INT)")
    workspace.query(f"CREATE DATABASE `{workspace.database} o'dd``.%s`")
    for options in ({}, {"mode": "upsert", "keys": [hostile], "deleted": "go`ne"}):
        table = f"`{workspace.database} o'dd``.%s`.`{hostile.replace('`', '``')}{len(options)}`"
        sink = workspace.sink(table=table, **options)
        schema = pa.schema([(hostile, pa.string()), ("b`", pa.binary()), ("go`ne", pa.bool_())])
        sink.check(schema, output_mode="update")
        sink.check(schema, output_mode="update")
        batch = pa.record_batch([["Robert'); DROP TABLE safe;--"], [b"\\"], [False]], schema=schema)
        variant = sink if options else sink.alternate
        assert send(variant, 0, batch)
        (row,) = workspace.rows(table)
        assert (row[hostile], row["b`"]) == ("Robert'); DROP TABLE safe;--", b"\\")
    assert workspace.rows("safe") == []
    workspace.query(f"DROP DATABASE `{workspace.database} o'dd``.%s`")


def test_a_handle_that_is_not_ours_never_gets_into_a_statement(workspace: MySQLWorkspace) -> None:
    sink = workspace.sink()
    sink.check(SCHEMA, output_mode="append")
    handles: list[Handle] = [{}, {"transaction": "x'; DROP TABLE `rows`; --"}, {"transaction": 7}]
    for handle in handles:
        for act in (sink.commit, sink.abort):
            with pytest.raises(TargetRefused, match="names no transaction of onceward"):
                act(handle)


# --- privileges ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": "id"}], ids=["append", "upsert"])
def test_each_missing_privilege_is_named_with_the_grant_that_mends_it(
    workspace: MySQLWorkspace, options: dict[str, Any]
) -> None:
    """Grants are given one by one as the refusals name them, until all is well; and then it works."""
    user = f"u_{workspace.database}@localhost"
    workspace.query(f"CREATE USER {user} IDENTIFIED BY 'pw'")
    sink = user_sink(workspace, user.partition("@")[0], table="rows", **options)
    (entry,) = refusals(workspace, sink, give=False)
    assert entry.startswith(
        f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE TEMPORARY TABLES ON `{workspace.database}`.*"
    )
    workspace.query(f"GRANT SHOW VIEW ON {workspace.database}.* TO {user}")
    named = refusals(workspace, sink)
    wanted = ["CREATE", "SELECT, INSERT, UPDATE, DELETE", *(["CREATE TEMPORARY TABLES"] if options else ["INSERT"])]
    for privileges in wanted:
        assert any(f"GRANT {privileges} ON " in statement for statement in named), named
    chosen, batch = sink(), pa.record_batch([[1], ["x"], [AT]], schema=SCHEMA)
    if options:
        assert send(chosen, 0, batch)
    else:
        context = SlotContext(JOB, chosen.name, 0, 0, 0, 1, RunId("rrrrrr"), AT, Fingerprint("f"))
        transaction = chosen.begin_transaction(context)
        chosen.invoke(transaction, batch)
        assert chosen.commit(pre_committed(chosen, transaction)) == Committed()
    assert len(workspace.rows()) == 1
    workspace.query(f"DROP USER {user}")


def refusals(workspace: MySQLWorkspace, sink: Any, *, give: bool = True) -> list[str]:
    """The statements that the refusals name, each carried out before the next look, until there is none."""
    named: list[str] = []
    while len(named) < 10:
        try:
            sink().check(SCHEMA, output_mode="update")
        except TargetRefused as refused:
            statement = str(refused.hint).removeprefix("run: ")
        else:
            return named
        named.append(statement)
        if not give:
            return named
        for one in statement.split(";"):
            if one.strip():
                workspace.query(one)
    raise AssertionError(f"it never ends: {named}")


def user_sink(workspace: MySQLWorkspace, user: str, **options: Any) -> Any:
    url = f"mysql://{user}:pw@127.0.0.1:{workspace.server.port}/{workspace.database}"
    return lambda: MySQLSink(url, timeout_s=30.0, **options).choose()


def test_a_server_that_takes_no_local_data_is_refused(workspace: MySQLWorkspace) -> None:
    workspace.query("SET GLOBAL local_infile = 0")
    try:
        with pytest.raises(TargetRefused, match="local_infile is off") as caught:
            workspace.sink().check(SCHEMA, output_mode="append")
    finally:
        workspace.query("SET GLOBAL local_infile = 1")
    assert "SET GLOBAL local_infile = 1" in str(caught.value)


def test_the_doctor_hears_what_may_give_trouble(workspace: MySQLWorkspace) -> None:
    sink = workspace.sink()
    sink.check(SCHEMA, output_mode="append")
    workload = Workload(slots=2, unpublished_epochs=10)
    assert {finding.severity for finding in sink.diagnose(workload)} == {Severity.OK}
    workspace.query("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
    workspace.query("SET GLOBAL wait_timeout = 60")
    try:
        warned = [finding for finding in sink.diagnose(workload) if finding.severity is Severity.WARNING]
    finally:
        workspace.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        workspace.query("SET GLOBAL wait_timeout = 28800")
    assert [finding.about for finding in warned] == ["innodb_flush_log_at_trx_commit", "wait_timeout"]
    assert all(finding.fix for finding in warned)
    assert list(sink.alternate.diagnose(workload))


@pytest.mark.parametrize("version", [(10, 5, 9), (5, 7, 40)])
def test_servers_in_which_prepared_transactions_do_not_last_are_refused(version: tuple[int, ...]) -> None:
    server = Server(version, version[0] == 10, False, True, False)
    options = MySQLSink(URL, table="t")._options
    sink = MySQLTwoPhaseSink(options, TargetFacts(options), name="s")
    with pytest.raises(TargetRefused, match="too old"):
        Readiness(sink._options, sink._receipts)._refuse_server(server)


# --- secrets ------------------------------------------------------------------------------------

SECRET = "s3cr3t p@ss/wörd数"
ESCAPED = "s3cr3t%20p%40ss%2Fw%C3%B6rd%E6%95%B0"


def test_the_password_is_in_no_text(workspace: MySQLWorkspace, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    user = f"s_{workspace.database}"
    workspace.query(f"CREATE USER {user}@localhost IDENTIFIED BY '{SECRET}'")
    workspace.query(f"GRANT ALL ON {workspace.database}.* TO {user}@localhost")
    url = f"mysql://{user}:{ESCAPED}@127.0.0.1:{workspace.server.port}/{workspace.database}"
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        made = MySQLSink(url, table="rows")
        sink = made.choose()
        sink.check(ENGINE_SCHEMA, output_mode="append")
        harness = Harness(
            SinkUnderTest(sink, workspace.rows),
            source=Source(ends=(4, 8)),
            storage=LocalStorage(tmp_path / "onceward"),
            logs=DirectoryLogs(tmp_path),
        )
        harness.life(until=0)
        harness.drain()
        for broken in (
            f"mysql://{user}:{ESCAPED}@127.0.0.1:1/{workspace.database}",
            f"mysql://{user}:{ESCAPED}@127.0.0.1:{workspace.server.port}/nowhere",
            f"mysql://nobody:{ESCAPED}@127.0.0.1:{workspace.server.port}/{workspace.database}",
            f"mysql://{user}:{SECRET}@127.0.0.1:{workspace.server.port}/{workspace.database}",
            f"mysql://{user}:{ESCAPED}@127.0.0.1:x/{workspace.database}",
            f"postgres://{user}:{ESCAPED}@127.0.0.1/{workspace.database}",
        ):
            for use in (lambda u=broken: MySQLSink(u, table="rows").choose(), lambda u=broken: opened(u)):
                with pytest.raises((OncewardError, MySQLError, Exception)) as caught:
                    use()
                said += [str(caught.getrepr(style="long", showlocals=False)), repr(caught.value)]
    said += [
        repr(made),
        str(made),
        repr(sink),
        repr(sink._options),
        str(vars(sink)),
        repr(sink.alternate),
        caplog.text,
    ]
    said += [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    said += harness.trace
    assert pickle.loads(pickle.dumps(sink))._options.address.password == SECRET
    for text in said:
        assert not any(part in text for part in ("s3cr3t", ESCAPED, "wörd", "w%C3%B6rd")), text
    workspace.query(f"DROP USER {user}@localhost")


def opened(url: str) -> None:
    MySQLCheckpointCommitter(url).open(JOB, SinkName("sink"))


# --- the driver ---------------------------------------------------------------------------------


def test_without_its_driver_the_sink_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pymysql'] = None\n"
        "from onceward.sinks import MySQLSink\n"
        "from onceward.committers import MySQLCheckpointCommitter\n"
        "from onceward.errors import ConfigurationError\n"
        "for make in (lambda: MySQLSink('mysql://h/d', table='t'), lambda: MySQLCheckpointCommitter('mysql://h/d')):\n"
        "    try: make()\n"
        "    except ConfigurationError as error: print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["run: pip install 'onceward[mysql]'"] * 2


def test_a_server_that_asks_for_a_file_of_ours_gets_none(workspace: MySQLWorkspace) -> None:
    """A hostile server may answer any statement with a request for any file: the driver itself must refuse it."""
    workspace.query("CREATE TABLE theirs (x TEXT)")
    with connect(workspace.sink()._options) as session, pytest.raises(RuntimeError, match="LOAD_LOCAL"):
        session.execute("LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE theirs (x)")
    assert workspace.rows("theirs") == []


def test_a_table_whose_name_differs_in_case_is_not_made_beside_the_one_there_is(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE nokey (id BIGINT)")
    with pytest.raises(TargetRefused, match="but 'nokey'"):
        workspace.sink(table="NoKey").check(SCHEMA, output_mode="append")


def test_double_quotes_are_another_servers() -> None:
    with pytest.raises(ConfigurationError, match="cannot be a table") as refused:
        MySQLSink(URL, table='"rows"')
    assert "backquotes" in str(refused.value.hint)
