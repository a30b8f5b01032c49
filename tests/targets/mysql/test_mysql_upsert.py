"""What an upsert does to the table: the last value stays, deletions, whole results, and keys that only look alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mysql_workspace import JOB, MySQLWorkspace, send

from onceward.admin import divert_poison, find_poison
from onceward.connections.mysql import Session
from onceward.contracts import Receipt, SlotValues, TryAgain
from onceward.errors import CheckpointRolledBack, RowsRejected, TargetChanged
from onceward.identity import Fingerprint
from onceward.recovery import look_at
from onceward.testing import Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.conformance.base import AT
from onceward.testing.engine import SCHEMA as ENGINE_SCHEMA

pytestmark = pytest.mark.cluster

SCHEMA = pa.schema([("app", pa.string()), ("count", pa.int64())])


def rows(*pairs: tuple[str | None, int | None], **more: list[object]) -> pa.RecordBatch:
    apps, counts = zip(*pairs, strict=True)
    return pa.record_batch({"app": pa.array(apps, pa.string()), "count": pa.array(counts, pa.int64()), **more})


def table(workspace: MySQLWorkspace) -> dict[str, int]:
    return {row["app"]: row["count"] for row in workspace.rows()}


def upserting(
    workspace: MySQLWorkspace, schema: pa.Schema = SCHEMA, output_mode: str = "update", **options: object
) -> object:
    sink = workspace.sink(**{"mode": "upsert", "keys": ["app"], **options})
    sink.check(schema, output_mode=output_mode)
    return sink


def test_of_several_rows_with_one_key_the_last_stays(workspace: MySQLWorkspace) -> None:
    sink = upserting(workspace)
    send(sink, 0, rows(("a", 1), ("b", 1), ("a", 2)), rows(("a", 3), ("c", 9)))
    assert table(workspace) == {"a": 3, "b": 1, "c": 9}
    send(sink, 1, rows(("b", 7), ("b", None)))
    assert table(workspace) == {"a": 3, "b": None, "c": 9}


def test_order_by_says_which_row_is_the_last(workspace: MySQLWorkspace) -> None:
    sink = upserting(workspace, order_by="count")
    send(sink, 0, rows(("a", 5), ("a", 9), ("a", 7), ("a", None), ("b", None), ("b", 1)))
    assert table(workspace) == {"a": 9, "b": 1}


@pytest.mark.parametrize(
    "declared", ["VARCHAR(9) COLLATE utf8mb4_unicode_ci", "ENUM('b','ä','a','B','') COLLATE utf8mb4_bin"]
)
def test_texts_are_ordered_as_spark_orders_them_whatever_the_column_thinks(
    workspace: MySQLWorkspace, declared: str
) -> None:
    workspace.query(f"CREATE TABLE `rows` (app VARCHAR(9) PRIMARY KEY, v {declared}) CHARACTER SET utf8mb4")
    schema = pa.schema([("app", pa.string()), ("v", pa.string())])
    sink: Any = upserting(workspace, schema, order_by="v")
    send(sink, 0, pa.record_batch([["k"] * 5, ["b", "ä", "a", "B", ""]], schema=schema))
    assert workspace.rows() == [{"app": "k", "v": "ä"}]


def test_long_keys_that_differ_at_their_ends_only_are_told_apart(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (app VARBINARY(3000) PRIMARY KEY, count INT8) ENGINE=InnoDB")
    long, schema = b"x" * 2990, pa.schema([("app", pa.binary()), ("count", pa.int64())])
    sink: Any = upserting(workspace, schema)
    keys = [long + bytes([number % 5]) for number in range(50)]
    send(sink, 0, pa.record_batch([keys, range(50)], schema=schema))
    assert {row["app"][-1]: row["count"] for row in workspace.rows()} == {number: 45 + number for number in range(5)}


@pytest.mark.parametrize("order_by", [None, "count"])
def test_a_deleted_row_removes_its_key_and_a_later_one_brings_it_back(
    workspace: MySQLWorkspace, order_by: str | None
) -> None:
    schema = SCHEMA.append(pa.field("gone", pa.bool_()))
    sink = upserting(workspace, schema, deleted="gone", order_by=order_by)
    assert {name for (name, *_) in workspace.query("SHOW COLUMNS FROM `rows`")} == {"app", "count"}
    send(sink, 0, rows(("a", 1), ("b", 1), ("c", 1), gone=[False, None, False]))
    assert table(workspace) == {"a": 1, "b": 1, "c": 1}
    send(
        sink,
        1,
        rows(("a", 2), ("a", 3), ("b", 2), ("b", 3), ("d", 2), ("d", 3), gone=[True, False, False, True, False, True]),
    )
    assert table(workspace) == {"a": 3, "c": 1}


def replacing(workspace: MySQLWorkspace) -> Any:
    sink = workspace.sink(mode="replace")
    sink.check(SCHEMA, output_mode="complete")
    return sink


def test_a_replacement_leaves_nothing_of_what_was_there(workspace: MySQLWorkspace) -> None:
    sink = replacing(workspace)
    send(sink, 0, rows(("a", 1), ("b", 1)))
    send(sink, 1, rows(("b", 2), ("c", 1)))
    assert table(workspace) == {"b": 2, "c": 1}
    assert sink.takes_empty_epochs
    send(sink, 2)
    assert table(workspace) == {}


def test_a_whole_result_is_not_replaced_by_its_own_repetition(workspace: MySQLWorkspace) -> None:
    sink = replacing(workspace)

    def slot(epoch: int, number: int, batch: pa.RecordBatch, fingerprint: str = "f") -> SlotValues:
        receipt = Receipt(JOB.name, JOB.generation, sink.name, epoch, number, Fingerprint(fingerprint))
        return SlotValues(number, batch.num_rows, receipt, lambda: iter([batch]))

    first = [slot(0, 0, rows(("a", 1))), slot(0, 1, rows(("b", 1)))]
    second = [slot(1, 0, rows(("c", 1)))]
    for slots, epoch in ((first, 0), (second, 1), (first, 0), (second, 1)):
        assert sink.send_transaction(slots, JOB, epoch, AT)
    assert table(workspace) == {"c": 1}
    with pytest.raises(CheckpointRolledBack):
        sink.send_transaction([slot(1, 0, rows(("z", 1)), "another")], JOB, 1, AT)


def test_columns_that_the_stream_does_not_have_are_left_as_they_are(workspace: MySQLWorkspace) -> None:
    workspace.query("CREATE TABLE `rows` (app VARCHAR(9) PRIMARY KEY, count INT8, note VARCHAR(9)) ENGINE=InnoDB")
    workspace.query("INSERT INTO `rows` VALUES ('a', 1, 'kept')")
    send(upserting(workspace), 0, rows(("a", 2)))
    assert workspace.rows() == [{"app": "a", "count": 2, "note": "kept"}]


def test_rows_of_nothing_but_keys(workspace: MySQLWorkspace) -> None:
    schema = pa.schema([("app", pa.string())])
    sink = upserting(workspace, schema)
    for epoch in range(2):
        send(sink, epoch, pa.record_batch({"app": ["a", "b", "a"]}))
    assert sorted(row["app"] for row in workspace.rows()) == ["a", "b"]


def test_keys_that_only_look_alike_are_told_apart_in_a_table_of_ours(workspace: MySQLWorkspace) -> None:
    apps = ["a", "A", "a ", "ä", "a\u0308", "", " ", "ß", "ss", "a\0"]
    send(upserting(workspace), 0, rows(*((app, number) for number, app in enumerate(apps))))
    assert table(workspace) == {app: number for number, app in enumerate(apps)}


@pytest.mark.parametrize("deleted", [None, "gone"])
def test_s96_a_key_that_is_another_one_to_the_stream_and_the_same_to_the_table_is_rejected_and_overwrites_nothing(
    workspace: MySQLWorkspace, deleted: str | None
) -> None:
    """Case, accents and trailing blanks, as the table's collation has it."""
    workspace.query(
        "CREATE TABLE `rows` (app VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, "
        "count INT8) ENGINE=InnoDB"
    )
    flags: dict[str, list[object]] = {"gone": [False]} if deleted else {}
    sink: Any = upserting(workspace, rows(("a", 1), **flags).schema, deleted=deleted)
    send(sink, 0, rows(("a", 1), **flags))
    for other in ("A", "ä", "a "):
        with pytest.raises(RowsRejected, match="Duplicate entry"):
            send(sink, 1, rows((other, 2), **flags))
        both = rows(("a", 3), (other, 2), **{name: [*value, *value] for name, value in flags.items()})
        (found,) = sink.find_rejected([SlotValues(0, 2, None, lambda both=both: iter([both]))], JOB, 1)
        assert (found.row, "Duplicate entry" in found.why) == (1, True)
        assert table(workspace) == {"a": 1}
    send(sink, 1, rows(("a", 3), **flags))
    assert table(workspace) == {"a": 3}


