"""Scenario 92 for SQLite: random streams into random tables. What stands there is what was sent, or it was refused.

`ONCEWARD_SEED=123 pytest tests/unit/sinks/test_sqlite_any_table.py -k replay` plays one of them again.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from onceward.contracts import Receipt, SlotValues
from onceward.errors import RowsRejected, TargetRefused
from onceward.identity import Fingerprint, JobIdentity
from onceward.sinks import SQLiteSink

TABLES = 200
SOAK = 2_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = ("", " ", "a", "A", "1", "1.0", "007", "1e3", "0x10", "ä", "a\0b", "NULL", "2024-01-01", "9" * 20)
DECIMALS = ("0.00", "1.50", "-12345678.90")
KINDS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "bool": (pa.bool_(), (True, False)),
    "int32": (pa.int32(), (0, -1, 2**31 - 1)),
    "int64": (pa.int64(), (0, 1, 2**53 + 1, 2**63 - 1, -(2**63))),
    "float64": (pa.float64(), (0.0, -0.0, 1.5, 2.0, 1e300, math.nan, math.inf, 2.0**53)),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), (b"", b"1", b"\0\xff")),
    "short decimal": (pa.decimal128(10, 2), tuple(map(Decimal, DECIMALS))),
    "long decimal": (pa.decimal128(38, 2), (Decimal("12345678901234567890.25"), Decimal("1.10"))),
}
DECLARED = (
    *("INTEGER", "INT", "BIGINT", "TEXT", "VARCHAR(2)", "CHAR(3)", "BLOB", "", "REAL", "DOUBLE", "NUMERIC", "BOOLEAN"),
    *("DATE", "DECIMAL(10, 2)", "STRING", "JSON", "TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM"),
)
STRICT = ("INTEGER", "INT", "REAL", "TEXT", "BLOB", "ANY")
EXTRAS = (
    "NOT NULL ON CONFLICT REPLACE DEFAULT 7",
    "DEFAULT 'x'",
    "CHECK (length({}) < 3)",
    "UNIQUE ON CONFLICT IGNORE",
)
Row = tuple[Any, ...]


def play(folder: Path, job: JobIdentity, seed: int, counts: Counter[str]) -> None:
    random = Random(seed)
    path = folder / f"{seed}.db"
    strict = random.random() < 0.3
    kinds = [KINDS[random.choice(list(KINDS))] for _ in range(random.randrange(1, 4))]
    declared = [random.choice(STRICT if strict else DECLARED) for _ in kinds]
    names = [f"c{n}" for n in range(len(kinds))]
    extras = [random.choice(EXTRAS).format(name) if random.random() < 0.15 else "" for name in names]
    columns = ", ".join(" ".join(parts) for parts in zip(names, declared, extras, strict=True))
    made = f"CREATE TABLE t ({columns}){' STRICT' if strict else ''}"
    with closing(sqlite3.connect(path)) as database:
        database.execute(made)
    rows = [
        tuple(None if random.random() < 0.1 else random.choice(values) for _, values in kinds)
        for _ in range(random.randrange(1, 9))
    ]
    try:
        _compare(SQLiteSink(path, table="t"), job, path, dict(zip(names, kinds, strict=True)), rows, counts)
    except Exception as error:
        error.add_note(f"ONCEWARD_SEED={seed}: {made}")
        raise


def _compare(
    sink: SQLiteSink, job: JobIdentity, path: Path, kinds: dict[str, Any], rows: list[Row], counts: Counter[str]
) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in kinds.items()])

    def slot(some: list[Row]) -> SlotValues:
        columns = zip(*some, strict=True) if some else [()] * len(kinds)
        arrays = [pa.array(list(column), kind.type) for column, kind in zip(columns, schema, strict=True)]
        receipt = Receipt(job.name, job.generation, sink.name, 0, 0, Fingerprint("fffffffffffffff2"))
        return SlotValues(0, len(some), receipt, partial(iter, [pa.RecordBatch.from_arrays(arrays, schema=schema)]))

    refused = raised(lambda: sink.check(schema, output_mode="append"), TargetRefused)
    if refused is not None:
        assert any(f"{name!r}" in str(refused) for name in kinds), refused
        counts["tables refused by name"] += 1
        return
    if raised(lambda: sink.send_transaction([slot(rows)], job, 0, NOW), RowsRejected) is not None:
        bad = {row.row for row in sink.find_rejected([slot(rows)], job, 0)}
        assert bad, "rows are rejected, and none is named"
        rows = [row for n, row in enumerate(rows) if n not in bad]
        counts["rows named and left out"] += len(bad)
        assert sink.send_transaction([slot(rows)], job, 0, NOW)
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT * FROM t ORDER BY rowid").fetchall()
    assert [tuple(map(_comparable, row, schema)) for row in found] == [
        tuple(map(_comparable, row, schema)) for row in rows
    ]
    counts["tables compared"] += 1


def _comparable(value: Any, field: pa.Field) -> Any:
    """Numbers by their value, where a decimal may have been stored as text; all else as it is, with its type."""
    if value is None:
        return None
    if pa.types.is_decimal(field.type):
        return Fraction(str(value))
    if pa.types.is_floating(field.type) and math.isinf(value):
        return value
    if pa.types.is_floating(field.type) or pa.types.is_integer(field.type) or pa.types.is_boolean(field.type):
        return Fraction(value) if isinstance(value, int | float) else value
    return value


def raised(call: Callable[[], object], kind: type[Exception]) -> Exception | None:
    try:
        call()
    except kind as error:
        return error
    return None


def test_what_stands_in_any_table_is_what_was_sent(tmp_path: Path, job: JobIdentity, record_sweep: list[str]) -> None:
    counts: Counter[str] = Counter()
    for seed in range(TABLES):
        play(tmp_path, job, seed, counts)
    # They must be taken and must refuse often enough, or they prove nothing.
    assert min(counts["tables compared"], counts["tables refused by name"]) > TABLES / 5
    record_sweep.append(f"SQLite, {TABLES} random tables: {dict(sorted(counts.items()))}")


@pytest.mark.soak
def test_what_stands_in_thousands_of_tables_is_what_was_sent(
    tmp_path: Path, job: JobIdentity, record_sweep: list[str]
) -> None:
    counts: Counter[str] = Counter()
    for seed in range(TABLES, TABLES + SOAK):
        play(tmp_path, job, seed, counts)
    record_sweep.append(f"SQLite, {SOAK} random tables: {dict(sorted(counts.items()))}")


@pytest.mark.skipif("ONCEWARD_SEED" not in os.environ, reason="replays the seed in ONCEWARD_SEED")
def test_replay_of_one_seed(tmp_path: Path, job: JobIdentity) -> None:
    play(tmp_path, job, int(os.environ["ONCEWARD_SEED"]), Counter())
