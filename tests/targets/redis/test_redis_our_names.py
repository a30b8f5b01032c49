"""Scenario 93: a row whose key is one of our own would destroy receipts. It is refused, named, and divertible."""

from typing import Any

import pyarrow as pa
import pytest
from shapes import JOB, Reader, send, slot_of, write

from onceward.connections.redis import hash_slot, tags
from onceward.errors import ConfigurationError, RowsRejected
from onceward.sinks import RedisSink
from onceward.testing.servers import RedisCluster, RedisServer

OWN_KEYS = (
    "onceward:receipts:page%20views:other",
    "onceward:receipts:page%20views:redis",
    "onceward:receipts:",
    "onceward:checkpoints:a:b:c",
    "team:receipts:page%20views:redis",
    "team:checkpoints:a:b:c",
    "onceward:receipts:page%20views:redis:{12}",
)
SHAPES: dict[str, dict[str, Any]] = {
    "string": {"value": "v"},
    "hash": {"type": "hash", "fields": ["v"]},
    "field": {"type": "hash", "field": "{v}", "value": "v"},
    "zset": {"type": "zset", "member": "{v}", "score": "v"},
    "counter": {"type": "counter"},
    "delete": {"value": "v", "deleted": "gone"},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("key", OWN_KEYS)
def test_a_row_whose_key_is_one_of_ours_is_rejected_and_named(
    server: RedisServer, reader: Reader, key: str, shape: str
) -> None:
    sink = RedisSink(server.url, key="{k}", receipts_prefix="team", name="redis", **SHAPES[shape])
    batch = pa.record_batch({"k": ["a", key, "b"], "v": [1, 2, 3], "gone": [False, True, False]})
    with pytest.raises(RowsRejected, match=r"slot 0, row 1: its key .* is one of onceward's own"):
        write(sink, batch)
    assert list(reader.client.scan_iter("*")) == []
    ((row, why),) = [(row.row, row.why) for row in sink.find_rejected([slot_of(sink, batch)], JOB, 7)]
    assert (row, "one of onceward's own" in why) == (1, True)
    assert write(sink, batch.filter(pa.array([True, False, True])))


def test_receipts_of_a_sink_with_another_prefix_are_known_by_what_they_hold(
    server: RedisServer, reader: Reader
) -> None:
    """Its prefix is nothing that this sink could know."""
    counter = RedisSink(server.url, type="counter", key="c", receipts_prefix="elsewhere", name="redis")
    rows = pa.record_batch({"k": ["x"] * 5, "v": [1] * 5})
    assert write(counter, rows)
    own = "elsewhere:receipts:page%20views:redis"
    before = reader.client.dump(own)
    for shape, options in SHAPES.items():
        sink = RedisSink(server.url, key="{k}", name=shape, **options)
        batch = pa.record_batch({"k": ["a", own], "v": [1, 2], "gone": [False, True]})
        with pytest.raises(RowsRejected, match="it holds receipts of onceward"):
            write(sink, batch)
        assert [row.row for row in sink.find_rejected([slot_of(sink, batch)], JOB, 7)] == [1]
    assert reader.client.dump(own) == before
    assert write(counter, rows)
    assert reader.client.get("c") == b"5"


def test_keys_that_only_look_like_ours_are_written(server: RedisServer, reader: Reader) -> None:
    keys = ["shop:receipts:1", "onceward:receipt", "xonceward:receipts:a:b", "a:checkpoints:b"]
    reader.client.hset("shop:receipts:1", mapping={"total": "9"})
    sink = RedisSink(server.url, key="{k}", value="v", name="redis")
    assert write(sink, pa.record_batch({"k": keys, "v": keys}))
    assert [reader.client.get(key) for key in keys] == [key.encode() for key in keys]


@pytest.mark.parametrize("prefix", ["onceward", "team"])
@pytest.mark.parametrize("what", ["receipts", "checkpoints"])
def test_a_template_that_can_only_give_such_keys_is_refused(prefix: str, what: str) -> None:
    for template in (f"{prefix}:{what}:{{k}}", f"{prefix}:{what}:a:b"):
        with pytest.raises(ConfigurationError, match="among the receipts and checkpoints") as refused:
            RedisSink("redis://127.0.0.1:1/0", key=template, value="v", receipts_prefix="team")
        assert refused.value.hint


def test_in_a_cluster_the_receipts_of_a_hash_slot_are_ours_too(cluster: RedisCluster, cluster_reader: Reader) -> None:
    sink = RedisSink(cluster.url, type="counter", key="{k}", name="redis")
    assert write(sink, pa.record_batch({"k": ["a"]}))
    own = f"onceward:receipts:page%20views:redis:{{{tags()[hash_slot(b'a')]}}}"
    assert cluster_reader.client.exists(own)
    with pytest.raises(RowsRejected, match="one of onceward's own"):
        write(RedisSink(cluster.url, key="{k}", value="v", name="other"), pa.record_batch({"k": [own], "v": [1]}))
    assert write(sink, pa.record_batch({"k": ["a"]}))
    assert cluster_reader.client.get("a") == b"1"


def test_another_sinks_receipts_survive_and_its_counter_stays_right(server: RedisServer, reader: Reader) -> None:
    """The job beside it had removed them, and the counter counted ten instead of five."""
    counter = RedisSink(server.url, type="counter", key="count", name="counter")
    five = slot_of(counter, pa.record_batch({"n": [1] * 5}))
    assert send(counter, five)
    hostile = RedisSink(server.url, key="{k}", value="v", name="redis")
    gone = pa.record_batch({"k": ["onceward:receipts:page%20views:counter"], "v": pa.array([None], pa.int64())})
    with pytest.raises(RowsRejected):
        write(hostile, gone)
    assert send(counter, five)
    assert reader.client.get("count") == b"5"
