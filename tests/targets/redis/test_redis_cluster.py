"""Redis Cluster: a slot's rows are spread over hash slots and servers, and each of them still goes in once."""

import random
import threading
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
import redis as driver
from redis_crash_points import crash_points, install_crash_points
from shapes import COUNTER, JOB, MARK, Reader, send, slot_of, write

from onceward.connections.redis import hash_slot, tags
from onceward.contracts import TryAgain
from onceward.errors import CheckpointRolledBack, OncewardError, OutputLost, RowsRejected, TargetRefused
from onceward.sinks import RedisSink
from onceward.sinks.redis import apply, receipts
from onceward.testing import CrashAt, Crashed, Harness, Source
from onceward.testing.faults import shown
from onceward.testing.servers import RedisCluster

SEED = 20261115

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def counter(cluster: RedisCluster, *, name: str = "redis", **options: Any) -> RedisSink:
    return RedisSink(cluster.url, type="counter", key="count:{key}", name=name, **options)


def totals(reader: Reader, keys: range) -> list[int]:
    return [int(reader.client.get(f"count:{key}") or 0) for key in keys]


def test_hash_slots_are_those_of_the_server(cluster: RedisCluster, cluster_reader: Reader) -> None:
    for key in (b"", b"a", b"{a}b", b"{}a", b"x{a}{b}", b"{a", b"}{", b"\xff\x00{\n}", "数{é}".encode(), b"{{a}}"):
        assert hash_slot(key) == cluster_reader.client.keyslot(key), key
    assert [hash_slot(f"x:{{{tag}}}".encode()) for tag in tags()] == list(range(16384))


def test_rows_of_all_servers_arrive_once(cluster: RedisCluster, cluster_reader: Reader) -> None:
    """Also with parts smaller than a hash slot's share of the rows, and when it is sent again."""
    batch = pa.record_batch({"key": [i % 500 for i in range(2000)]})
    for max_rows_per_script in (None, 3):
        sink = counter(cluster, max_rows_per_script=max_rows_per_script, name=f"redis {max_rows_per_script}")
        for _ in range(2):
            assert write(sink, batch)
        assert [receipt.slot for receipt in sink.receipts(JOB)] == [0]
    assert totals(cluster_reader, range(500)) == [8] * 500


def test_a_hash_slot_alone_refuses_what_it_has(
    cluster: RedisCluster, cluster_reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot's own receipt is not asked: two drivers, or one that died before it could write it."""
    sink = counter(cluster)
    batch = pa.record_batch({"key": list(range(50))})
    for epoch in range(3):
        assert write(sink, batch, epoch=epoch)
    monkeypatch.setattr(receipts, "rows_in", lambda client, slots, scope: [0] * len(slots))
    for node in cluster.nodes:
        with driver.Redis.from_url(node.url) as client, suppress(driver.ResponseError):
            client.delete("onceward:receipts:page%20views:redis")
    for epoch in range(3):
        assert write(sink, batch, epoch=epoch)
    assert totals(cluster_reader, range(50)) == [3] * 50


def test_receipts_of_hash_slots_do_not_pile_up(cluster: RedisCluster, cluster_reader: Reader) -> None:
    sink = counter(cluster)
    for epoch in range(5):
        assert write(sink, pa.record_batch({"key": [1]}), epoch=epoch)
    tag = tags()[hash_slot(b"count:1")]
    kept = cluster_reader.client.hgetall(f"onceward:receipts:page%20views:redis:{{{tag}}}")
    assert sorted(kept) == [b"aaaaaaaa/4/0", b"aaaaaaaa/settled"]


def test_two_drivers_that_publish_at_once_count_each_row_once(cluster: RedisCluster, cluster_reader: Reader) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    epochs = [pa.record_batch({"key": [chance.randrange(100) for _ in range(300)]}) for _ in range(10)]
    together, failures = threading.Barrier(2), list[BaseException]()

    def publish(max_rows_per_script: int) -> None:
        sink = counter(cluster, max_rows_per_script=max_rows_per_script)
        try:
            for epoch, batch in enumerate(epochs):
                together.wait(60)
                while not send(sink, slot_of(sink, batch, epoch=epoch), epoch=epoch):
                    pass
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=publish, args=(rows,)) for rows in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sum(totals(cluster_reader, range(100))) == 3000


def test_a_crash_at_any_point_on_a_cluster(
    cluster: RedisCluster, cluster_reader: Reader, monkeypatch: pytest.MonkeyPatch, record_sweep: list[str]
) -> None:
    install_crash_points(monkeypatch)

    def world() -> Harness:
        for node in cluster.nodes:
            with driver.Redis.from_url(node.url) as client:
                client.flushall()
        return Harness(COUNTER.subject(cluster.url, cluster_reader, check=False), source=Source(ends=(4, 6), keys=2))

    def life(harness: Harness, point: int | None) -> CrashAt:
        faults = CrashAt(point)
        with crash_points(faults):
            ending = harness.life(faults)
        assert point is None or isinstance(ending, Crashed)
        return faults

    points = life(world(), None).points
    for point in range(points):
        harness = world()
        life(harness, point)
        harness.drain()
        assert not harness.problems(), f"crash at {point}: {harness.problems()}\n{shown(harness.trace)}"
    record_sweep.append(f"counter on a cluster: {points} crash points")


