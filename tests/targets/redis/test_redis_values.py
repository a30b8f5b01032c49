"""What stands in Redis afterwards: every type of column, nulls, deletes, times to live, and hostile keys."""

import json
import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from shapes import Reader, send, slot_of, write

from onceward.errors import RowsRejected
from onceward.sinks import RedisSink
from onceward.testing.servers import RedisServer

SEED = 20261115

HOSTILE = [
    b"",
    b"plain",
    b"with blank",
    b"{tag}",
    b"{}",
    b"{{a}}",
    b"new\nline\r\n$5\r\nhello",
    b"*3\r\n$3\r\nDEL",
    b"\x00\xff\xfe",
    b"'; FLUSHALL --",
    "数é🦆".encode(),
    b"\xc0\xc2\xdb\xdd",
    b"x" * 70_000,
]


def test_every_type_of_column_keeps_its_value(server: RedisServer, reader: Reader) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    columns: dict[str, tuple[pa.Array, bytes]] = {
        "int": (pa.array([-5], pa.int32()), b"-5"),
        "big": (pa.array([2**63 - 1], pa.int64()), b"9223372036854775807"),
        "true": (pa.array([True]), b"1"),
        "false": (pa.array([False]), b"0"),
        "decimal": (pa.array([Decimal("0.0000000001")], pa.decimal128(20, 10)), b"0.0000000001"),
        "text": (pa.array(["é\n"]), "é\n".encode()),
        "empty": (pa.array([""]), b""),
        "bytes": (pa.array([b"\x00\xff"]), b"\x00\xff"),
        "coded": (pa.array(["a"]).dictionary_encode(), b"a"),
        "day": (pa.array([date(2026, 1, 2)]), b"2026-01-02"),
        "moment": (pa.array([moment], pa.timestamp("us", "UTC")), b"2026-01-02T03:04:05.678901Z"),
        "list": (pa.array([[1, None]]), b"[1,null]"),
        "struct": (pa.array([{"a": "x"}]), b'{"a":"x"}'),
    }
    batch = pa.record_batch({"id": [1], **{name: column for name, (column, _) in columns.items()}})
    assert write(RedisSink(server.url, type="hash", key="h:{id}"), batch)
    found = reader.client.hgetall("h:1")
    assert {name.decode(): value for name, value in found.items()} == {n: text for n, (_, text) in columns.items()}


@pytest.mark.parametrize("type", [pa.float64(), pa.float32()])
def test_floating_point_numbers_come_back_as_they_were(server: RedisServer, reader: Reader, type: pa.DataType) -> None:
    values = [0.1, -0.0, 1.0, 1e300 if type == pa.float64() else 1e30, 1 / 3, 5e-324, math.inf, -math.inf, math.nan]
    column = pa.array(values, type)
    write(RedisSink(server.url, key="f:{id}", value="v"), pa.record_batch({"id": range(len(values)), "v": column}))
    found = [float(reader.client.get(f"f:{i}")) for i in range(len(values))]
    assert pa.array(found, type).to_pylist()[:-1] == column.to_pylist()[:-1]
    assert math.isnan(found[-1])


@pytest.mark.parametrize("max_rows_per_script", [1, 10_000])
def test_hostile_keys_and_values_arrive_byte_for_byte(
    server: RedisServer, reader: Reader, max_rows_per_script: int
) -> None:
    batch = pa.record_batch({"k": pa.array(HOSTILE, pa.binary()), "v": pa.array(HOSTILE[::-1], pa.binary())})
    expected = dict(zip(HOSTILE, HOSTILE[::-1], strict=True))
    options: dict[str, Any] = {"max_rows_per_script": max_rows_per_script}
    assert write(RedisSink(server.url, key="s:{k}", value="v", **options), batch)
    assert {key[2:]: reader.client.get(key) for key in reader.names("s:*")} == expected
    assert write(RedisSink(server.url, type="hash", key="h", field="{k}", value="v", **options), batch)
    assert reader.client.hgetall("h") == expected
    assert write(RedisSink(server.url, type="counter", key="c", field="{k}", **options), batch)
    assert reader.client.hgetall("c") == dict.fromkeys(HOSTILE, b"1")
    ranked = batch.append_column("n", pa.array(range(len(HOSTILE))))
    assert write(RedisSink(server.url, type="zset", key="z", member="{k}", score="n", **options), ranked)
    assert [member for member, _ in reader.client.zrange("z", 0, -1, withscores=True)] == HOSTILE


