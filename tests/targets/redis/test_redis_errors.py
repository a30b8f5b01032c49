"""Scenario 98 and the table of errors: what the server forgot is given again, and every error is one of four."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as driver
from redis.exceptions import NoScriptError
from shapes import JOB, Reader, client_of, send, slot_of, write

from onceward.connections.redis import NoServer, opened
from onceward.contracts import TryAgain
from onceward.errors import TargetChanged
from onceward.sinks import RedisSink
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.redis import apply
from onceward.sinks.redis.errors import CLASSES_BY_CODE, CLASSES_BY_TEXT, classify
from onceward.sinks.redis.scripts import RAISE_WATERMARK
from onceward.testing.servers import RedisCluster, RedisServer

PAGE = Path(__file__).parents[3] / "docs" / "targets" / "redis.md"
BATCH = pa.record_batch({"k": ["a", "b", "c", "d"]})


def counter(url: str, **options: Any) -> RedisSink:
    return RedisSink(url, type="counter", key="c:{k}", name="redis", **options)


# --- scripts that a server forgot ---------------------------------------------------------------


def test_scripts_that_are_flushed_in_mid_epoch_are_given_again(server: RedisServer, reader: Reader) -> None:
    sink = counter(server.url, max_rows_per_script=1)

    def flushing() -> Iterator[pa.RecordBatch]:
        for row in range(BATCH.num_rows):
            reader.client.script_flush()
            yield BATCH.slice(row, 1)

    assert send(sink, replace(slot_of(sink, BATCH), read=flushing))
    assert [reader.client.get(f"c:{key}") for key in "abcd"] == [b"1"] * 4


class Flushing:
    """Flushes the scripts of every server just before a command of the client that is named."""

    def __init__(self, urls: list[str], patch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self._urls, self._patch = urls, patch
        self._busy = False

    def flush(self) -> None:
        if self._busy:
            return
        self._busy, self.times = True, self.times + 1
        for url in self._urls:
            with client_of(url) as client:
                client.script_flush()
        self._busy = False

    def before(self, owner: type, name: str, wanted: Callable[..., bool]) -> None:
        original = getattr(owner, name)

        def flushed(this: Any, *args: Any, **options: Any) -> Any:
            if wanted(this, *args):
                self.flush()
            return original(this, *args, **options)

        self._patch.setattr(owner, name, flushed)


def test_between_the_scripts_text_and_its_call_is_no_gap(
    server: RedisServer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each first EVALSHA of a connection finds a server that has forgotten; the look for rejected rows too."""
    sink = counter(server.url)
    seen: set[int] = set()

    def is_first(client: Any, command: str, *_: Any) -> bool:
        is_new = command == "EVALSHA" and id(client) not in seen
        seen.update([id(client)] if is_new else [])
        return is_new

    flushing = Flushing([server.url], monkeypatch)
    flushing.before(driver.Redis, "execute_command", is_first)
    assert write(sink, BATCH)
    assert sink.find_rejected([slot_of(sink, BATCH, epoch=8)], JOB, 8) == []
    sink.forget(JOB, 7)
    assert flushing.times >= 3
    assert [reader.client.get(f"c:{key}") for key in "abcd"] == [b"1"] * 4


def test_scripts_that_are_flushed_in_the_middle_of_a_pipeline_are_given_again(
    server: RedisServer, reader: Reader
) -> None:
    """As when somebody's SCRIPT FLUSH arrives between two calls that were sent in one go."""
    with opened(server.url, 5) as variant:
        calls = [(variant.seed, f"r{number}", ("g", number)) for number in range(5)]
        assert variant.run_all(RAISE_WATERMARK, calls) == list(range(5))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(variant.seed, "pipeline", lambda transaction: _Flushed(variant.seed.connection_pool))
            assert variant.run_all(RAISE_WATERMARK, calls) == list(range(5))


class _Flushed(driver.client.Pipeline):
    """A pipeline in whose middle the server's scripts are flushed."""

    def __init__(self, pool: Any) -> None:
        super().__init__(pool, {}, False, None)

    def execute(self, raise_on_error: bool = True) -> Any:
        first = self.command_stack[:3]
        flush = (("SCRIPT FLUSH",), {})
        self.command_stack[:3] = [*first, flush]
        answers = super().execute(raise_on_error=raise_on_error)
        assert any(isinstance(answer, NoScriptError) for answer in answers)
        return [*answers[:3], *answers[4:]]


def test_every_server_of_a_cluster_is_given_its_scripts_again(
    cluster: RedisCluster, cluster_reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "_CALLS_AT_ONCE", 4)
    flushing = Flushing([node.url for node in cluster.nodes], monkeypatch)
    calls: list[str] = []

    def is_every_other(client: Any, command: str, *_: Any) -> bool:
        """Else it would never be known when it is called."""
        calls.extend([command] if command == "EVALSHA" else [])
        return command == "EVALSHA" and len(calls) % 2 == 1

    flushing.before(driver.Redis, "execute_command", is_every_other)
    flushing.before(driver.client.Pipeline, "execute", lambda *_: True)
    sink = counter(cluster.url)
    spread = pa.record_batch({"k": [str(number) for number in range(40)]})
    tries = [send(sink, slot_of(sink, spread)) for _ in range(2)]
    assert tries == [True, True]
    assert flushing.times > 10
    assert {cluster_reader.client.get(f"c:{number}") for number in range(40)} == {b"1"}


