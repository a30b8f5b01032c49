"""Scenario 55 on Redis: rows that it does not take are found by looking, named, and can be diverted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapes import JOB, Reader, Row, send, slot_of, write

from onceward.admin import divert_poison, find_poison
from onceward.contracts import TryAgain
from onceward.epoch import RunContext
from onceward.errors import RowsRejected
from onceward.recovery import look_at
from onceward.sinks import RedisSink
from onceward.testing import Failed, Finished, Harness, SinkUnderTest, Source
from onceward.testing.servers import RedisCluster, RedisServer

BAD = (3, 7, 8)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(params=["server", "cluster"])
def target(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """The URL of either, and a client that knows where the keys are."""
    if request.param == "server":
        server: RedisServer = request.getfixturevalue("server")
        with driver.Redis.from_url(server.url) as client:
            yield server.url, client
    else:
        cluster: RedisCluster = request.getfixturevalue("cluster")
        with driver.RedisCluster.from_url(cluster.url) as client:
            yield cluster.url, client


def context_of(harness: Harness) -> RunContext:
    context, _ = look_at(
        sinks=harness.sinks,
        storage=harness.storage,
        decisions=harness.logs,
        directory_id=harness.directory_id,
        clock=harness.clock,
    )
    return context


def counted(client: Any, tag: str) -> dict[int, int]:
    """How often each id was counted, where that can be read."""
    keys = {number: f"n:{number}{tag}" for number in range(20)}
    held = {number: client.get(key) for number, key in keys.items() if client.type(key) == b"string"}
    return {number: int(value) for number, value in held.items()}


# In a cluster a tag brings all keys into one hash slot, so that the rows of one group come in several parts.
@pytest.mark.parametrize("tag", ["", "{x}"], ids=["spread", "together"])
@pytest.mark.parametrize("max_rows_per_script", [1, 3, None])
def test_rejected_rows_stop_the_epoch_are_named_and_after_a_diversion_the_rest_arrives_once(
    target: tuple[str, Any], max_rows_per_script: int | None, tag: str, tmp_path: Path
) -> None:
    """With small parts the epoch is half delivered when it stops; what is in is not counted again."""
    url, client = target
    for number in BAD:
        client.rpush(f"n:{number}{tag}", "somebody's list")
    braced = tag.replace("{", "{{").replace("}", "}}")
    sink = RedisSink(
        url, type="counter", key=f"n:{{id}}{braced}", max_rows_per_script=max_rows_per_script, name="redis"
    )

    def read() -> list[Row]:
        return [{"id": number} for number, times in counted(client, tag).items() for _ in range(times)]

    harness = Harness(SinkUnderTest(sink, read, ordered=False), source=Source(ends=(12, 20), keys=3), rows_in_a_batch=4)
    for _ in range(2):
        ending = harness.life()
        assert isinstance(ending, Failed)
        assert isinstance(ending.error, RowsRejected)
        assert (ending.error.epoch, ending.error.sink) == (0, "redis")
        assert "holds a list, not a string" in str(ending.error)
        assert "onceward poison" in str(ending.error.hint)
    before = counted(client, tag)
    assert set(before.values()) <= {1}
    assert before or max_rows_per_script != 1, "half delivered"
    context = context_of(harness)
    found = find_poison(context)
    assert sorted(row.values["id"] for row in found) == list(BAD)
    assert all(f"n:{row.values['id']}{tag}" in row.why and "holds a list" in row.why for row in found)
    assert counted(client, tag) == before, "looking changes nothing"
    (path,) = divert_poison(context, tmp_path)
    assert len(path.read_text().splitlines()) == len(BAD)
    assert isinstance(harness.life(), Finished)
    assert counted(client, tag) == {number: 1 for number in range(20) if number not in BAD}
    assert find_poison(context_of(harness)) == []


def rejected(sink: RedisSink, *batches: pa.RecordBatch, epoch: int = 7) -> list[tuple[int, str]]:
    found = sink.find_rejected([slot_of(sink, *batches, epoch=epoch)], JOB, epoch)
    assert all(row.slot == 0 for row in found)
    return [(row.row, row.why) for row in found]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"type": "zset", "key": "z", "member": "{a}", "score": "v"}, "'v' is nan, which Redis cannot order by"),
        ({"type": "counter", "key": "c:{a}", "by": "v"}, "'v' is nan, which Redis cannot add"),
        ({"key": "s:{n}", "value": "v"}, "a null in a column of its key"),
        ({"type": "hash", "key": "h", "field": "{n}", "value": "v"}, "a null in a column of its member"),
    ],
    ids=["score", "amount", "null in a key", "null in a field"],
)
def test_a_value_that_redis_has_no_place_for_is_named_with_its_row(
    server: RedisServer, reader: Reader, options: dict[str, Any], said: str
) -> None:
    sink = RedisSink(server.url, name="redis", **options)
    v = pa.array([1.0, None, 3.0, math.nan, 5.0])
    batch = pa.record_batch({"a": ["p", "q", "r", "s", "t"], "n": ["p", "q", "r", None, "t"], "v": v})
    with pytest.raises(RowsRejected, match=f"slot 0, row 3: {said}"):
        write(sink, batch)
    ((row, why),) = rejected(sink, batch.slice(0, 2), batch.slice(2))
    assert row == 3
    assert why.startswith(said)
    assert reader.names() == []
    assert write(sink, batch.filter(pa.array([True, True, True, False, True])))


def test_rows_with_null_keys_that_are_left_out_are_not_rejected(server: RedisServer) -> None:
    sink = RedisSink(server.url, key="s:{a}", value="v", null_keys="skip", name="redis")
    batch = pa.record_batch({"a": ["x", None, "z"], "v": [1, 2, 3]})
    assert rejected(sink, batch) == []
    assert write(sink, batch)


def test_rows_that_are_in_are_not_rejected_whatever_became_of_their_keys(server: RedisServer, reader: Reader) -> None:
    sink = RedisSink(server.url, type="counter", key="c:{a}", name="redis")
    batch = pa.record_batch({"a": ["x", "y"]})
    assert write(sink, batch)
    reader.client.delete("c:x")
    reader.client.rpush("c:x", "somebody's list")
    assert rejected(sink, batch) == []
    assert [row for row, _ in rejected(sink, batch, epoch=8)] == [0]


def test_a_server_out_of_memory_is_not_the_fault_of_a_row(server: RedisServer, reader: Reader) -> None:
    sink = RedisSink(server.url, type="counter", key="c:{a}", name="redis")
    batch = pa.record_batch({"a": ["x", "y"]})
    reader.client.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(TryAgain, match=r"OOM|maxmemory"):
            send(sink, slot_of(sink, batch))
        assert rejected(sink, batch) == []
    finally:
        reader.client.config_set("maxmemory", "0")
    assert send(sink, slot_of(sink, batch))


# --- looking says what writing does -------------------------------------------------------------

KEYS = "abc"
HELD = st.sampled_from(
    [
        "list",
        "0",
        "7",
        "-12",
        "007",
        "many",
        "1.5",
        "1e3",
        "1e",
        "+4",
        "-0",
        str(2**61),
        str(2**62),
        str(-(2**63)),
        "9e299",
    ]
)
WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9) | st.sampled_from([2**61, -(2**61), 2**62 - 1, 2**62])
FRACTIONS = st.floats() | st.sampled_from([0.5, -2.5, math.nan, math.inf, 9e299, -9e299])
VARIANTS: dict[str, dict[str, Any]] = {
    "counter": {"type": "counter", "key": "k:{a}", "by": "v"},
    "rows": {"type": "counter", "key": "k:{a}"},
    "fields": {"type": "counter", "key": "k:{a}", "field": "{b}", "by": "v"},
    "set": {"type": "zset", "key": "k:{a}", "member": "{b}", "score": "v"},
    "hash": {"type": "hash", "key": "k:{a}", "fields": ["v"]},
    "string": {"key": "k:{a}", "value": "v"},
}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, str], pa.RecordBatch, str]:
    """What some keys hold before, rows for them, and how they are written."""
    variant = draw(st.sampled_from(sorted(VARIANTS)))
    held = draw(st.dictionaries(st.sampled_from(KEYS), HELD, max_size=3))
    count = draw(st.integers(1, 8))
    column = st.lists(st.sampled_from(KEYS) | st.none(), min_size=count, max_size=count)
    kind, values = draw(st.sampled_from([(pa.int64(), WHOLE), (pa.float64(), FRACTIONS)]))
    amounts = draw(st.lists(st.none() | values, min_size=count, max_size=count))
    rows = pa.record_batch(
        {
            "a": pa.array(draw(column), pa.string()),
            "b": pa.array(draw(column), pa.string()),
            "v": pa.array(amounts, kind),
        }
    )
    return held, rows, variant


@settings(max_examples=150, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(world=worlds())
def test_what_is_named_is_rejected_and_without_it_the_rest_is_taken(
    server: RedisServer, reader: Reader, world: tuple[dict[str, str], pa.RecordBatch, str]
) -> None:
    held, rows, variant = world
    sink = RedisSink(server.url, name="redis", **VARIANTS[variant])
    reader.client.flushdb()
    for key, value in held.items():
        if value == "list":
            reader.client.rpush(f"k:{key}", value)
        elif variant == "fields":
            reader.client.hset(f"k:{key}", mapping=dict.fromkeys(KEYS, value))
        else:
            reader.client.set(f"k:{key}", value)
    before = {key: reader.client.dump(key) for key in reader.names()}
    named = {row for row, _ in rejected(sink, rows)}
    assert {key: reader.client.dump(key) for key in reader.names()} == before
    kept = pa.array([number not in named for number in range(rows.num_rows)])
    assert send(sink, slot_of(sink, rows.filter(kept)))
    if named:
        for key in reader.names():
            reader.client.delete(key)
        for key, dumped in before.items():
            reader.client.restore(key, 0, dumped)
        with pytest.raises(RowsRejected):
            send(sink, slot_of(sink, rows.slice(0, max(named) + 1), epoch=8), epoch=8)
