"""Rows that are sent to a SQLite file slot by slot, and a look into that file."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from onceward.contracts import SlotValues
from onceward.identity import Fingerprint, JobIdentity
from onceward.sinks import SQLiteSink

NOW = datetime(2024, 5, 1, tzinfo=UTC)
ROWS = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "app": ["a", None]})
MARK = Fingerprint("fffffffffffffff2")

Slots = Callable[..., SlotValues]


def query(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(statement, values).fetchall()
        database.commit()
        return rows


def ready(sink: SQLiteSink, schema: pa.Schema = ROWS.schema) -> SQLiteSink:
    sink.check(schema, output_mode="append")
    return sink


def send(sink: SQLiteSink, job: JobIdentity, *slots: SlotValues, epoch: int = 7) -> bool:
    return sink.send_transaction(slots, job, epoch, NOW)
