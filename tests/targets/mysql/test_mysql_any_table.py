"""Scenarios 90, 92, 93 and 96 as a property: whatever the table, what stands in it is what was sent, or it was refused.

Refused at the start by the name of a column, an index or a trigger; or row by row, and then the others arrive.
`ONCEWARD_SEED=123 pytest tests/targets/mysql/test_mysql_any_table.py -k replay` plays one table again.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from mysql_random_tables import RandomTable, random_table
from mysql_workspace import JOB, MySQLWorkspace, pre_committed

from onceward.connections.mysql import Session
from onceward.contracts import Committed, SlotContext, SlotValues
from onceward.errors import OncewardError, RowsRejected, TargetRefused
from onceward.identity import Fingerprint, RunId
from onceward.sinks.json_text import json_values
from onceward.testing.conformance.base import AT

pytestmark = pytest.mark.cluster

TABLES = 200
SOAK = 2_000


@pytest.mark.parametrize("part", range(4))
def test_what_stands_in_any_table_is_what_was_sent_or_it_was_refused_by_name(
    quick: MySQLWorkspace, part: int, record_sweep: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = TABLES // 4
    if part % 2:
        hostile(quick, monkeypatch)
    record_sweep.append(f"mysql, any table: {_told(played(quick, range(part * size, (part + 1) * size)))}")


@pytest.mark.soak
def test_what_stands_in_two_thousand_tables_is_what_was_sent(quick: MySQLWorkspace, record_sweep: list[str]) -> None:
    record_sweep.append(f"soak, mysql, any table: {_told(played(quick, range(TABLES, TABLES + SOAK)))}")


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_table(quick: MySQLWorkspace) -> None:
    print(played(quick, range(int(os.environ["ONCEWARD_SEED"]), int(os.environ["ONCEWARD_SEED"]) + 1)))


def hostile(workspace: MySQLWorkspace, patch: pytest.MonkeyPatch) -> None:
    """A server whose defaults are the worst: it notes nothing, invents times, and passes over keys."""
    connect = Session.__init__
    worst = "note_verbosity = '', explicit_defaults_for_timestamp = 0"

    def worsened(self: Session, *args: Any, **options: Any) -> None:
        connect(self, *args, **options)
        self.execute(f"SET SESSION {worst}")

    patch.setattr(Session, "__init__", worsened)
    workspace.query(f"SET SESSION {worst}")


def played(workspace: MySQLWorkspace, seeds: Iterable[int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        table = random_table(Random(seed))
        try:
            workspace.query(table.create)
            for statement in table.then:
                workspace.query(statement)
        except pymysql.MySQLError:
            # The server itself does not have such a table.
            counts["tables that the server refuses"] += 1
            continue
        try:
            counts.update(play(workspace, table, seed))
        except BaseException as error:
            error.add_note(f"ONCEWARD_SEED={seed}: {table}")
            raise
        workspace.query("DROP TABLE `rows`")
    # It must not refuse everything, nor take everything, or it proves nothing.
    if counts.total() >= 50:
        assert counts["tables written"] > counts.total() / 10, counts
        assert counts["tables refused"] > counts.total() / 20, counts
        assert counts["rows rejected"], counts
    return counts


def play(workspace: MySQLWorkspace, table: RandomTable, seed: int) -> Iterable[str]:
    output_mode = {"append": "append", "upsert": "update", "replace": "complete"}[table.mode]
    sink = workspace.sink(mode=table.mode, name="any", **table.options)
    refused = caught(lambda: sink.check(table.schema, output_mode=output_mode))
    if refused is not None:
        known = [*table.schema.names, "must", "tell", "'rows'"]
        assert any(name.lower() in refused.message.lower() for name in known), refused
        assert refused.hint
        return ["tables refused"]
    rows, told = table.rows, list[str]()
    if hasattr(sink, "begin_transaction"):
        refused = caught(lambda: staged(sink, batch_of(table, rows), seed))
        if refused is not None:
            assert " in row " in refused.message or "at row" in refused.message, refused
            assert (read(workspace, table), workspace.prepared()) == ([], [])
            sink = sink.alternate
    if hasattr(sink, "send_transaction"):
        rows, told = sent(workspace, sink, table)
    wanted = sorted(map(repr, expected(table, rows)))
    assert sorted(map(repr, read(workspace, table))) == wanted
    if table.mode == "upsert" and rows:
        # Now every row is there already, and is changed instead of added.
        sink.send_transaction([SlotValues(0, len(rows), None, lambda: iter([batch_of(table, rows)]))], JOB, 1, AT)
        assert sorted(map(repr, read(workspace, table))) == wanted
    return ["tables written", *told]


def caught(act: Callable[[], object]) -> OncewardError | None:
    """What it is refused with."""
    try:
        act()
    except (TargetRefused, RowsRejected) as refused:
        return refused
    return None


def staged(sink: Any, batch: pa.RecordBatch, seed: int) -> None:
    context = SlotContext(JOB, sink.name, seed, 0, 0, 1, RunId("rrrrrr"), AT, Fingerprint("f"))
    transaction = sink.begin_transaction(context)
    try:
        sink.invoke(transaction, batch)
        handle = pre_committed(sink, transaction)
    except BaseException:
        sink.discard(transaction)
        raise
    assert sink.commit(handle) == Committed()


def sent(workspace: MySQLWorkspace, sink: Any, table: RandomTable) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows that arrive, which are all but those that the sink names."""

    def slots(rows: list[dict[str, Any]]) -> list[SlotValues]:
        return [SlotValues(0, len(rows), None, lambda: iter([batch_of(table, rows)]))]

    rejected = caught(lambda: sink.send_transaction(slots(table.rows), JOB, 0, AT))
    if rejected is None:
        return table.rows, []
    assert read(workspace, table) == []
    named = sink.find_rejected(slots(table.rows), JOB, 0)
    assert named, rejected
    assert read(workspace, table) == [], "looking changes nothing"
    numbers = {one.row for one in named}
    rows = [row for number, row in enumerate(table.rows) if number not in numbers]
    sink.send_transaction(slots(rows), JOB, 0, AT)
    return rows, ["rows rejected"] * len(numbers)


