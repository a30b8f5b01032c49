"""Wrong options, servers and streams are refused before anything moves; and the password is never said."""

import builtins
import logging
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as driver
from shapes import JOB, Reader, send, slot_of, write

from onceward.committers import RedisCheckpointCommitter
from onceward.contracts import TryAgain, Workload
from onceward.errors import ConfigurationError, TargetChanged, TargetRefused, TargetUnavailable
from onceward.sinks import RedisSink
from onceward.spark.findings import log_findings
from onceward.testing import Behaviour, Harness, SinkUnderTest, Source
from onceward.testing.servers import RedisServer

HERE = "redis://127.0.0.1:6379/0"
SCHEMA = pa.schema([("app", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("gone", pa.bool_())])
SECRET = "s3cr3t-Pa55"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"type": "list"}, "unknown type"),
        ({"type": "string"}, "needs value"),
        ({"type": "zset", "member": "{app}"}, "needs score"),
        ({"type": "zset"}, "needs member and score"),
        ({"type": "hash", "field": "{app}"}, "needs value"),
        ({"type": "hash", "value": "n"}, "no use for value"),
        ({"type": "counter", "value": "n"}, "no use for value"),
        ({"type": "counter", "deleted": "gone"}, "no use for deleted"),
        ({"type": "string", "value": "n", "by": "n"}, "no use for by"),
        ({"type": "hash", "fields": ["n", "n"]}, "twice"),
        ({"value": "n", "key": ""}, "template"),
        ({"value": "n", "key": "pv:{}"}, "template"),
        ({"value": "n", "key": "pv:{app"}, "template"),
        ({"value": "n", "key": "pv:{app:>8}"}, "template"),
        ({"value": "n", "key": "pv:{app!r}"}, "template"),
        ({"type": "counter", "field": "{"}, "template"),
        ({"value": "n", "ttl_s": 0}, "ttl_s"),
        ({"value": "n", "ttl_s": -1}, "ttl_s"),
        ({"value": "n", "null_keys": "keep"}, "null_keys"),
        ({"value": "n", "max_rows_per_script": 0}, "max_rows_per_script"),
        ({"value": "n", "timeout_s": 0}, "timeout_s"),
        ({"value": "n", "receipts_prefix": ""}, "receipts_prefix"),
        ({"value": "n", "receipts_prefix": "a{b}"}, "receipts_prefix"),
        ({"value": "n", "key": "onceward:receipts:{app}"}, "among the receipts"),
        ({"value": "n", "name": "a/b"}, "name of a sink"),
    ],
)
def test_wrong_options_are_refused_with_a_hint(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        RedisSink(HERE, **{"key": "pv:{app}", **options})
    assert refused.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://host",
        f"redis://:{SECRET}/@host:port",
        f"redis://:{SECRET}/x@host",
        f"redis://:{SECRET}@host/db",
        f"redis://:{SECRET}@host:0",
        f"redis://:{SECRET}@host?decode_responses=true",
        f"redis://:{SECRET}@host?nonsense",
    ],
)
def test_wrong_urls_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RedisSink(url, key="pv:{app}", value="n")
    assert refused.value.hint
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "pv:{web}", "value": "n"}, "no column 'web', which key names"),
        ({"key": "pv:{app}", "value": "m"}, "no column 'm', which a value names"),
        ({"type": "hash", "key": "pv", "field": "{web}", "value": "n"}, "which field names"),
        ({"type": "zset", "key": "pv", "member": "{web}", "score": "n"}, "which member names"),
        ({"type": "zset", "key": "pv", "member": "{app}", "score": "app"}, "not a number"),
        ({"type": "counter", "key": "pv", "by": "app"}, "not a number"),
        ({"key": "pv:{app}", "value": "n", "deleted": "n"}, "not boolean"),
        ({"key": "pv:{app}", "value": "n", "deleted": "flag"}, "which deleted names"),
    ],
)
def test_streams_that_do_not_fit_are_refused(server: RedisServer, options: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetRefused, match=said) as refused:
        RedisSink(server.url, name="redis", **options).check(SCHEMA, output_mode="append")
    assert refused.value.hint
    assert refused.value.sink == "redis"


def test_columns_without_a_form_are_refused(server: RedisServer) -> None:
    sink = RedisSink(server.url, type="hash", key="h:{id}")
    with pytest.raises(TargetRefused, match="'d'"):
        sink.check(pa.schema([("id", pa.int64()), ("d", pa.duration("us"))]), output_mode="append")
    with pytest.raises(TargetRefused, match="no column is left"):
        sink.check(pa.schema([("id", pa.int64())]), output_mode="append")


