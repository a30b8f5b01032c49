"""What the promises rest on in the server: looked at before the start, and again in the step that relies on it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import redis as driver
from shapes import COUNTER, JOB, Reader, send, slot_of, write

from onceward.contracts import Severity, TryAgain, Workload
from onceward.errors import TargetChanged, TargetRefused
from onceward.sinks import RedisSink
from onceward.testing import Behaviour, Failed, Harness, Source
from onceward.testing.servers import RedisCluster, RedisServer

BATCH = pa.record_batch({"k": ["a", "b"]})
SETTINGS = {"maxmemory-policy": "noeviction", "appendonly": "yes", "min-replicas-to-write": "0", "maxmemory": "0"}
NEEDS = Workload(slots=1, unpublished_epochs=1)


@pytest.fixture
def settings(server: RedisServer, reader: Reader) -> Iterator[Any]:
    yield reader.client.config_set
    for name, value in SETTINGS.items():
        reader.client.config_set(name, value)


def counter(url: str, **options: Any) -> RedisSink:
    return RedisSink(url, type="counter", key="c:{k}", name="redis", **options)


def findings(sink: RedisSink) -> dict[str, tuple[Severity, str]]:
    return {found.about: (found.severity, found.detail + (found.fix or "")) for found in sink.diagnose(NEEDS)}


def test_the_facts_are_named_for_a_person(server: RedisServer, settings: Any) -> None:
    assert counter(server.url).target_facts() == {"maxmemory-policy": "noeviction", "append-only file": "on"}
    settings("appendonly", "no")
    settings("maxmemory-policy", "volatile-ttl")
    assert counter(server.url).target_facts() == {"maxmemory-policy": "volatile-ttl", "append-only file": "off"}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy was noeviction and is allkeys-lru"),
        ("maxmemory-policy", "volatile-lru", "maxmemory-policy was noeviction and is volatile-lru"),
        ("appendonly", "no", "append-only file was on and is off"),
    ],
)
def test_a_change_in_mid_run_stops_the_job_before_anything_is_written(
    server: RedisServer, reader: Reader, settings: Any, name: str, value: str, said: str
) -> None:
    sink = counter(server.url)
    assert write(sink, BATCH)
    settings(name, value)
    for _ in range(2):
        with pytest.raises(TargetChanged, match=said) as changed:
            send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)
        assert (changed.value.epoch, changed.value.sink) == (8, "redis")
        assert changed.value.hint
    assert reader.client.get("c:a") == b"1"
    settings(name, SETTINGS[name])
    assert send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)
    assert reader.client.get("c:a") == b"2"


def test_a_journal_that_is_new_stops_nothing(server: RedisServer, settings: Any) -> None:
    settings("appendonly", "no")
    sink = counter(server.url)
    assert write(sink, BATCH)
    settings("appendonly", "yes")
    assert send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)


def test_a_sink_that_was_never_checked_takes_the_facts_at_its_first_use(server: RedisServer, settings: Any) -> None:
    settings("maxmemory-policy", "volatile-lru")
    sink = counter(server.url)
    assert send(sink, slot_of(sink, BATCH))
    settings("maxmemory-policy", "noeviction")
    with pytest.raises(TargetChanged):
        send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)


def test_a_job_that_ends_so_starts_again_after_the_server_was_put_right(
    server: RedisServer, reader: Reader, settings: Any
) -> None:
    harness = Harness(COUNTER.subject(server.url, reader), source=Source(ends=(4, 8)))

    def loosen(epoch: int) -> bool:
        if epoch == 1:
            settings("maxmemory-policy", "allkeys-lru")
        return True

    ending = harness.life(behaviour=Behaviour(publishes=loosen))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, TargetChanged)
    with pytest.raises(TargetRefused, match="allkeys-lru"):
        COUNTER.sink(server.url)
    settings("maxmemory-policy", "noeviction")
    harness.drain()
    assert harness.problems() == []


def test_each_server_of_a_cluster_is_looked_at(cluster: RedisCluster, cluster_reader: Reader) -> None:
    """At the start, and in the first step of an epoch that it takes part in."""
    sink = counter(cluster.url)
    spread = pa.record_batch({"k": [str(number) for number in range(60)]})
    assert write(sink, spread)
    with driver.Redis.from_url(cluster.nodes[2].url) as client:
        client.config_set("maxmemory-policy", "allkeys-random")
        try:
            with pytest.raises(TargetRefused, match="allkeys-random"):
                counter(cluster.url).check(spread.schema, output_mode="append")
            with pytest.raises(TargetChanged, match="allkeys-random"):
                send(sink, slot_of(sink, spread, epoch=8), epoch=8)
            client.config_set("maxmemory-policy", "volatile-lru")
            mixed = counter(cluster.url)
            mixed.check(spread.schema, output_mode="append")
            assert mixed.target_facts()["maxmemory-policy"] == "noeviction, volatile-lru"
            while not send(mixed, slot_of(mixed, spread, epoch=8), epoch=8):
                pass
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert {cluster_reader.client.get(f"c:{number}") for number in range(60)} == {b"2"}


def test_the_facts_cost_no_round_trip_of_their_own(server: RedisServer, reader: Reader) -> None:
    """One for INFO (is it a cluster?), one for the receipts, one for the script's text, one for each part."""
    sink = counter(server.url, max_rows_per_script=1)
    assert write(sink, BATCH)
    before = reader.client.info("commandstats")
    assert send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)
    after = reader.client.info("commandstats")
    calls = {
        name.removeprefix("cmdstat_"): stats["calls"] - before.get(name, {"calls": 0})["calls"]
        for name, stats in after.items()
    }
    assert {name: calls[name] for name in ("evalsha", "hmget", "script|load")} == {
        "evalsha": 2,
        "hmget": 1,
        "script|load": 1,
    }
    # Ours when the connection is opened, two inside the script of the first part, and this test's own.
    assert calls["info"] == 4
    assert not calls.get("config|get"), "other tests of this server may have asked"