def test_a_decision_that_is_lost_while_a_group_is_in_does_not_repeat_it(
    cluster: RedisCluster, cluster_reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot's own receipt is begun before its first group, so the epoch is finished and not computed again."""
    install_crash_points(monkeypatch)
    monkeypatch.setattr(apply, "_CALLS_AT_ONCE", 1)
    tried = 0
    for point in range(1, 200, 2):
        for node in cluster.nodes:
            with driver.Redis.from_url(node.url) as client:
                client.flushall()
        subject = COUNTER.subject(cluster.url, cluster_reader, check=False)
        harness = Harness(subject, source=Source(ends=(4,), keys=2))
        faults = CrashAt(point)
        with crash_points(faults):
            harness.life(faults)
        if not faults.dead:
            break
        if 0 < len(COUNTER.read(cluster_reader)) < 4 and harness.logs.is_committed(0):
            harness.logs.forget_commit(0)
            tried += 1
        harness.drain()
        assert not harness.problems(), f"crash at {point}: {harness.problems()}\n{shown(harness.trace)}"
    assert tried >= 2


def test_a_hash_slot_on_the_move_is_waited_for(cluster: RedisCluster, cluster_reader: Reader) -> None:
    """While it moves the script finds keys missing, before its first write; afterwards the rows go to the new place."""
    sink = RedisSink(cluster.url, type="counter", key="{{move}}:{key}", name="redis")
    assert write(sink, pa.record_batch({"key": ["a", "b"]}))
    slot = hash_slot(b"{move}")
    clients = [driver.Redis.from_url(node.url) for node in cluster.nodes]
    ids = [client.execute_command("CLUSTER MYID").decode() for client in clients]
    home = next(
        at for at, (first, last) in enumerate([(0, 5460), (5461, 10922), (10923, 16383)]) if first <= slot <= last
    )
    there = (home + 1) % 3
    clients[there].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[home])
    clients[home].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[there])
    later = slot_of(sink, pa.record_batch({"key": ["a", "new"]}), epoch=8)
    try:
        with pytest.raises(TryAgain):
            send(sink, later, epoch=8)
        assert clients[home].get("{move}:a") == b"1", "nothing of the group is in"
    finally:
        for key in clients[home].execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
            clients[home].execute_command("MIGRATE", "127.0.0.1", cluster.nodes[there].port, key, 0, 5000)
        for client in clients:
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[there])
    while not send(sink, later, epoch=8):
        pass
    found = [clients[there].get(f"{{move}}:{key}") for key in ("a", "b", "new")]
    assert found == [b"2", b"1", b"1"]
    for client in clients:
        client.close()


@pytest.mark.parametrize("max_rows_per_script", [1, 3, 4, None])
def test_a_slot_that_is_partly_in_goes_on_with_parts_of_another_size(
    cluster: RedisCluster, cluster_reader: Reader, max_rows_per_script: int | None
) -> None:
    keys = [f"{{x}}{number}" for number in range(9)]
    cluster_reader.client.rpush(keys[5], "in the way")
    batch = pa.record_batch({"key": keys})
    sink = RedisSink(cluster.url, type="counter", key="{key}", name="redis", max_rows_per_script=2)
    with pytest.raises(RowsRejected):
        write(sink, batch)
    assert [cluster_reader.client.get(key) for key in keys[:4]] == [b"1"] * 4, "two parts of five are in"
    cluster_reader.client.delete(keys[5])
    assert write(
        RedisSink(cluster.url, type="counter", key="{key}", name="redis", max_rows_per_script=max_rows_per_script),
        batch,
    )
    assert [cluster_reader.client.get(key) for key in keys] == [b"1"] * 9


@pytest.mark.parametrize(
    ("receipt", "error", "says"),
    [("eeeeeeeeeeeeeee2 2 in", CheckpointRolledBack, "another epoch 7"), (f"{MARK} 0 torn", OutputLost, "broke off")],
    ids=["of other rows", "torn"],
)
@pytest.mark.parametrize("asks", ["sends", "looks for rejected rows"])
def test_a_hash_slot_whose_receipt_proves_nothing_is_not_passed_over_by_parts_of_another_size(
    cluster: RedisCluster, cluster_reader: Reader, asks: str, receipt: str, error: type[OncewardError], says: str
) -> None:
    """The first hash slot is partly in, by parts of two; so its neighbour's receipt is read before parts of three."""
    first, second = (f"{{{tags()[number]}}}" for number in (100, 200))
    batch = pa.record_batch({"key": [*(f"{first}{number}" for number in range(9)), f"{second}a", f"{second}b"]})
    cluster_reader.client.rpush(f"{first}5", "in the way")
    with pytest.raises(RowsRejected):
        write(RedisSink(cluster.url, type="counter", key="{key}", name="redis", max_rows_per_script=2), batch)
    cluster_reader.client.delete(f"{first}5")
    kept = f"onceward:receipts:page%20views:redis:{second}"
    assert cluster_reader.client.hget(kept, "aaaaaaaa/7/0").startswith(f"{MARK} 2 in".encode())
    cluster_reader.client.hset(kept, "aaaaaaaa/7/0", f"{receipt} 2026-01-01T00:00:00+00:00")
    sink = RedisSink(cluster.url, type="counter", key="{key}", name="redis", max_rows_per_script=3)
    with pytest.raises(error, match=says) as caught:
        send(sink, slot_of(sink, batch)) if asks == "sends" else sink.find_rejected([slot_of(sink, batch)], JOB, 7)
    assert (caught.value.sink, caught.value.epoch) == ("redis", 7)


def test_a_database_number_is_refused(cluster: RedisCluster) -> None:
    sink = RedisSink(cluster.url.replace("/0", "/3"), type="counter", key="count:{key}")
    with pytest.raises(TargetRefused):
        sink.check(pa.schema([("key", pa.int64())]), output_mode="append")