def test_columns_with_hostile_names_are_fields(server: RedisServer, reader: Reader) -> None:
    names = ["a b", "é", "x'y\"z", "q\nr", "f{g}"]
    batch = pa.record_batch({"id": [1], **{name: [name] for name in names}})
    assert write(RedisSink(server.url, type="hash", key="h:{id}"), batch)
    assert reader.client.hgetall("h:1") == {name.encode(): name.encode() for name in names}


def test_braces_written_twice_are_braces_of_the_key(server: RedisServer, reader: Reader) -> None:
    assert write(RedisSink(server.url, key="{{{a}}}:{b}{{", value="b"), pa.record_batch({"a": ["x"], "b": ["y"]}))
    assert reader.names() == [b"{x}:y{"]


def test_a_null_value_removes_the_string_the_field_and_the_member(server: RedisServer, reader: Reader) -> None:
    client = reader.client
    client.set("s:2", "old")
    client.hset("h", mapping={"1": "old", "2": "old"})
    client.zadd("z", {"1": 9, "2": 9})
    batch = pa.record_batch({"id": [1, 2], "v": pa.array([5, None], pa.int64())})
    assert write(RedisSink(server.url, key="s:{id}", value="v"), batch)
    assert write(RedisSink(server.url, type="hash", key="h", field="{id}", value="v"), batch)
    assert write(RedisSink(server.url, type="zset", key="z", member="{id}", score="v"), batch)
    assert write(RedisSink(server.url, type="counter", key="c:{id}", by="v"), batch)
    assert (client.get("s:1"), client.get("s:2")) == (b"5", None)
    assert client.hgetall("h") == {b"1": b"5"}
    assert client.zrange("z", 0, -1, withscores=True) == [(b"1", 5.0)]
    assert (client.get("c:1"), client.get("c:2")) == (b"5", None)


def test_nulls_of_a_hash_remove_fields_and_delete_removes_all(server: RedisServer, reader: Reader) -> None:
    for key in (1, 2, 3):
        reader.client.hset(f"h:{key}", mapping={"a": "old", "b": "old", "other": "stays"})
    batch = pa.record_batch(
        {"id": [1, 2, 3], "a": ["x", None, "x"], "b": [None, None, "x"], "gone": [None, False, True]}
    )
    assert write(RedisSink(server.url, type="hash", key="h:{id}", deleted="gone"), batch)
    assert reader.client.hgetall("h:1") == {b"a": b"x", b"other": b"stays"}
    assert reader.client.hgetall("h:2") == {b"other": b"stays"}
    assert reader.client.hgetall("h:3") == {}


@pytest.mark.parametrize(
    "options",
    [
        {"key": "s:{id}", "value": "v"},
        {"type": "hash", "key": "s:{id}", "field": "f", "value": "v"},
        {"type": "zset", "key": "s:{id}", "member": "m", "score": "v"},
    ],
)
def test_a_flag_removes_what_the_row_names(server: RedisServer, reader: Reader, options: dict[str, Any]) -> None:
    sink = RedisSink(server.url, deleted="gone", **options)
    assert write(sink, pa.record_batch({"id": [1, 2], "v": [1, 1], "gone": [False, False]}))
    assert write(sink, pa.record_batch({"id": [1, 2], "v": [2, 2], "gone": [True, False]}), epoch=8)
    assert reader.names() == [b"s:2"]


