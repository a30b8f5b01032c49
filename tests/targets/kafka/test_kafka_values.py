"""What stands in the topic afterwards: keys, values, headers, partitions, times, and the order of each key."""

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from topics import KafkaWorkspace, send, slot_of, write

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
HOSTILE = ["", "plain", '"; DROP', "\x00\xff", "new\nline", "数é🦆", "x" * 70_000]


def test_rows_become_json_objects_by_default(workspace: KafkaWorkspace) -> None:
    batch = pa.record_batch(
        {
            "app": ["maps", None],
            "count": [1, 2],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "at": pa.array([MOMENT, MOMENT], pa.timestamp("us", "UTC")),
            "day": [date(2026, 1, 2), None],
            "tags": [["a", None], []],
        }
    )
    assert write(workspace.sink(key="app"), batch)
    found = sorted(((m.key(), json.loads(m.value())) for m in workspace.messages()), key=lambda one: one[1]["count"])
    at = "2026-01-02T03:04:05.678901Z"
    assert found == [
        (b"maps", {"app": "maps", "count": 1, "price": 1.5, "at": at, "day": "2026-01-02", "tags": ["a", None]}),
        (None, {"count": 2, "at": at, "tags": []}),
    ]


def test_rows_with_the_columns_of_spark_go_out_as_spark_would_send_them(workspace: KafkaWorkspace) -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": pa.array([b"k1", None], pa.binary()),
            "value": ["v1", None],
            "topic": [workspace.topic, workspace.topic],
            "partition": pa.array([1, 0], pa.int32()),
            "headers": pa.array([[{"key": "a", "value": b"\xff"}, {"key": "a", "value": None}], None], headers),
            "other": [1, 2],
        }
    )
    assert write(workspace.sink(topic=None), batch)
    tombstone, whole = workspace.messages()
    assert (whole.key(), whole.value(), whole.partition()) == (b"k1", b"v1", 1)
    assert whole.headers() == [("a", b"\xff"), ("a", None)]
    assert (tombstone.key(), tombstone.value(), tombstone.partition()) == (None, None, 0)


@pytest.mark.parametrize(
    ("column", "format", "expected"),
    [
        (pa.array(["é"]), None, "é".encode()),
        (pa.array(["é"]), "json", '"é"'.encode()),
        (pa.array([b"\x00\xff"], pa.binary()), "bytes", b"\x00\xff"),
        (pa.array([-5], pa.int64()), None, b"-5"),
        (pa.array([True]), None, b"true"),
        (pa.array([0.5]), "string", b"0.5"),
        (pa.array([Decimal("0.10")], pa.decimal128(5, 2)), None, b"0.10"),
        (pa.array([MOMENT], pa.timestamp("us", "UTC")), None, b"2026-01-02T03:04:05.678901Z"),
        (pa.array([{"a": 1, "b": None}]), None, b'{"a":1}'),
        (pa.array([[1, None]]), "json", b"[1,null]"),
        (pa.array(["a"]).dictionary_encode(), None, b"a"),
    ],
)
def test_one_column_can_be_the_value(
    workspace: KafkaWorkspace, column: pa.Array, format: str | None, expected: bytes
) -> None:
    batch = pa.record_batch({"v": column, "rest": [1]})
    assert write(workspace.sink(value="v", key="v", format=format), batch)
    (message,) = workspace.messages()
    assert message.value() == expected
    assert format == "json" or message.key() == expected


def test_several_columns_can_be_key_and_value(workspace: KafkaWorkspace) -> None:
    batch = pa.record_batch({"a": [1], "b": ["x"], "c": [2.5]})
    assert write(workspace.sink(key=["a", "b"], value=["b", "c"]), batch)
    (message,) = workspace.messages()
    assert (message.key(), message.value()) == (b'{"a":1,"b":"x"}', b'{"b":"x","c":2.5}')


def test_hostile_texts_arrive_byte_for_byte(workspace: KafkaWorkspace) -> None:
    """Scenario 70."""
    batch = pa.record_batch({"key": HOSTILE, "value": HOSTILE[::-1]})
    assert write(workspace.sink(), batch)
    found = {m.key().decode(): m.value().decode() for m in workspace.messages()}
    assert found == dict(zip(HOSTILE, HOSTILE[::-1], strict=True))


def test_times_come_from_a_column_or_from_the_clock(workspace: KafkaWorkspace) -> None:
    batch = pa.record_batch({"id": [1, 2], "at": pa.array([MOMENT, None], pa.timestamp("us", "UTC"))})
    assert write(workspace.sink(timestamp="at"), batch)
    stamps = {json.loads(m.value())["id"]: m.timestamp()[1] for m in workspace.messages()}
    assert stamps[1] == int(MOMENT.timestamp() * 1000)
    assert stamps[2] > stamps[1]


def test_keys_are_placed_as_java_and_spark_place_them(kafka: Any) -> None:
    """Known hashes (murmur2) of Kafka's own clients, so that our topics can be joined with theirs."""
    workspace = KafkaWorkspace(kafka, partitions=7)
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    assert write(workspace.sink(), pa.record_batch({"key": list(hashes), "value": list(hashes)}))
    assert {m.key().decode(): m.partition() for m in workspace.messages()} == {
        key: (number & 0x7FFFFFFF) % 7 for key, number in hashes.items()
    }


def test_the_order_of_each_key_is_kept(workspace: KafkaWorkspace) -> None:
    """Across batches, slots and epochs."""
    chance = random.Random(20261116)
    sink, sent = workspace.sink(key="key", config={"linger.ms": 5}), 0
    for epoch in range(3):
        slots = []
        for slot in range(3):
            rows = [(chance.randrange(20), sent + n) for n in range(500)]
            sent += len(rows)
            batch = pa.record_batch({"key": [key for key, _ in rows], "id": [number for _, number in rows]})
            slots.append(slot_of(sink, batch.slice(0, 200), batch.slice(200), epoch=epoch, slot=slot))
        assert send(sink, *slots, epoch=epoch)
    rows = workspace.rows()
    assert len(rows) == sent
    for key in range(20):
        found = [row["id"] for row in rows if row["key"] == key]
        assert found == sorted(found)
