"""Scenario 95: what a script could stumble over is seen before its first write. Nothing is torn; the row is named."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import redis as driver
from shapes import JOB, Reader, send, slot_of, write

from onceward.errors import RowsRejected, TargetChanged, TargetRefused
from onceward.sinks import RedisSink
from onceward.testing.servers import RedisCluster, RedisServer

SHAPES: dict[str, dict[str, Any]] = {
    "string": {"value": "v"},
    "expiring": {"value": "v", "ttl_s": 100},
    "hash": {"type": "hash", "fields": ["v"]},
    "field": {"type": "hash", "field": "{v}", "value": "v"},
    "zset": {"type": "zset", "member": "{v}", "score": "v"},
    "counter": {"type": "counter"},
    "sum": {"type": "counter", "by": "x"},
    "fields": {"type": "counter", "field": "{v}"},
}
BATCH = pa.record_batch({"k": ["a", "b", "outside", "c"], "v": [1, 2, 3, 4], "x": [0.5] * 4})


class Users:
    """A user of the server, or of every server of a cluster, whose rights the test gives and takes."""

    def __init__(self, *urls: str) -> None:
        self.clients = [driver.Redis.from_url(url) for url in urls]
        self.url = urls[0].replace("redis://", "redis://who:x@")

    def may(self, *rules: str) -> None:
        for client in self.clients:
            client.execute_command("ACL", "SETUSER", "who", "reset", "on", "nopass", "+@all", "~onceward:*", *rules)


@pytest.fixture
def users(server: RedisServer) -> Iterator[Users]:
    users = Users(server.url)
    yield users
    for client in users.clients:
        client.acl_deluser("who")
        client.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("right", ["~", "%R~"], ids=["no right", "may only read"])
def test_a_key_outside_the_users_acl_is_a_rejected_row_and_no_torn_part(
    server: RedisServer, reader: Reader, users: Users, shape: str, right: str
) -> None:
    """A template such as {k} does not tell before the start which keys will come."""
    users.may("~a", "~b", "~c", f"{right}{'outside' if right == '%R~' else 'nothing'}")
    sink = RedisSink(users.url, key="{k}", name="redis", **SHAPES[shape])
    for _ in range(2):
        with pytest.raises(RowsRejected, match=r"'outside' cannot be written: this user may not run"):
            write(sink, BATCH)
    assert reader.names() == []
    assert list(sink.receipts(JOB)) == []
    (row,) = sink.find_rejected([slot_of(sink, BATCH)], JOB, 7)
    assert (row.row, "this user may not run" in row.why) == (2, True)
    assert send(sink, slot_of(sink, BATCH.filter(pa.array([True, True, False, True]))))
    assert reader.names() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_template_whose_keys_this_user_may_only_read_is_refused_at_the_start(
    users: Users, reader: Reader, shape: str
) -> None:
    sink = RedisSink(users.url, key="pv:{k}", name="redis", **SHAPES[shape])
    for rule in ("%R~pv:*", "~other:*"):
        users.may(rule)
        with pytest.raises(TargetRefused, match=r"may not run .* on keys such as 'pv:{k}'") as refused:
            sink.check(BATCH.schema, output_mode="append")
        assert "ACL" in str(refused.value.hint)
    users.may("~pv:*")
    sink.check(BATCH.schema, output_mode="append")
    assert list(reader.client.scan_iter("*")) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", ["resetkeys", "-@write", "-@all"])
def test_rights_that_are_taken_away_in_mid_run_stop_the_job_and_tear_nothing(
    reader: Reader, users: Users, shape: str, rule: str
) -> None:
    users.may("~pv:*")
    sink = RedisSink(users.url, key="pv:{k}", name="redis", **SHAPES[shape])
    assert write(sink, BATCH.slice(0, 2))
    before = {key: reader.client.dump(key) for key in reader.names()}
    again = ["resetkeys", "~onceward:*"] if rule == "resetkeys" else ["~pv:*", rule]
    users.may(*again)
    for _ in range(2):
        with pytest.raises(TargetChanged) as changed:
            send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)
        assert changed.value.hint
        assert (changed.value.epoch, changed.value.sink) == (8, "redis")
    assert {key: reader.client.dump(key) for key in reader.names()} == before
    users.may("~pv:*")
    assert send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)


def test_a_command_that_only_some_rows_need_is_asked_for_before_the_first_of_them(reader: Reader, users: Users) -> None:
    """HDEL is for nulls: the first row would have gone in, and the second would have torn the part."""
    users.may("~h:*", "-hdel")
    sink = RedisSink(users.url, type="hash", key="h:{id}", fields=["a"], name="redis")
    batch = pa.record_batch({"id": [1, 2, 3], "a": ["x", None, "z"]})
    with pytest.raises(TargetRefused, match="HDEL"):
        sink.check(batch.schema, output_mode="append")
    with pytest.raises(TargetChanged, match="HDEL"):
        send(sink, slot_of(sink, batch))
    assert reader.names() == []
    assert list(sink.receipts(JOB)) == []


@pytest.mark.parametrize("columns", [3_999, 4_100])
def test_more_columns_than_a_command_takes_at_once_are_written(
    server: RedisServer, reader: Reader, columns: int
) -> None:
    values = {f"c{number}": pa.array([str(number), None, str(number)]) for number in range(columns)}
    batch = pa.record_batch({"id": pa.array([1, 2, 3]), **values})
    reader.client.hset("h:2", mapping=dict.fromkeys(values, "old"))
    assert write(RedisSink(server.url, type="hash", key="h:{id}", name="redis"), batch)
    assert reader.client.hgetall("h:3") == {name.encode(): name[1:].encode() for name in values}
    assert not reader.client.exists("h:2")


def test_a_score_that_a_double_would_round_is_a_rejected_row(server: RedisServer, reader: Reader) -> None:
    """Reading it back would give another number, and nobody would have been told."""
    sink = RedisSink(server.url, type="zset", key="z", member="{m}", score="v", name="redis")
    whole = pa.record_batch({"m": list("abcd"), "v": pa.array([2**53, 2**60, 2**53 + 1, -5], pa.int64())})
    with pytest.raises(RowsRejected, match=r"slot 0, row 2: 'v' is 9007199254740993: scores are doubles") as refused:
        write(sink, whole)
    assert "cast it to double" in str(refused.value)
    assert reader.names() == []
    assert [row.row for row in sink.find_rejected([slot_of(sink, whole)], JOB, 7)] == [2]
    assert write(sink, whole.filter(pa.array([True, True, False, True])))
    assert [int(score) for _, score in reader.client.zrange("z", 0, -1, withscores=True)] == [-5, 2**53, 2**60]
    texts = ["0.1", "12345678901234.25", "0.12345678901234567"]
    decimals = pa.array(texts).cast(pa.decimal128(38, 17))
    small = pa.record_batch({"m": list("efg"), "v": decimals})
    with pytest.raises(RowsRejected, match=r"row 2: 'v' is 0\.12345678901234567"):
        write(sink, small, epoch=8)
    assert write(sink, small.slice(0, 2), epoch=8)
    assert [reader.client.zscore("z", member) for member in "ef"] == [0.1, 12345678901234.25]


def test_in_a_cluster_each_server_looks_first_too(cluster: RedisCluster, cluster_reader: Reader) -> None:
    users = Users(*(node.url for node in cluster.nodes))
    try:
        users.may("~a", "~b", "~c")
        sink = RedisSink(users.url, type="counter", key="{k}", name="redis")
        with pytest.raises(RowsRejected, match=r"'outside' cannot be written: this user may not run"):
            write(sink, BATCH)
        assert [row.row for row in sink.find_rejected([slot_of(sink, BATCH)], JOB, 7)] == [2]
        users.may("~*")
        while not send(sink, slot_of(sink, BATCH)):
            pass
        assert [cluster_reader.client.get(key) for key in ("a", "b", "c", "outside")] == [b"1"] * 4
    finally:
        for client in users.clients:
            client.acl_deluser("who")
            client.close()


def test_receipts_that_somebody_overwrote_are_said_to_be_so(server: RedisServer, reader: Reader) -> None:
    sink = RedisSink(server.url, type="counter", key="c:{k}", name="redis")
    assert write(sink, BATCH)
    own = "onceward:receipts:page%20views:redis"
    reader.client.set(own, "somebody's text")
    with pytest.raises(TargetChanged) as changed:
        send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)
    assert "key of the receipts" in str(changed.value.hint)


def test_an_error_that_nobody_knows_is_traced_to_its_row_without_a_write(
    server: RedisServer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script stumbles over a row for a reason that is in no rule; bisection finds it."""
    from onceward.sinks.redis import apply

    trap = "local function check_key(key)\n  if key == 'k:bad' then error('never heard of') end"
    strange = apply.APPLY.replace("local function check_key(key)", trap)
    assert strange != apply.APPLY
    monkeypatch.setattr(apply, "APPLY", strange)
    sink = RedisSink(server.url, type="counter", key="k:{k}", name="redis")
    keys = [str(number) for number in range(200)]
    keys[77] = keys[131] = "bad"
    batch = pa.record_batch({"k": keys})
    with pytest.raises(driver.ResponseError, match="never heard of"):
        write(sink, batch)
    assert reader.names() == []
    found = sink.find_rejected([slot_of(sink, batch.slice(0, 100), batch.slice(100))], JOB, 7)
    assert [(row.row, "never heard of" in row.why) for row in found] == [(77, True), (131, True)]
    assert reader.names() == []
    assert send(sink, slot_of(sink, batch.filter(pa.array([key != "bad" for key in keys]))))
