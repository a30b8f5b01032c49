"""A table that is changed while the job runs stops it at the next epoch, before anything is written."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest

from onceward.connections import postgres
from onceward.connections.postgres import Address, Session, literal
from onceward.contracts import AnySink, TransactionalWriteAheadSink
from onceward.errors import TargetChanged

from .conftest import Place
from .deliver import JOB, batch_of, deliver, values

pytestmark = pytest.mark.cluster
MODES: dict[str, tuple[dict[str, Any], str]] = {
    "two-phase": ({}, "append"),
    "write-ahead": ({"two_phase": False}, "append"),
    "upsert": ({"mode": "upsert", "keys": ["k"]}, "update"),
    "replace": ({"mode": "replace"}, "complete"),
}
ACT = "CREATE FUNCTION ~.act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"


def rows(*keys: int) -> pa.RecordBatch:
    return batch_of(k=pa.array(keys, pa.int64()), v=pa.array(["x"] * len(keys)))


def started(place: Place, mode: str) -> AnySink:
    options, output_mode = MODES[mode]
    sink = place.sink(**options).choose()
    sink.check(rows(1).schema, output_mode=output_mode)
    return sink


CHANGES: dict[str, tuple[str, str]] = {
    "unlogged": ("ALTER TABLE ~.rows SET UNLOGGED", "table was"),
    "unique": ("ALTER TABLE ~.rows ADD CONSTRAINT once UNIQUE (v)", "unique indexes was"),
    "trigger": (
        "CREATE TRIGGER act BEFORE INSERT ON ~.rows FOR EACH ROW EXECUTE FUNCTION ~.act()",
        "triggers was none and is",
    ),
    "rule": ("CREATE RULE off AS ON DELETE TO ~.rows DO INSTEAD NOTHING", "rules was none and is off"),
    "column's type": ("ALTER TABLE ~.rows ALTER v TYPE varchar(3)", "column v was text and is character varying"),
    "column's collation": ('ALTER TABLE ~.rows ALTER v TYPE text COLLATE "POSIX"', "column v was text and is"),
    "column gone": ("ALTER TABLE ~.rows DROP COLUMN v", "column v was text and is not there"),
    "column that needs a value": (
        "ALTER TABLE ~.rows ADD n int NOT NULL DEFAULT 0; ALTER TABLE ~.rows ALTER n DROP DEFAULT",
        "columns that need a value was not there",
    ),
    "columns that need a value": (
        "ALTER TABLE ~.rows ADD n int NOT NULL DEFAULT 0, ADD m int NOT NULL DEFAULT 0; "
        "ALTER TABLE ~.rows ALTER n DROP DEFAULT, ALTER m DROP DEFAULT",
        "columns that need a value was not there and is m; n",
    ),
    "table gone": ("DROP TABLE ~.rows", "does not exist"),
    "receipts unlogged": ("ALTER TABLE ~.onceward_receipts SET UNLOGGED", "onceward_receipts was"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("statement", "says"), CHANGES.values(), ids=CHANGES)
def test_a_change_in_mid_run_stops_the_next_epoch(place: Place, mode: str, statement: str, says: str) -> None:
    sink = started(place, mode)
    place.query(ACT)
    deliver(sink, [rows(1)])
    before = place.rows()
    for part in statement.split("; "):
        place.query(part)
    with pytest.raises(TargetChanged, match=says) as changed:
        deliver(sink, [rows(2)], epoch=1)
    assert changed.value.epoch == 1
    assert "start again" in str(changed.value.hint)
    assert len(place.rows()) == (0 if "DROP TABLE" in statement else len(before))
    assert place.prepared() == []


def test_a_lost_key_index_stops_an_upsert(place: Place) -> None:
    sink = started(place, "upsert")
    place.query("ALTER TABLE ~.rows DROP CONSTRAINT rows_k_key")
    with pytest.raises(TargetChanged, match="equality of keys was k OPERATOR"):
        deliver(sink, [rows(2)], epoch=1)


@pytest.mark.parametrize("mode", MODES)
def test_what_does_not_matter_may_change_in_mid_run(place: Place, mode: str) -> None:
    sink = started(place, mode)
    deliver(sink, [rows(1)])
    place.query("ALTER TABLE ~.rows ADD note text DEFAULT 'new'")
    place.query("CREATE INDEX ON ~.rows (v)")
    place.query("COMMENT ON TABLE ~.rows IS 'ours'")
    for (name,) in place.query("SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = '~.rows'::regclass"):
        place.query(f"REINDEX INDEX CONCURRENTLY {name}")
    deliver(sink, [rows(2)], epoch=1)
    assert 2 in [row["k"] for row in place.rows()]


def test_a_new_partition_is_no_change(place: Place) -> None:
    place.query("CREATE TABLE ~.rows (k bigint PRIMARY KEY, v text) PARTITION BY RANGE (k)")
    place.query("CREATE TABLE ~.low PARTITION OF ~.rows FOR VALUES FROM (0) TO (10)")
    place.query(ACT)
    place.query("CREATE TRIGGER act AFTER INSERT ON ~.rows FOR EACH ROW EXECUTE FUNCTION ~.act()")
    sink = started(place, "upsert")
    place.query("CREATE TABLE ~.high PARTITION OF ~.rows FOR VALUES FROM (10) TO (20)")
    deliver(sink, [rows(1, 11)])
    assert len(place.rows()) == 2
    place.query("CREATE TRIGGER other BEFORE INSERT ON ~.high FOR EACH ROW EXECUTE FUNCTION ~.act()")
    with pytest.raises(TargetChanged, match="triggers was"):
        deliver(sink, [rows(2)], epoch=1)


def test_a_trigger_function_that_is_replaced_is_a_change(place: Place) -> None:
    started(place, "upsert")
    place.query(ACT)
    place.query("CREATE TRIGGER act AFTER INSERT ON ~.rows FOR EACH ROW EXECUTE FUNCTION ~.act()")
    sink = started(place, "upsert")
    deliver(sink, [rows(1)])
    place.query(ACT.replace("CREATE", "CREATE OR REPLACE").replace("RETURN NULL", "DELETE FROM ~.rows; RETURN NULL"))
    with pytest.raises(TargetChanged, match="triggers was"):
        deliver(sink, [rows(2)], epoch=1)


def test_after_a_start_that_accepts_the_change_it_goes_on(place: Place) -> None:
    sink = started(place, "write-ahead")
    place.query("ALTER TABLE ~.rows ADD UNIQUE (k)")
    with pytest.raises(TargetChanged):
        deliver(sink, [rows(2)])
    deliver(started(place, "write-ahead"), [rows(2)])
    assert place.rows() == [{"k": 2, "v": "x"}]


def test_one_who_never_checked_takes_the_facts_as_they_are(place: Place) -> None:
    started(place, "upsert")
    sink = place.sink(mode="upsert", keys=["k"]).choose()
    assert isinstance(sink, TransactionalWriteAheadSink)
    assert sink.find_rejected([values(sink, 0, [rows(1)])], JOB, 0) == []
    place.query("ALTER TABLE ~.rows ADD UNIQUE (v)")
    with pytest.raises(TargetChanged):
        deliver(sink, [rows(1)])


@pytest.mark.parametrize("mode", MODES)
def test_the_facts_are_told_by_names_that_a_person_understands(place: Place, mode: str) -> None:
    facts = started(place, mode).target_facts()
    assert facts["column k"] == "bigint"
    assert facts["table"] == f'"{place.schema}"."rows", logged'
    assert facts["onceward_receipts"] == f'"{place.schema}"."onceward_receipts", logged'
    if mode == "upsert":
        assert facts["equality of keys"] == "k OPERATOR(pg_catalog.=)"


@pytest.mark.parametrize("mode", MODES)
def test_the_look_costs_one_lock_and_one_statement_an_epoch(
    place: Place, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = started(place, mode)
    sent: list[str] = []
    run = Session.run

    def watched(self: Session, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        sent.append(statement)
        return run(self, statement, *parameters)

    def looked(self: Session, statement: str, *parameters: str | None) -> list[tuple[Any, ...]]:
        before = len(sent)
        found = look(self, statement, *parameters)
        looks.append(sent[before:])
        return found

    look, looks = Session.run_prepared, list[list[str]]()
    monkeypatch.setattr(Session, "run", watched)
    monkeypatch.setattr(Session, "run_prepared", looked)
    for epoch in (1, 2):
        deliver(sink, [rows(epoch)], epoch=epoch)
    assert len(looks) == 2
    # The server plans it once: no other statement goes with it from the second epoch on.
    assert looks[1] == []
    assert len([one for one in sent if one.startswith("LOCK TABLE")]) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_pooler_may_give_each_transaction_another_server_process(place: Place, mode: str) -> None:
    """Which has not prepared the look, or has, whatever the one before had."""
    sink = started(place, mode)
    deliver(sink, [rows(1)])
    for epoch, forgets in enumerate((True, False, True), start=1):
        if forgets:
            for session in postgres._idle[os.getpid()]:
                session.run("DEALLOCATE ALL")
        deliver(sink, [rows(epoch + 1)], epoch=epoch)
    assert {row["k"] for row in place.rows()} >= {4}


def test_what_is_prepared_may_run_twice_in_one_transaction(place: Place) -> None:
    session = Session(Address.parse(place.url))
    try:
        with session.transaction():
            assert [session.run_prepared("SELECT $1 || '!'", word) for word in ("a", "b")] == [[("a!",)], [("b!",)]]
    finally:
        session.close()


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_a_constant_is_taken_for_its_text_whatever_is_in_it(place: Place, conforming: str) -> None:
    session, text = Session(Address.parse(place.url)), "a\\'b\\\\''; --"
    try:
        session.run(f"SET standard_conforming_strings = {conforming}")
        assert session.run(f"SELECT {literal(text)}") == [(text,)]
    finally:
        session.close()