def test_a_replica_that_took_over_is_given_the_script(server: RedisServer, redis: RedisServer) -> None:
    """A fail-over in mid-run, with the address moving along: the new primary has never seen a script of ours."""
    sink, later = counter(redis.url), counter(server.url)
    with client_of(redis.url) as old, client_of(server.url) as new:
        old.flushall()
        assert write(sink, BATCH)
        new.execute_command("REPLICAOF", "127.0.0.1", redis.port)
        try:
            while new.info("replication").get("master_link_status") != "up" or not new.exists("c:a"):
                pass
            with pytest.raises(TryAgain, match=r"(?i)read only replica"):
                send(later, slot_of(later, BATCH, epoch=8), epoch=8)
        finally:
            new.execute_command("REPLICAOF", "NO", "ONE")
            old.flushall()
        new.script_flush()
        assert send(later, slot_of(later, BATCH)), "what the old one confirmed is known to the new one"
        assert send(later, slot_of(later, BATCH, epoch=8), epoch=8)
        assert new.get("c:a") == b"2"


# --- the table ----------------------------------------------------------------------------------


def documented() -> dict[str, str]:
    """The table of the page: what the server says, and what that is called."""
    _, _, after = PAGE.read_text().partition("## Errors")
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|", after.partition("\n## ")[0], re.MULTILINE)
    return {word: meaning for words, meaning in rows for word in re.findall(r"`(.*?)`", words)}


def test_the_page_has_the_table_that_the_code_has() -> None:
    table = {word: found.value for word, found in {**CLASSES_BY_CODE, **CLASSES_BY_TEXT}.items()}
    assert documented() == table


def parsed(text: str) -> Exception:
    """The error that the driver makes of an answer of the server."""
    made: Exception = driver._parsers.base.BaseParser.parse_error(text)
    return made


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("MOVED 3999 127.0.0.1:6381", ErrorClass.RETRY),
        ("ASK 3999 127.0.0.1:6381", ErrorClass.RETRY),
        ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorClass.RETRY),
        ("CLUSTERDOWN Hash slot not served", ErrorClass.RETRY),
        ("LOADING Redis is loading the dataset in memory", ErrorClass.RETRY),
        ("BUSY Redis is busy running a script.", ErrorClass.RETRY),
        ("READONLY You can't write against a read only replica.", ErrorClass.RETRY),
        ("MASTERDOWN Link with MASTER is down", ErrorClass.RETRY),
        ("OOM command not allowed when used memory > 'maxmemory'.", ErrorClass.RETRY),
        ("MISCONF Errors writing to the AOF file: No space left on device", ErrorClass.RETRY),
        ("NOREPLICAS Not enough good replicas to write.", ErrorClass.RETRY),
        ("NOSCRIPT No matching script.", ErrorClass.RETRY),
        ("ERR Script attempted to access a non local key in a cluster node", ErrorClass.RETRY),
        ("ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed", ErrorClass.RETRY),
        ("ERR max number of clients reached", ErrorClass.RETRY),
        ("NOAUTH Authentication required.", ErrorClass.TARGET),
        ("WRONGPASS invalid username-password pair or user is disabled.", ErrorClass.TARGET),
        ("NOPERM this user has no permissions to run the 'evalsha' command", ErrorClass.TARGET),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorClass.TARGET),
        ("ERR unknown command 'EVALSHA'", ErrorClass.TARGET),
        ("CROSSSLOT Keys in request don't hash to the same slot", ErrorClass.UNKNOWN),
        ("ERR something new", ErrorClass.UNKNOWN),
        ("ERR user_script:12: OOM is a word in a row's text", ErrorClass.UNKNOWN),
    ],
)
def test_what_the_server_says_is_one_of_four(said: str, meaning: ErrorClass) -> None:
    assert classify(parsed(said)) is meaning


@pytest.mark.parametrize(
    "error", [driver.ConnectionError("closed"), driver.TimeoutError("slow"), NoServer("no server for hash slot 7")]
)
def test_a_server_that_is_away_is_waited_for(error: Exception) -> None:
    assert classify(error) is ErrorClass.RETRY


def test_a_user_that_is_gone_stops_the_job(server: RedisServer, reader: Reader) -> None:
    reader.client.acl_setuser("who", enabled=True, nopass=True, categories=["+@all"], keys=["*"])
    sink = counter(f"redis://who:x@127.0.0.1:{server.port}/0")
    assert write(sink, BATCH)
    reader.client.acl_deluser("who")
    with pytest.raises(TargetChanged) as changed:
        send(sink, slot_of(sink, BATCH, epoch=8), epoch=8)
    assert (changed.value.epoch, changed.value.sink) == (8, "redis")


def _is_busy(server: RedisServer) -> bool:
    try:
        with client_of(server.url) as client:
            client.ping()
    except driver.ResponseError as error:
        return "BUSY" in str(error)
    return False


def test_a_server_busy_with_somebodys_script_is_waited_for(server: RedisServer, reader: Reader) -> None:
    sink = counter(server.url)
    reader.client.config_set("busy-reply-threshold", 1)
    with client_of(server.url) as other:
        connection = other.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)
        try:
            while not _is_busy(server):
                pass
            with pytest.raises(TryAgain, match="BUSY"):
                send(sink, slot_of(sink, BATCH))
        finally:
            reader.client.script_kill()
            with pytest.raises(driver.ResponseError, match="killed"):
                connection.read_response()
            other.connection_pool.release(connection)
            reader.client.config_set("busy-reply-threshold", 5000)
    assert send(sink, slot_of(sink, BATCH))
    assert reader.client.get("c:a") == b"1"