def test_a_counter_refuses_whole_results_again_and_again(server: RedisServer) -> None:
    with pytest.raises(TargetRefused, match="complete"):
        RedisSink(server.url, type="counter", key="pv", by="n").check(SCHEMA, output_mode="complete")
    RedisSink(server.url, key="pv:{app}", value="n").check(SCHEMA, output_mode="complete")


def test_a_server_that_may_evict_receipts_is_refused(server: RedisServer, reader: Reader) -> None:
    sink = RedisSink(server.url, key="pv:{app}", value="n")
    try:
        for policy in ("allkeys-lru", "allkeys-lfu", "allkeys-random"):
            reader.client.config_set("maxmemory-policy", policy)
            with pytest.raises(TargetRefused, match=policy):
                sink.check(SCHEMA, output_mode="append")
        reader.client.config_set("maxmemory-policy", "volatile-lru")
        sink.check(SCHEMA, output_mode="append")
    finally:
        reader.client.config_set("maxmemory-policy", "noeviction")


def test_a_server_without_memory_refuses_the_whole_part(server: RedisServer, reader: Reader) -> None:
    """And takes it, once, when there is memory again."""
    sink = RedisSink(server.url, type="counter", key="c:{app}", name="redis")
    batch = pa.record_batch({"app": [str(i) for i in range(100)]})
    try:
        reader.client.config_set("maxmemory", "1mb")
        with pytest.raises(TryAgain, match=r"OOM|maxmemory"):
            send(sink, slot_of(sink, batch))
        assert list(reader.client.scan_iter("*")) == []
    finally:
        reader.client.config_set("maxmemory", "0")
    assert send(sink, slot_of(sink, batch))
    assert len(reader.names()) == 100


def test_a_server_without_a_journal_is_warned_of_once(
    server: RedisServer, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """A start checks its sinks, and then logs what they find: saying it in both would be saying it twice."""
    caplog.set_level(logging.WARNING, logger="onceward")
    sink = RedisSink(server.url, key="pv:{app}", value="n")

    def warned() -> list[str]:
        caplog.clear()
        sink.check(SCHEMA, output_mode="append")
        log_findings((sink,), Workload(slots=1, unpublished_epochs=1))
        return [record.getMessage() for record in caplog.records if "append-only file" in record.getMessage()]

    assert warned() == []
    try:
        reader.client.config_set("appendonly", "no")
        said = warned()
    finally:
        reader.client.config_set("appendonly", "yes")
    assert len(said) == 1
    assert "off: a server that stops forgets" in said[0]


def test_a_server_that_is_not_there_is_named_by_its_address() -> None:
    with pytest.raises(TargetUnavailable, match=r"127.0.0.1:1\b"):
        RedisSink(f"redis://:{SECRET}@127.0.0.1:1/0", key="pv:{app}", value="n").check(SCHEMA, output_mode="append")


def test_a_wrong_password_is_no_server_that_is_away(server: RedisServer) -> None:
    sink = RedisSink(f"redis://nobody:{SECRET}@127.0.0.1:{server.port}/0", key="pv:{app}", value="n")
    with pytest.raises(TargetRefused, match="AuthenticationError"):
        sink.check(SCHEMA, output_mode="append")


def test_a_replica_is_refused(server: RedisServer, redis: RedisServer, reader: Reader) -> None:
    reader.client.execute_command("REPLICAOF", "127.0.0.1", redis.port)
    try:
        with pytest.raises(TargetRefused, match="replica"):
            RedisSink(server.url, key="pv:{app}", value="n").check(SCHEMA, output_mode="append")
    finally:
        reader.client.execute_command("REPLICAOF", "NO", "ONE")


def test_a_key_of_another_type_is_refused_at_the_start(server: RedisServer, reader: Reader) -> None:
    reader.client.rpush("board", "x")
    with pytest.raises(TargetRefused, match="holds a list"):
        RedisSink(server.url, type="zset", key="board", member="{app}", score="n").check(SCHEMA, output_mode="append")


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"key": "pv:{app}", "value": "n"}, "set"),
        ({"key": "pv:{app}", "value": "n"}, "unlink"),
        ({"key": "pv:{app}", "value": "n", "ttl_s": 5}, "pexpire"),
        ({"type": "hash", "key": "pv:{app}"}, "hset"),
        ({"type": "hash", "key": "pv:{app}"}, "hdel"),
        ({"type": "zset", "key": "pv", "member": "{app}", "score": "n"}, "zadd"),
        ({"type": "counter", "key": "pv:{app}"}, "incrby"),
        ({"type": "counter", "key": "pv", "field": "{app}"}, "hincrby"),
        ({"type": "counter", "key": "pv:{app}"}, "evalsha"),
        ({"type": "counter", "key": "pv:{app}"}, "hscan"),
    ],
)
def test_a_permission_that_is_missing_is_found_at_the_start(
    server: RedisServer, reader: Reader, options: dict[str, Any], missing: str
) -> None:
    """Scenario 54."""
    keys = ["onceward:*", "pv*"]
    reader.client.acl_setuser(
        "poor", enabled=True, nopass=True, categories=["+@all"], keys=keys, commands=[f"-{missing}"]
    )
    sink = RedisSink(f"redis://poor:x@127.0.0.1:{server.port}/0", **options)
    try:
        with pytest.raises(TargetRefused, match=f"(?i){missing}"):
            sink.check(SCHEMA, output_mode="append")
    finally:
        reader.client.acl_deluser("poor")
    assert list(reader.client.scan_iter("*")) == []