def test_a_key_that_another_session_adds_in_the_same_moment_is_tried_again(
    workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink: Any = upserting(workspace)
    execute, others = Session.execute, ["INSERT INTO `rows` VALUES ('a', 1)"]

    def overtaken(self: Session, statement: str) -> Any:
        if others and statement.startswith("INSERT INTO") and "NOT latest.is_there" in statement:
            workspace.query(others.pop())
        return execute(self, statement)

    monkeypatch.setattr(Session, "execute", overtaken)
    with pytest.raises(TryAgain, match="in the same moment"):
        send(sink, 0, rows(("a", 2)))
    assert send(sink, 0, rows(("a", 2)))
    assert table(workspace) == {"a": 2}


def test_a_row_without_a_key_is_refused_and_the_epoch_waits_whole(workspace: MySQLWorkspace) -> None:
    sink = upserting(workspace)
    with pytest.raises(RowsRejected, match="no value in key column 'app'"):
        send(sink, 3, rows(("a", 1), (None, 2)))
    assert workspace.rows() == []


def test_a_row_that_the_table_rejects_is_told_from_a_server_that_cannot(workspace: MySQLWorkspace) -> None:
    workspace.query(
        "CREATE TABLE `rows` (app VARCHAR(9) PRIMARY KEY, count INT8, CONSTRAINT few CHECK (count < 10)) ENGINE=InnoDB"
    )
    sink = upserting(workspace)
    for wrong, said in ((("b", 20), "few"), (("b" * 10, 2), "app")):
        with pytest.raises(RowsRejected, match=said) as caught:
            send(sink, 3, rows(("a", 1), wrong))
        assert (caught.value.epoch, caught.value.sink) == (3, "mysql:rows")
    assert workspace.rows() == []
    workspace.query("RENAME TABLE `rows` TO elsewhere")
    with pytest.raises(TargetChanged, match="doesn't exist") as failed:
        send(sink, 3, rows(("a", 1)))
    assert (failed.value.epoch, failed.value.sink) == (3, "mysql:rows")


BAD = (3, 7, 8)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rejected_rows_stop_the_epoch_are_named_and_after_a_diversion_the_rest_arrives(
    workspace: MySQLWorkspace, mode: str, tmp_path: Path
) -> None:
    sink = workspace.sink(mode="upsert", keys=["id"]) if mode == "upsert" else workspace.sink().alternate
    sink.check(ENGINE_SCHEMA, output_mode="append")
    workspace.query(f"ALTER TABLE `rows` ADD CONSTRAINT lucky CHECK (id NOT IN {BAD})")
    subject = SinkUnderTest(sink, workspace.rows, ordered=False)
    harness = Harness(subject, source=Source(ends=(12, 20), keys=3), rows_in_a_batch=4)
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, RowsRejected)
    assert "lucky" in str(ending.error)
    looked, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    found = find_poison(looked)
    assert sorted(row.values["id"] for row in found) == list(BAD)
    assert all("lucky" in row.why for row in found)
    assert workspace.rows() == []
    (path,) = divert_poison(looked, tmp_path)
    assert len(path.read_text().splitlines()) == len(BAD)
    assert isinstance(harness.life(), Finished)
    assert sorted(row["id"] for row in workspace.rows()) == [number for number in range(20) if number not in BAD]


def test_large_epochs_go_in_by_several_loads(workspace: MySQLWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.sinks.mysql.loader._BYTES_IN_A_LOAD", 100)
    sink = upserting(workspace)
    send(sink, 0, *(rows((f"app-{number % 50}", number)) for number in range(200)))
    assert table(workspace) == {f"app-{number % 50}": number for number in range(150, 200)}