def test_the_last_row_of_a_key_stays(server: RedisServer, reader: Reader) -> None:
    """Across batches, parts and deletes."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    rows = [(chance.randrange(30), chance.choice([None, *range(9)])) for _ in range(2000)]
    expected = {f"s:{key}".encode(): str(value).encode() for key, value in dict(rows).items() if value is not None}
    batches = [
        pa.record_batch({"id": [key for key, _ in some], "v": pa.array([value for _, value in some], pa.int64())})
        for some in (rows[:700], rows[700:701], rows[701:])
    ]
    for max_rows_per_script in (1, 64, None):
        sink = RedisSink(
            server.url,
            key="s:{id}",
            value="v",
            max_rows_per_script=max_rows_per_script,
            name=f"redis {max_rows_per_script}",
        )
        assert send(sink, slot_of(sink, *batches))
        assert {key: reader.client.get(key) for key in reader.names("*")} == expected


@pytest.mark.parametrize(
    "options",
    [
        {"key": "s:{id}", "value": "v"},
        {"type": "hash", "key": "s:{id}", "fields": ["v"]},
        {"type": "hash", "key": "s:1", "field": "{id}", "value": "v"},
        {"type": "zset", "key": "s:1", "member": "{id}", "score": "v"},
        {"type": "counter", "key": "s:{id}", "by": "v"},
        {"type": "counter", "key": "s:1", "field": "{id}"},
    ],
)
def test_a_key_expires_after_its_last_write_and_its_receipt_never(
    server: RedisServer, reader: Reader, options: dict[str, Any]
) -> None:
    assert write(RedisSink(server.url, ttl_s=100, name="redis", **options), pa.record_batch({"id": [1], "v": [1]}))
    assert 90_000 < reader.client.pttl("s:1") <= 100_000
    assert [reader.client.pttl(key) for key in reader.client.scan_iter("onceward:*")] == [-1]


def test_counters_take_whole_numbers_fractions_and_decimals(server: RedisServer, reader: Reader) -> None:
    for name, column in {
        "int": pa.array([1, -3, 10], pa.int32()),
        "float": pa.array([0.5, -0.25, 1e-3]),
        "decimal": pa.array([Decimal("0.5"), Decimal("-0.25"), Decimal("0.001")], pa.decimal128(10, 3)),
    }.items():
        batch = pa.record_batch({"id": ["a"] * 3, "by": column})
        for field in (None, "{id}"):
            sink = RedisSink(server.url, type="counter", key=f"{name}-{field is None}", by="by", field=field)
            for epoch in (1, 2):
                assert write(sink, batch, epoch=epoch)
        found = float(reader.client.get(f"{name}-True")), float(reader.client.hget(f"{name}-False", "a"))
        assert found == pytest.approx((16, 16) if name == "int" else (0.502, 0.502))


def test_a_null_key_stops_the_job_or_is_left_out(server: RedisServer, reader: Reader) -> None:
    batch = pa.record_batch({"a": ["x", None, "z"], "v": [1, 2, 3]})
    with pytest.raises(RowsRejected, match="slot 0, row 1: a null in a column of its key"):
        write(RedisSink(server.url, key="s:{a}", value="v"), batch)
    assert reader.names() == []
    assert write(RedisSink(server.url, key="s:{a}", value="v", null_keys="skip", max_rows_per_script=1), batch)
    assert reader.names() == [b"s:x", b"s:z"]
    assert write(RedisSink(server.url, type="hash", key="h", field="{a}", value="v", null_keys="skip"), batch)
    assert reader.client.hgetall("h") == {b"x": b"1", b"z": b"3"}


@pytest.mark.parametrize(("type", "value"), [("zset", math.nan), ("counter", math.nan), ("counter", math.inf)])
def test_what_redis_cannot_order_or_add_stops_the_job(server: RedisServer, type: str, value: float) -> None:
    options = {"member": "{a}", "score": "v"} if type == "zset" else {"by": "v"}
    batch = pa.record_batch({"a": ["x", "y"], "v": [1.0, value]})
    with pytest.raises(RowsRejected, match="slot 0, row 1: 'v' is"):
        write(RedisSink(server.url, type=type, key="k", **options), batch)


def test_infinite_scores_are_scores(server: RedisServer, reader: Reader) -> None:
    batch = pa.record_batch({"a": ["x", "y"], "v": [math.inf, -math.inf]})
    assert write(RedisSink(server.url, type="zset", key="z", member="{a}", score="v"), batch)
    assert reader.client.zrange("z", 0, -1) == [b"y", b"x"]


def test_a_large_slot_arrives_whole_in_parts_of_every_size(server: RedisServer, reader: Reader) -> None:
    rows = 25_000
    batch = pa.record_batch({"id": range(rows), "v": range(rows)})
    for number, max_rows_per_script in enumerate((777, 10_000, None)):
        sink = RedisSink(
            server.url, key=f"{number}:{{id}}", value="v", max_rows_per_script=max_rows_per_script, name=str(number)
        )
        assert send(sink, slot_of(sink, batch.slice(0, 12_345), batch.slice(12_345)))
        keys = [f"{number}:{i}" for i in range(rows)]
        assert [int(value) for value in reader.client.mget(keys)] == list(range(rows))
        (receipt,) = (
            json.dumps(value.decode().split(" ")[1:3])
            for value in reader.client.hvals(f"onceward:receipts:page%20views:{number}")
        )
        assert receipt == f'["{rows}", "in"]'
