"""Tables that would change, drop or hide rows, or lose them in a crash, are refused by name before the start."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onceward.contracts import AnySink
from onceward.errors import OncewardError, TargetRefused

from .conftest import Place
from .deliver import batch_of, deliver

pytestmark = pytest.mark.cluster
APPEND: dict[str, Any] = {}
UPSERT: dict[str, Any] = {"mode": "upsert", "keys": ["k"]}
DELETING: dict[str, Any] = {**UPSERT, "deleted": "deleted"}
REPLACE: dict[str, Any] = {"mode": "replace"}
KEYED = "CREATE TABLE ~.rows (k bigint PRIMARY KEY, v text)"
PLAIN = "CREATE TABLE ~.rows (k bigint, v text)"


def function(body: str) -> str:
    return f"CREATE FUNCTION ~.act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {body}; END'"


def trigger(when: str, table: str = "rows") -> str:
    return f"CREATE TRIGGER act {when} ON ~.{table} FOR EACH ROW EXECUTE FUNCTION ~.act()"


KEEPS, DROPS, CHANGES = function("RETURN OLD"), function("RETURN NULL"), function("NEW.v := NULL; RETURN NEW")


def rows(keys: list[int], deleted: list[bool] | None = None) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {"k": pa.array(keys, pa.int64()), "v": pa.array(["x"] * len(keys))}
    return batch_of(**columns, **({"deleted": pa.array(deleted)} if deleted is not None else {}))


def chosen(place: Place, options: dict[str, Any], statements: list[str]) -> AnySink:
    for statement in statements:
        place.query(statement)
    sink = place.sink(**options).choose()
    mode = "complete" if options.get("mode") == "replace" else "update" if "mode" in options else "append"
    sink.check(rows([1], [False] if "deleted" in options else None).schema, output_mode=mode)
    return sink


REFUSED: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "inserts dropped": (APPEND, [PLAIN, DROPS, trigger("BEFORE INSERT")], "trigger 'act' of 'rows'"),
    "inserts changed": (UPSERT, [KEYED, CHANGES, trigger("BEFORE INSERT")], "trigger 'act' of 'rows'"),
    "updates changed": (UPSERT, [KEYED, CHANGES, trigger("BEFORE UPDATE")], "trigger 'act' of 'rows'"),
    "deletes dropped by replace": (REPLACE, [PLAIN, DROPS, trigger("BEFORE DELETE")], "trigger 'act' of 'rows'"),
    "deletes dropped": (DELETING, [KEYED, DROPS, trigger("BEFORE DELETE")], "trigger 'act' of 'rows'"),
    "of a partition": (
        APPEND,
        [
            "CREATE TABLE ~.rows (k bigint, v text) PARTITION BY RANGE (k)",
            "CREATE TABLE ~.low PARTITION OF ~.rows FOR VALUES FROM (0) TO (10)",
            DROPS,
            trigger("BEFORE INSERT", "low"),
        ],
        "trigger 'act' of 'low'",
    ),
    "rule": (APPEND, [PLAIN, "CREATE RULE off AS ON INSERT TO ~.rows DO INSTEAD NOTHING"], "the rule 'off'"),
    "rule on deletes": (
        REPLACE,
        [PLAIN, "CREATE RULE off AS ON DELETE TO ~.rows DO INSTEAD NOTHING"],
        "the rule 'off'",
    ),
    "rule on updates": (UPSERT, [KEYED, "CREATE RULE off AS ON UPDATE TO ~.rows DO INSTEAD NOTHING"], "the rule 'off'"),
    "unlogged": (UPSERT, [KEYED.replace("CREATE", "CREATE UNLOGGED")], "'rows' is unlogged"),
    "unlogged partition": (
        APPEND,
        [
            "CREATE TABLE ~.rows (k bigint, v text) PARTITION BY RANGE (k)",
            "CREATE UNLOGGED TABLE ~.low PARTITION OF ~.rows FOR VALUES FROM (0) TO (10)",
        ],
        "'low' is unlogged",
    ),
    "inherited, upsert": (UPSERT, [KEYED, "CREATE TABLE ~.heir () INHERITS (~.rows)"], "'heir' inherits"),
    "inherited, replace": (REPLACE, [PLAIN, "CREATE TABLE ~.heir () INHERITS (~.rows)"], "'heir' inherits"),
    "referred to": (REPLACE, [KEYED, "CREATE TABLE ~.other (k bigint REFERENCES ~.rows)"], "'other_k_fkey'"),
    "foreign partition": (
        {"two_phase": False},
        [
            "CREATE FOREIGN DATA WRAPPER nothing",
            "CREATE SERVER far FOREIGN DATA WRAPPER nothing",
            "CREATE TABLE ~.rows (k bigint, v text) PARTITION BY RANGE (k)",
            "CREATE FOREIGN TABLE ~.low PARTITION OF ~.rows FOR VALUES FROM (0) TO (10) SERVER far",
        ],
        "'low' .* is a foreign table",
    ),
}


@pytest.mark.parametrize(("options", "statements", "says"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_does_something_else_with_rows_is_refused_by_name(
    place: Place, options: dict[str, Any], statements: list[str], says: str
) -> None:
    try:
        with pytest.raises(TargetRefused, match=says) as refused:
            chosen(place, options, statements)
        assert refused.value.hint
    finally:
        place.query("DROP FOREIGN DATA WRAPPER IF EXISTS nothing CASCADE")


TAKEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a trigger after the write": (UPSERT, [KEYED, DROPS, trigger("AFTER INSERT OR UPDATE")]),
    "one for another operation": (UPSERT, [KEYED, DROPS, trigger("BEFORE DELETE")]),
    "one for statements": (APPEND, [PLAIN, DROPS, trigger("BEFORE INSERT").replace("ROW", "STATEMENT")]),
    "one that is off": (UPSERT, [KEYED, DROPS, trigger("BEFORE INSERT"), "ALTER TABLE ~.rows DISABLE TRIGGER act"]),
    "a child, append": (APPEND, [PLAIN, "CREATE TABLE ~.heir () INHERITS (~.rows)"]),
    "referred to, upsert": (UPSERT, [KEYED, "CREATE TABLE ~.other (k bigint REFERENCES ~.rows)"]),
    "named": ({**UPSERT, "triggers": ["act"]}, [KEYED, function("RETURN NEW"), trigger("BEFORE INSERT OR UPDATE")]),
}


@pytest.mark.parametrize(("options", "statements"), TAKEN.values(), ids=TAKEN)
def test_a_table_in_which_nothing_comes_between_is_taken(
    place: Place, options: dict[str, Any], statements: list[str]
) -> None:
    deliver(chosen(place, options, statements), [rows([1])])
    assert place.rows() == [{"k": 1, "v": "x"}]


@pytest.mark.parametrize(("options", "deleted"), [(REPLACE, None), (DELETING, [True])], ids=["replace", "deleted"])
def test_a_named_trigger_that_keeps_rows_from_being_deleted_fails_the_epoch(
    place: Place, options: dict[str, Any], deleted: list[bool] | None
) -> None:
    sink = chosen(place, {**options, "triggers": ["act"]}, [KEYED, DROPS, trigger("BEFORE DELETE")])
    place.query("INSERT INTO ~.rows VALUES (1, 'old')")
    with pytest.raises(OncewardError, match="keeps rows from being deleted"):
        deliver(sink, [rows([1], deleted)])
    assert place.rows() == [{"k": 1, "v": "old"}]


def test_a_named_trigger_that_lets_rows_be_deleted_does_no_harm(place: Place) -> None:
    sink = chosen(place, {**REPLACE, "triggers": "act"}, [PLAIN, KEEPS, trigger("BEFORE DELETE")])
    deliver(sink, [rows([1, 2])])
    deliver(sink, [rows([3])], epoch=1)
    assert place.rows() == [{"k": 3, "v": "x"}]


BAD_RECEIPTS = {
    "unlogged": (["ALTER TABLE ~.onceward_receipts SET UNLOGGED"], "'onceward_receipts' is unlogged"),
    "watermarks": (["ALTER TABLE ~.onceward_watermarks SET UNLOGGED"], "'onceward_watermarks' is unlogged"),
    "rule": (["CREATE RULE off AS ON INSERT TO ~.onceward_receipts DO INSTEAD NOTHING"], "rule 'off'"),
    "trigger": ([DROPS, trigger("BEFORE INSERT", "onceward_receipts")], "trigger 'act'"),
}


@pytest.mark.parametrize(("statements", "says"), BAD_RECEIPTS.values(), ids=BAD_RECEIPTS)
def test_receipts_that_would_not_be_there_or_not_be_found_are_refused(
    place: Place, statements: list[str], says: str
) -> None:
    chosen(place, UPSERT, [KEYED])
    with pytest.raises(TargetRefused, match=says):
        chosen(place, UPSERT, statements)
    # A command publishes by sinks that no start has checked.
    unchecked = place.sink(**UPSERT).choose()
    with pytest.raises(TargetRefused, match=says):
        deliver(unchecked, [rows([1])])
    assert place.rows() == []