def batch_of(table: RandomTable, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [pa.array([row[one.name] for row in rows], one.type) for one in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def expected(table: RandomTable, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Every row; of an upsert the last one of each key, and with order_by the greatest."""
    batch = batch_of(table, rows)
    plain = [
        tuple(plain_value(one.type, column, number) for one, column in zip(batch.schema, batch.columns, strict=True))
        for number in range(len(rows))
    ]
    if table.mode != "upsert":
        return plain
    names = list(table.schema.names)
    last: dict[Any, tuple[Any, ...]] = {}
    order = table.options.get("order_by")
    for row in plain:
        key = tuple(repr(row[names.index(name)]) for name in table.options["keys"])
        if key not in last or order is None or _rises(last[key], row, names.index(order)):
            last[key] = row
    return list(last.values())


def _rises(before: tuple[Any, ...], now: tuple[Any, ...], place: int) -> bool:
    if now[place] is None or before[place] is None:
        return before[place] is None
    return bool(now[place] >= before[place])


def plain_value(kind: pa.DataType, column: pa.Array, number: int) -> Any:
    if pa.types.is_nested(kind):
        return json_values(column.slice(number, 1))[0].as_py()
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column, kind = column.cast(pa.timestamp("us"), safe=False), pa.timestamp("us")
    if pa.types.is_time64(kind):
        column = column.cast(pa.time64("us"), safe=False)
    return canonical(column[number].as_py(), kind)


def canonical(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(kind):
        return int(value) if not isinstance(value, bytes) else int.from_bytes(value, "big")
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return float(value) + 0.0 if math.isfinite(value) else value
    if pa.types.is_decimal(kind):
        return format(value.normalize(), "f")
    if isinstance(value, timedelta):
        return (datetime.min + value).time()
    if isinstance(value, datetime):
        value = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return value.date() if pa.types.is_date(kind) and value.time() == datetime.min.time() else value
    return value


def read(workspace: MySQLWorkspace, table: RandomTable) -> list[tuple[Any, ...]]:
    """As a reader gets them, but a FLOAT with all its digits."""
    columns = [f"`{one.name}` + 0e0" if pa.types.is_floating(one.type) else f"`{one.name}`" for one in table.schema]
    found = workspace.query(f"SELECT {', '.join(columns)} FROM `rows`")
    kinds = [one.type for one in table.schema]
    return [tuple(canonical(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in found]


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
