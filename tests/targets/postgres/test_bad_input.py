"""Wrong addresses, missing permissions, odd names and options: each is refused with what to do (68 to 70)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceward.connections.postgres import Address, Session, quoted
from onceward.contracts import AnySink
from onceward.errors import ConfigurationError, TargetRefused, TargetUnavailable
from onceward.identity import Generation, JobIdentity, JobName
from onceward.sinks import PostgresSink
from onceward.testing import Finished

from .conftest import Place
from .deliver import batch_of, deliver
from .jobs import job

pytestmark = pytest.mark.cluster

BATCH = batch_of(id=pa.array([1, 2]), v=pa.array(["a", None]))


def checked(sink: PostgresSink, batch: pa.RecordBatch = BATCH) -> AnySink:
    chosen = sink.choose()
    chosen.check(batch.schema, output_mode="append")
    return chosen


def refusal(sink: PostgresSink, batch: pa.RecordBatch) -> TargetRefused | None:
    try:
        checked(sink, batch)
    except TargetRefused as refused:
        return refused
    return None


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("127.0.0.1", "no.such.host.invalid"), "could not translate host name"),
        ((":{port}/", ":1/"), "Connection refused"),
    ],
)
def test_a_server_that_is_away_is_worth_another_start(place: Place, change: tuple[str, str], told: str) -> None:
    old, new = (text.format(port=place.server.port) for text in change)
    assert old in place.url
    sink = PostgresSink(place.url.replace(old, new), table="rows")
    with pytest.raises(TargetUnavailable, match="cannot connect to postgresql://") as unavailable:
        sink.choose()
    assert told in str(unavailable.value)
    assert (unavailable.value.sink, unavailable.value.exit_code) == ("postgres:rows", 3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("owner@", "nobody@"), 'role "nobody" does not exist'),
        (("/postgres?", "/nowhere?"), 'database "nowhere" does not exist'),
        (("?options", "?no_such_option=1&options"), "no_such_option"),
        (("?options", "?sslmode=require&options"), "server does not support SSL"),
    ],
)
def test_a_server_that_lets_nobody_in_is_not(place: Place, change: tuple[str, str], told: str) -> None:
    old, new = change
    assert old in place.url
    with pytest.raises(TargetRefused, match="does not let us in") as refused:
        PostgresSink(place.url.replace(old, new), table="rows").choose()
    assert told in str(refused.value)
    assert (refused.value.sink, refused.value.exit_code) == ("postgres:rows", 2)


@pytest.mark.parametrize(
    "url", ["", "host/db", "mysql://host/db", "POSTGRESQL://host/db", "/var/run", "jdbc:postgresql://x"]
)
def test_what_is_no_address_of_postgresql_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="begins with postgresql://"):
        PostgresSink(url, table="rows")


def test_a_plus_in_an_option_stays_a_plus(place: Place) -> None:
    url = f"{place.url}&application_name=a+b%2Bc%20d"
    deliver(checked(PostgresSink(url, table="rows")), [BATCH])
    names = place.query("SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'a%b%'")
    assert set(names) == {("a+b+c d",)}


# --- tables ---------------------------------------------------------------------------------------


def test_a_missing_table_is_made_or_refused_as_asked(place: Place) -> None:
    with pytest.raises(TargetRefused, match='there is no table "rows"') as refused:
        checked(place.sink(create_table=False))
    statement = str(refused.value.hint).removeprefix("run: ")
    assert statement == 'CREATE TABLE "rows" ("id" bigint, "v" text)'
    place.query(statement.replace('"rows"', "~.rows"))
    deliver(checked(place.sink(create_table=False)), [BATCH])
    assert len(place.rows()) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW ~.rows AS SELECT 1::bigint AS id, ''::text AS v",
        "CREATE MATERIALIZED VIEW ~.rows AS SELECT 1::bigint AS id, ''::text AS v",
        "CREATE SEQUENCE ~.rows",
        "CREATE TYPE ~.rows AS (id bigint, v text)",
    ],
)
def test_what_is_no_table_is_refused(place: Place, statement: str) -> None:
    place.query(statement)
    with pytest.raises(TargetRefused, match=r'"rows" (is no table that takes rows by COPY|does not exist and cannot)'):
        checked(place.sink())


def test_columns_that_do_not_match_are_named_with_the_statement_that_mends_it(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (id bigint)")
    with pytest.raises(TargetRefused, match='table "rows" has no column v') as refused:
        checked(place.sink())
    assert str(refused.value.hint).endswith('run: ALTER TABLE "rows" ADD COLUMN "v" text')
    place.query(
        "ALTER TABLE ~.rows ADD v text, ADD needed int NOT NULL, ADD other int NOT NULL DEFAULT 3, ADD more int"
    )
    with pytest.raises(TargetRefused, match='table "rows" needs a value for needed, which the stream does not have'):
        checked(place.sink())
    place.query("ALTER TABLE ~.rows DROP needed")
    deliver(checked(place.sink()), [BATCH])
    assert place.rows()[0] == {"id": 1, "v": "a", "other": 3, "more": None}


@pytest.mark.parametrize("name", ["x" * 64, "ä" * 32, "nul\0", "ctid"])
def test_a_column_name_that_the_server_cannot_have_is_refused(place: Place, name: str) -> None:
    with pytest.raises(TargetRefused):
        checked(place.sink(), batch_of(**{name: pa.array([1])}))
    assert place.query("SELECT to_regclass('~.rows') IS NULL") == [(True,)]


# --- permissions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clerk:
    """A role that may log in and nothing else."""

    place: Place

    def sink(self, **options: Any) -> PostgresSink:
        return PostgresSink(self.place.url.replace("owner@", "clerk@"), **{"table": "rows", **options})

    def refused(self, **options: Any) -> TargetRefused:
        with pytest.raises(TargetRefused) as refused:
            checked(self.sink(**options))
        return refused.value

    def follow(self, refused: TargetRefused) -> None:
        """Run what the hint says, as the owner, in the schema of this test."""
        statement = str(refused.hint).partition("run: ")[2]
        assert statement.startswith("GRANT")
        words = statement.replace('"rows"', "~.rows").replace("ON onceward", "ON ~.onceward")
        self.place.query(words)


@pytest.fixture
def clerk(place: Place) -> Iterator[Clerk]:
    place.query("CREATE ROLE clerk LOGIN")
    place.query("GRANT USAGE ON SCHEMA ~ TO clerk")
    place.query("REVOKE TEMP ON DATABASE postgres FROM PUBLIC")
    yield Clerk(place)
    place.query("GRANT TEMP ON DATABASE postgres TO PUBLIC")
    place.query("DROP OWNED BY clerk")
    place.query("DROP ROLE clerk")


@pytest.mark.parametrize(
    ("options", "granted"),
    [
        ({}, ["INSERT"]),
        ({"two_phase": False}, ["INSERT"]),
        ({"mode": "upsert", "keys": ["id"]}, ["INSERT", "SELECT", "UPDATE", "TEMP"]),
        ({"mode": "upsert", "keys": ["id"], "deleted": "gone"}, ["INSERT", "SELECT", "UPDATE", "DELETE", "TEMP"]),
    ],
    ids=["two-phase", "write-ahead", "upsert", "deletes"],
)
def test_every_missing_permission_is_refused_with_its_grant_and_those_grants_are_enough(
    clerk: Clerk, options: dict[str, Any], granted: list[str]
) -> None:
    place = clerk.place
    gone = {"gone": pa.array([False, False])} if "deleted" in options else {}
    batch = batch_of(id=pa.array([1, None]), v=pa.array(["a", "b"]), **gone)
    place.query(f"CREATE TABLE ~.rows (id bigint {'UNIQUE' if 'keys' in options else ''}, v text)")
    checked(place.sink(name="the owner's"), BATCH)
    seen: set[str] = set()
    while (refused := refusal(clerk.sink(**options), batch)) is not None:
        assert "may not" in str(refused)
        assert str(refused.hint) not in seen, "the grant did not help"
        seen.add(str(refused.hint))
        clerk.follow(refused)
    assert len(seen) == (4 if "TEMP" in granted else 3), "the table, two tables of receipts, and temporary ones"
    for privilege in granted:
        assert any(privilege in hint for hint in seen)
    sink = clerk.sink(**options).choose()
    deliver(sink, [batch])
    deliver(sink, [batch], epoch=1)
    sink.forget(JobIdentity(JobName("job"), Generation("aaaaaaaa")), 1)
    assert len(place.rows()) == (2 if "keys" in options else 4)


def test_tables_that_this_user_may_not_make_are_given_as_statements(clerk: Clerk) -> None:
    refused = clerk.refused()
    assert 'the table "rows" does not exist and cannot be made: permission denied' in str(refused)
    assert 'CREATE TABLE "rows" ("id" bigint, "v" text)' in str(refused.hint)
    clerk.place.query("CREATE TABLE ~.rows (id bigint, v text)")
    clerk.place.query("GRANT INSERT ON ~.rows TO clerk")
    refused = clerk.refused()
    assert "the tables for receipts do not exist and cannot be made: permission denied" in str(refused)
    assert "CREATE TABLE IF NOT EXISTS onceward_receipts" in str(refused.hint)
    clerk.place.query("GRANT CREATE ON SCHEMA ~ TO clerk")
    deliver(checked(clerk.sink()), [BATCH])
    assert len(clerk.place.rows()) == 2


def test_a_schema_that_this_user_may_not_enter_is_told(clerk: Clerk) -> None:
    clerk.place.query("CREATE TABLE ~.rows (id bigint, v text)")
    clerk.place.query("REVOKE USAGE ON SCHEMA ~ FROM clerk")
    refused = clerk.refused(table=f"{clerk.place.schema}.rows")
    assert f"permission denied for schema {clerk.place.schema}" in str(refused)


def test_a_table_with_row_security_is_refused_before_the_start(clerk: Clerk) -> None:
    clerk.place.query("CREATE TABLE ~.rows (id bigint, v text)")
    clerk.place.query("ALTER TABLE ~.rows ENABLE ROW LEVEL SECURITY")
    clerk.place.query("GRANT ALL ON ~.rows TO clerk")
    assert "row security" in str(clerk.refused())


# --- names ----------------------------------------------------------------------------------------

HOSTILE = [
    'quo"te',
    '"";DROP TABLE victim;--',
    "'); DROP TABLE victim; --",
    "a.b.c",
    "日本語 ☃",
    "$1 %s {0} ~ :x",
    "back\\slash\\",
    "new\nline\ttab",
    "SELECT",
    " blank ",
    "x" * 63,
]


@pytest.mark.parametrize(
    "variant", [{}, {"two_phase": False}, {"mode": "upsert", "keys": True}], ids=["2pc", "log", "upsert"]
)
def test_hostile_names_and_values_are_stored_and_never_executed(place: Place, variant: dict[str, Any]) -> None:
    place.query("CREATE TABLE ~.victim (id int)")
    for number, name in enumerate(HOSTILE):
        other = HOSTILE[number - 1]
        batch = batch_of(**{name: pa.array(HOSTILE), other: pa.array(HOSTILE[::-1])})
        label = "".join(letter if letter.isprintable() and letter not in "/\\" else "_" for letter in name).strip()
        owner = JobIdentity(JobName(label), Generation("aaaaaaaa"))
        with Session(Address.parse(place.url)) as session:
            session.run(f"CREATE SCHEMA {quoted(name)}")
            try:
                table = f"{quoted(name)}.{quoted(other)}"
                options = {**variant, "keys": [name]} if "keys" in variant else variant
                sink = checked(place.sink(table=table, name=label, receipts_schema=name, **options), batch)
                deliver(sink, [batch], job=owner)
                found = session.run(f"SELECT {quoted(name)}, {quoted(other)} FROM {table}")
                assert sorted(found) == sorted(zip(HOSTILE, HOSTILE[::-1], strict=True))
                assert [receipt.job for receipt in sink.receipts(owner)] == [label]
            finally:
                session.run(f"DROP SCHEMA {quoted(name)} CASCADE")
    assert place.query("SELECT to_regclass('~.victim') IS NOT NULL") == [(True,)]


@pytest.mark.parametrize(
    "table", ["", ".", "a.", ".a", "a.b.c", 'a"b', '"a', '""', "x" * 64, "ä" * 32, "a\0b", "\ud800"]
)
def test_what_cannot_be_a_table_is_refused_at_once(table: str) -> None:
    with pytest.raises(ConfigurationError):
        PostgresSink("postgresql://host/db", table=table)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "insert"}, "unknown mode 'insert'"),
        ({"mode": "upsert"}, "an upsert needs keys"),
        ({"mode": "upsert", "keys": []}, "an upsert needs keys"),
        ({"mode": "upsert", "keys": ["a", "a"]}, "keys names a column twice"),
        ({"mode": "upsert", "keys": "a", "order_by": "a"}, "order_by names the key 'a'"),
        ({"mode": "upsert", "keys": "a", "deleted": "a"}, "deleted names the key 'a'"),
        ({"mode": "upsert", "keys": "a", "two_phase": True}, "mode upsert cannot wait in prepared transactions"),
        ({"mode": "replace", "two_phase": True}, "mode replace cannot wait in prepared transactions"),
        ({"keys": ["a"]}, "mode append has no use for keys"),
        ({"order_by": "a"}, "mode append has no use for order_by"),
        ({"mode": "replace", "deleted": "a"}, "mode replace has no use for deleted"),
        ({"receipts_schema": ""}, "receipts_schema: '' cannot be a name"),
        ({"receipts_schema": "a\0b"}, "receipts_schema"),
        ({"name": "a/b"}, "cannot be the name of a sink"),
    ],
)
def test_a_mistaken_option_is_refused_at_once_with_a_hint(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PostgresSink("postgresql://host/db", **{"table": "rows", **options})
    assert told in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("options", "output_mode", "told"),
    [
        ({}, "complete", "would pile it up"),
        ({"mode": "replace"}, "append", "mode replace needs output mode complete"),
        ({"mode": "upsert", "keys": ["nope"]}, "update", "the stream has no column nope"),
        ({"mode": "upsert", "keys": ["id"], "order_by": "nope"}, "update", "the stream has no column nope"),
        ({"mode": "upsert", "keys": ["id"], "deleted": "v"}, "update", "must be boolean"),
    ],
)
def test_options_that_do_not_suit_the_stream_are_refused_before_the_start(
    place: Place, options: dict[str, Any], output_mode: str, told: str
) -> None:
    with pytest.raises(TargetRefused, match=told):
        place.sink(**options).check(BATCH.schema, output_mode=output_mode)
    assert place.query("SELECT to_regclass('~.rows') IS NULL") == [(True,)], "nothing was made"


def test_a_job_with_a_hostile_name_runs_from_end_to_end(place: Place) -> None:
    name = 'a\'); DROP TABLE rows; -- "☃"'
    harness = job(place, "two-phase", name=name)
    assert isinstance(harness.life(), Finished)
    assert harness.problems() == []
    assert {row["job"] for row in place.rows("onceward_receipts")} == {name}


# --- names ----------------------------------------------------------------------------------------


def test_a_table_whose_name_differs_in_case_is_not_made_beside_the_one_there_is(place: Place) -> None:
    place.query("CREATE TABLE ~.nokey (id bigint)")
    sink = place.sink(table="NoKey").choose()
    with pytest.raises(TargetRefused, match='there is no table "NoKey", but there is nokey') as refused:
        sink.check(pa.schema([("id", pa.int64())]), output_mode="append")
    assert "say table='nokey'" in str(refused.value.hint)
    assert place.rows("NoKey") == []


def test_a_schema_that_is_missing_is_named_with_its_statement(place: Place) -> None:
    sink = place.sink(table="nowhere.rows").choose()
    with pytest.raises(TargetRefused, match='there is no schema "nowhere"') as refused:
        sink.check(pa.schema([("id", pa.int64())]), output_mode="append")
    assert refused.value.hint == 'run: CREATE SCHEMA "nowhere";'


def test_backquotes_are_another_servers() -> None:
    with pytest.raises(ConfigurationError, match="cannot be a table") as refused:
        PostgresSink("postgresql://localhost/db", table="`rows`")
    assert "double quotes" in str(refused.value.hint)


def test_a_table_that_is_made_is_told_of(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="onceward")
    place.sink().choose().check(pa.schema([("id", pa.int64())]), output_mode="append")
    assert 'made the table "rows"' in caplog.text
