"""The shapes of Redis sinks that the tests run with, each with the way to read its rows back, and slots to send.

A row's columns all stand in its key, field, member or value, so that a reader gets back the row that was written. Only
a counter shows how often it was written; in the other shapes a second write of the same row leaves no trace, but one
of another computation does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import redis

from onceward.contracts import Receipt, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import RedisSink
from onceward.testing import SinkUnderTest
from onceward.testing.engine import SCHEMA

Row = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = JobIdentity(JobName("page views"), Generation("aaaaaaaa"))
MARK = Fingerprint("fffffffffffffff2")
COLUMNS = tuple(SCHEMA.names)
WHOLE_ROW = "|".join(f"{{{name}}}" for name in COLUMNS)
BUT_VERSION = "|".join(f"{{{name}}}" for name in COLUMNS if name != "version")
REST = tuple(name for name in COLUMNS if name != "id")


def row_of(text: bytes) -> Row:
    """A row from what `WHOLE_ROW` made of it."""
    values = dict(zip(COLUMNS, text.decode().split("|"), strict=True))
    return {name: value if name == "version" else int(value) for name, value in values.items()}


def row_with(text: bytes, version: bytes) -> Row:
    """A row from what `BUT_VERSION` made of it."""
    values = text.split(b"|")
    return row_of(b"|".join([*values[:4], version, *values[4:]]))


class Reader:
    """A plain reader of the target."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def names(self, pattern: str = "*") -> list[bytes]:
        """The keys that are not ours."""
        found: Iterable[bytes] = self.client.scan_iter(pattern, count=1000)
        return sorted(key for key in set(found) if not key.startswith(b"onceward:"))

    def counters(self) -> list[Row]:
        return [row for key in self.names("row:*") for row in [row_of(key[4:])] * int(self.client.get(key))]

    def field_counters(self) -> list[Row]:
        return [row for field, n in self.client.hgetall("rows").items() for row in [row_of(field)] * int(n)]

    def strings(self) -> list[Row]:
        return [row_with(key[4:], self.client.get(key)) for key in self.names("row:*")]

    def hashes(self) -> list[Row]:
        rows = []
        for key in self.names("row:*"):
            found = {name.decode(): value.decode() for name, value in self.client.hgetall(key).items()}
            assert tuple(found) == REST
            rows.append(row_of("|".join([key[4:].decode(), *found.values()]).encode()))
        return rows

    def fields(self) -> list[Row]:
        return [row_with(field, value) for field, value in self.client.hgetall("rows").items()]

    def members(self) -> list[Row]:
        scored = self.client.zrange("rows", 0, -1, withscores=True)
        rows = [(row_of(member), score) for member, score in scored]
        assert all(row["id"] == score for row, score in rows)
        return [row for row, _ in rows]


@dataclass(frozen=True)
class Shape:
    """One way to write rows. `counts`: a row that is written twice is seen twice."""

    name: str
    options: dict[str, Any]
    read: Callable[[Reader], list[Row]]
    counts: bool = False

    def sink(self, url: str, *, check: bool = True, **options: Any) -> RedisSink:
        sink = RedisSink(url, **{"name": "redis", **self.options, **options})
        if check:
            sink.check(SCHEMA, output_mode="append")
        return sink

    def subject(self, url: str, reader: Reader, **options: Any) -> SinkUnderTest:
        return SinkUnderTest(self.sink(url, **options), lambda: self.read(reader), ordered=False)


SHAPES = (
    Shape("counter", {"type": "counter", "key": f"row:{WHOLE_ROW}"}, Reader.counters, counts=True),
    Shape("field-counter", {"type": "counter", "key": "rows", "field": WHOLE_ROW}, Reader.field_counters, counts=True),
    Shape("string", {"type": "string", "key": f"row:{BUT_VERSION}", "value": "version"}, Reader.strings),
    Shape("hash", {"type": "hash", "key": "row:{id}"}, Reader.hashes),
    Shape("field", {"type": "hash", "key": "rows", "field": BUT_VERSION, "value": "version"}, Reader.fields),
    Shape("sorted-set", {"type": "zset", "key": "rows", "member": WHOLE_ROW, "score": "id"}, Reader.members),
)
COUNTER = SHAPES[0]


def slot_of(
    sink: RedisSink,
    *batches: pa.RecordBatch,
    epoch: int = 7,
    slot: int = 0,
    job: JobIdentity = JOB,
    mark: str = MARK,
    with_receipt: bool = True,
) -> SlotValues:
    """A slot as the publisher hands it over."""
    receipt = Receipt(job.name, job.generation, sink.name, epoch, slot, Fingerprint(mark))
    rows = sum(batch.num_rows for batch in batches)
    return SlotValues(slot, rows, receipt if with_receipt else None, lambda: iter(batches))


def send(sink: RedisSink, *slots: SlotValues, epoch: int = 7, job: JobIdentity = JOB) -> bool:
    return sink.send_transaction(slots, job, epoch, NOW)


def write(sink: RedisSink, batch: pa.RecordBatch, *, epoch: int = 7, **options: Any) -> bool:
    """Check and send one slot."""
    sink.check(batch.schema, output_mode="append")
    return send(sink, slot_of(sink, batch, epoch=epoch, **options), epoch=epoch)


def client_of(url: str) -> Any:
    return redis.Redis.from_url(url)
