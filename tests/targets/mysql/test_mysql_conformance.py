"""Both ways to the table pass the suite for their template, on a real server."""

from dataclasses import replace

import pytest
from mysql_workspace import MySQLWorkspace, Rows

from onceward.contracts import Committed, TransactionalWriteAheadSink, TwoPhaseCommitSink
from onceward.sinks import MySQLSink
from onceward.sinks.mysql.two_phase import MySQLTwoPhaseSink
from onceward.sinks.mysql.write_ahead import MySQLWriteAheadSink
from onceward.testing.conformance import TransactionalConformance, TwoPhaseConformance
from onceward.testing.conformance.two_phase import receipt_of
from onceward.testing.engine import SCHEMA

pytestmark = pytest.mark.cluster


class OnServer:
    workspace: MySQLWorkspace

    @pytest.fixture(autouse=True)
    def _database(self, workspace: MySQLWorkspace) -> None:
        # The suite leaves what it staged; every other test is held to leave nothing.
        workspace.expects_leftovers = True
        self.workspace = workspace

    def read_rows(self) -> Rows:
        return self.workspace.rows() if self.workspace.query("SHOW TABLES LIKE 'rows'") else []


class TestAppend(OnServer, TwoPhaseConformance):
    def make_sink(self, name: str = "sink") -> MySQLTwoPhaseSink:
        sink: MySQLTwoPhaseSink = self.workspace.sink(name=name)
        sink.check(SCHEMA, output_mode="append")
        return sink


class TestAppendByTheAlternate(OnServer, TransactionalConformance):
    def make_sink(self, name: str = "sink") -> MySQLWriteAheadSink:
        sink = self.workspace.sink(name=name).alternate
        assert isinstance(sink, MySQLWriteAheadSink)
        sink.check(SCHEMA, output_mode="append")
        return sink


class TestUpsert(OnServer, TransactionalConformance):
    """With a record of every row that was ever written: in the table itself a repetition would hide behind its key."""

    def make_sink(self, name: str = "sink") -> MySQLWriteAheadSink:
        sink: MySQLWriteAheadSink = self.workspace.sink(name=name, mode="upsert", keys=["id"], before_triggers="allow")
        sink.check(SCHEMA, output_mode="update")
        if not self.workspace.query("SHOW TABLES LIKE 'written'"):
            self.workspace.query("CREATE TABLE written LIKE `rows`")
            self.workspace.query("ALTER TABLE written DROP PRIMARY KEY")
            columns = ", ".join(f"NEW.`{column}`" for column in SCHEMA.names)
            for moment in ("AFTER INSERT", "BEFORE UPDATE"):
                self.workspace.query(
                    f"CREATE TRIGGER `{moment}` {moment} ON `rows` FOR EACH ROW INSERT INTO written VALUES ({columns})"
                )
            sink.check(SCHEMA, output_mode="update")
        return sink

    def read_rows(self) -> Rows:
        return self.workspace.rows("written") if self.workspace.query("SHOW TABLES LIKE 'written'") else []


def test_the_chosen_way_knows_the_other_and_both_bear_the_sinks_name(workspace: MySQLWorkspace) -> None:
    for options in ({}, {"mode": "upsert", "keys": "id"}):
        made = MySQLSink(workspace.url(), table="rows", name="mine", **options)
        chosen = made.choose()
        assert isinstance(chosen, TransactionalWriteAheadSink if options else TwoPhaseCommitSink)
        assert chosen.alternate is not None
        assert isinstance(chosen.alternate, TwoPhaseCommitSink if options else TransactionalWriteAheadSink)
        assert (chosen.name, chosen.alternate.name, made.name) == ("mine", "mine", "mine")


def test_what_was_staged_as_appends_is_published_by_a_sink_that_upserts_now(workspace: MySQLWorkspace) -> None:
    before = workspace.sink(name="sink")
    before.check(SCHEMA, output_mode="append")
    context = TwoPhaseConformance.context(TestAppend(), before)
    staged = [TwoPhaseConformance.stage(TestAppend(), before, replace(context, slot=slot)) for slot in (0, 1)]
    now = workspace.sink(name="sink", mode="upsert", keys=["id"])
    assert {handle["transaction"] for handle in now.alternate.pending(TestAppend.job)} == {
        handle["transaction"] for handle in staged
    }
    assert now.alternate.commit(staged[0]) == Committed()
    now.alternate.abort(staged[1])
    assert list(now.receipts(TestAppend.job)) == [receipt_of(context)]
    assert sorted(row["id"] for row in workspace.rows()) == [0, 2]