def test_doctor_says_what_the_settings_mean(server: RedisServer, settings: Any) -> None:
    fine = findings(counter(server.url))
    assert {about for about, (severity, _) in fine.items() if severity is Severity.OK} >= {
        "maxmemory-policy",
        "replicas",
    }
    assert fine["appendfsync"] == (Severity.WARNING, fine["appendfsync"][1])
    settings("appendonly", "no")
    severity, detail = findings(counter(server.url))["append-only file"]
    assert (severity, "CONFIG SET appendonly yes" in detail) == (Severity.WARNING, True)
    settings("maxmemory-policy", "volatile-lru")
    assert findings(counter(server.url))["maxmemory-policy"][0] is Severity.OK
    assert findings(counter(server.url, ttl_s=60))["maxmemory-policy"][0] is Severity.WARNING
    settings("maxmemory-policy", "allkeys-lfu")
    assert findings(counter(server.url))["maxmemory-policy"][0] is Severity.ERROR


def test_doctor_says_what_a_fail_over_can_lose(server: RedisServer, redis: RedisServer, settings: Any) -> None:
    with driver.Redis.from_url(redis.url) as replica:
        replica.execute_command("REPLICAOF", "127.0.0.1", server.port)
        try:
            with driver.Redis.from_url(server.url) as client:
                while not client.info("replication")["connected_slaves"]:
                    client.ping()
            severity, detail = findings(counter(server.url))["replicas"]
            assert (severity, "min-replicas-to-write 1" in detail) == (Severity.WARNING, True)
            settings("min-replicas-to-write", "1")
            assert findings(counter(server.url))["replicas"][0] is Severity.OK
        finally:
            replica.execute_command("REPLICAOF", "NO", "ONE")
            replica.flushall()


def test_where_config_is_not_allowed_doctor_says_so_and_the_policy_is_known_all_the_same(
    server: RedisServer, reader: Reader, settings: Any
) -> None:
    reader.client.acl_setuser("who", enabled=True, nopass=True, categories=["+@all"], keys=["*"], commands=["-config"])
    url = f"redis://who:x@127.0.0.1:{server.port}/0"
    try:
        severity, detail = findings(counter(url))["settings"]
        assert (severity, "CONFIG GET is not allowed" in detail) == (Severity.WARNING, True)
        settings("maxmemory-policy", "allkeys-lru")
        with pytest.raises(TargetRefused, match="allkeys-lru"):
            counter(url).check(BATCH.schema, output_mode="append")
    finally:
        reader.client.acl_deluser("who")


def test_too_few_replicas_are_waited_for(server: RedisServer, reader: Reader, settings: Any) -> None:
    sink = counter(server.url)
    settings("min-replicas-to-write", "1")
    with pytest.raises(TryAgain, match="NOREPLICAS"):
        send(sink, slot_of(sink, BATCH))
    settings("min-replicas-to-write", "0")
    assert list(sink.receipts(JOB)) == []
    assert send(sink, slot_of(sink, BATCH))
    assert reader.client.get("c:a") == b"1"