def test_the_documented_privileges_are_enough(server: RedisServer, reader: Reader) -> None:
    page = Path(__file__).parents[3] / "docs" / "targets" / "redis.md"
    (line,) = [line for line in page.read_text().splitlines() if line.startswith("ACL SETUSER ")]
    reader.client.execute_command(*line.replace("<password>", SECRET).split())
    url = f"redis://onceward:{SECRET}@127.0.0.1:{server.port}/0"
    batch = pa.record_batch({"app": ["a", "b"], "n": pa.array([1, None], pa.int64()), "x": [0.5, 1.5]})
    try:
        for number, options in enumerate(
            (
                {"key": "pv:{app}", "value": "n", "ttl_s": 100},
                {"key": "pv:s:{app}", "value": "x"},
                {"type": "hash", "key": "pv:h:{app}"},
                {"type": "hash", "key": "pv:f", "field": "{app}", "value": "n"},
                {"type": "zset", "key": "pv:z", "member": "{app}", "score": "n"},
                {"type": "counter", "key": "pv:c:{app}", "by": "n"},
                {"type": "counter", "key": "pv:d", "field": "{app}", "by": "x"},
            )
        ):
            sink = RedisSink(url, name=str(number), **options)
            for epoch in range(3):
                assert write(sink, batch, epoch=epoch)
            sink.forget(JOB, 2)
            assert [receipt.epoch for receipt in sink.receipts(JOB)] == [2]
        other = RedisSink(url, key="elsewhere:{app}", value="n")
        with pytest.raises(TargetRefused):
            other.check(batch.schema, output_mode="append")
    finally:
        reader.client.acl_deluser("onceward")


# --- secrets ------------------------------------------------------------------------------------------


def test_the_password_is_said_nowhere(
    server: RedisServer, reader: Reader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 71: neither in what a sink shows of itself, nor in errors, logs, and everything that is stored."""
    caplog.set_level(logging.DEBUG)
    reader.client.acl_setuser("who", enabled=True, passwords=[f"+{SECRET}"], categories=["+@all"], keys=["*"])
    url = f"redis://who:{SECRET}@127.0.0.1:{server.port}/0"
    sink = RedisSink(url, type="counter", key="pv:{key}", name="redis")
    said = [repr(sink), str(sink), repr(RedisCheckpointCommitter(url)), sink.name, sink.address, sink.mechanism]
    harness = Harness(SinkUnderTest(sink, list), source=Source(ends=(3,)))
    harness.life(behaviour=Behaviour(publishes=lambda epoch: False))
    stored = [harness.storage.read(f"settled/{name}") for name in harness.storage.names("settled")]
    said += [repr(plan) for plan in harness.plans] + [text.decode(errors="replace") for text in stored]
    said += [key.decode() + repr(reader.client.hgetall(key)) for key in reader.client.scan_iter("onceward:*")]
    reader.client.acl_setuser("who", enabled=False)
    for call in (
        lambda: sink.check(pa.schema([("key", pa.int64())]), output_mode="append"),
        lambda: send(sink, slot_of(sink, pa.record_batch({"key": [1]}))),
        lambda: sink.receipts(JOB),
        lambda: sink.forget(JOB, 1),
    ):
        with pytest.raises((TargetRefused, TargetChanged, driver.RedisError)) as failed:
            call()
        said.append("".join(traceback.format_exception(failed.value)))
    reader.client.acl_deluser("who")
    assert stored
    assert len(said) > 10
    assert [text for text in [*said, caplog.text] if SECRET in text] == []
    assert pickle.loads(pickle.dumps(sink)).address == f"127.0.0.1:{server.port}"


# --- without the driver -------------------------------------------------------------------------------


def test_without_the_driver_the_package_imports_and_the_sink_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.split(".")[0] == "redis":
            raise ImportError(name)
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    for make in (lambda: RedisSink(HERE, key="k", value="v"), lambda: RedisCheckpointCommitter(HERE)):
        with pytest.raises(ConfigurationError) as refused:
            make()
        assert refused.value.hint == "run: pip install 'onceward[redis]'"


def test_importing_the_sinks_does_not_import_the_driver() -> None:
    code = "import sys, onceward.sinks, onceward.committers; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
