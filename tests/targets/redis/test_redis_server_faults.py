"""The server dies, is away, or breaks off; and what a reader sees meanwhile (scenarios 50, 51, 18, 26)."""

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest
import redis as driver
from shapes import COUNTER, JOB, Reader, send, slot_of, write

from onceward.connections.redis import opened
from onceward.contracts import TryAgain
from onceward.errors import CheckpointRolledBack, OutputLost, PublishFailed, RowsRejected
from onceward.sinks import RedisSink
from onceward.sinks.redis import apply, receipts
from onceward.sinks.redis.scripts import RAISE_WATERMARK
from onceward.testing import Behaviour, Failed, Finished, Harness, ManualClock, Source
from onceward.testing.servers import RedisServer

SEED = 20261115


@pytest.fixture
def mortal(redis: RedisServer) -> Iterator[RedisServer]:
    """A server of this test's own; the session's is the proof that there is one to be had."""
    with RedisServer() as server:
        yield server


def reader_of(server: RedisServer) -> Reader:
    return Reader(driver.Redis.from_url(server.url))


def test_a_server_killed_between_stage_and_publish_gets_every_row_once(mortal: RedisServer) -> None:
    reader = reader_of(mortal)
    harness = Harness(COUNTER.subject(mortal.url, reader), source=Source(ends=(4, 8)))
    staged_only = Behaviour(publishes=lambda epoch: False)
    mortal.kill()
    assert isinstance(harness.life(behaviour=staged_only), Failed), "recovery asks for receipts first"
    mortal.start()

    def kill(epoch: int) -> bool:
        mortal.kill()
        return True

    assert isinstance(harness.life(behaviour=Behaviour(publishes=kill)), Failed)
    mortal.start()
    harness.drain()
    assert harness.problems() == []


class ClockThatRepairs(ManualClock):
    """After some pauses of the publisher the server is there again."""

    pauses = 0
    server: RedisServer

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        if self.pauses == 3:
            self.server.start()
        super().pause(0.01)


def test_a_server_that_is_away_for_a_while_is_waited_for(mortal: RedisServer) -> None:
    clock = ClockThatRepairs()
    clock.server = mortal
    reader = reader_of(mortal)
    harness = Harness(COUNTER.subject(mortal.url, reader), source=Source(ends=(4, 8)), clock=clock)
    gone: list[int] = []

    def stop_once(epoch: int) -> bool:
        if not gone:
            mortal.stop()
            gone.append(epoch)
        return True

    assert harness.life(behaviour=Behaviour(publishes=stop_once)) == Finished()
    assert clock.pauses >= 3
    assert harness.problems() == []


def test_a_server_that_stays_away_leaves_the_epoch_staged(mortal: RedisServer) -> None:
    reader = reader_of(mortal)
    harness = Harness(COUNTER.subject(mortal.url, reader), source=Source(ends=(4,)))

    def stop(epoch: int) -> bool:
        mortal.stop()
        return True

    ending = harness.life(behaviour=Behaviour(publishes=stop))
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, PublishFailed)
    mortal.start()
    assert COUNTER.read(reader) == []
    harness.drain()
    assert harness.problems() == []


def test_counters_are_exact_although_the_server_is_killed_at_random(mortal: RedisServer) -> None:
    """SIGKILL while epochs go in: what was confirmed is there, what was not is sent again and found or written."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    sink = RedisSink(mortal.url, type="counter", key="count:{key}", max_rows_per_script=50, name="redis", timeout_s=5)
    stop = threading.Event()
    started = threading.Event()
    kills = 0

    failures: list[BaseException] = []

    def killer() -> None:
        nonlocal kills
        started.wait()
        try:
            while not stop.wait(chance.uniform(0.02, 0.15)):
                # No more than eight, so that the epochs come to their end on a slow machine too.
                if kills < 8:
                    mortal.kill()
                    kills += 1
                    mortal.start()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=killer)
    thread.start()
    batch = pa.record_batch({"key": pa.array([i % 7 for i in range(400)], pa.int64())})
    epoch = 0

    def deliver() -> bool:
        with suppress(TryAgain):
            return send(sink, slot_of(sink, batch, epoch=epoch), epoch=epoch)
        return False

    # However slow the machine is: a killer that could not start the server again ends the wait, not a clock.
    while thread.is_alive() and (epoch < 40 or kills < 4):
        started.set()
        epoch += deliver()
    stop.set()
    thread.join()
    assert not failures, failures
    # The last kill may have left an epoch half delivered: it is brought to its end like the others.
    while not deliver():
        assert mortal.answers()
    epoch += 1
    total = sum(int(value) for value in reader_of(mortal).client.mget([f"count:{key}" for key in range(7)]))
    assert total == epoch * 400, f"{kills} kills"


def test_a_server_that_is_started_anew_between_a_script_and_its_call_is_given_the_script_again(
    mortal: RedisServer,
) -> None:
    """The driver opens the connection again without a word, and the new server has never heard of the script."""
    with opened(mortal.url, 5) as variant:
        assert variant.run(variant.seed, RAISE_WATERMARK, "receipts", "aaaaaaaa", 7) == 7
        mortal.kill()
        mortal.start()
        assert variant.run(variant.seed, RAISE_WATERMARK, "receipts", "aaaaaaaa", 3) == 7


def test_a_reader_never_sees_half_of_a_part(server: RedisServer, reader: Reader) -> None:
    """Two keys that every epoch raises together, and the receipt that comes with them, read in one step."""
    sink = RedisSink(server.url, type="counter", key="side:{side}", name="redis")
    batch = pa.record_batch({"side": ["left", "right"] * 20})
    stop = threading.Event()
    seen: list[tuple[int, int, int]] = []

    def look() -> None:
        with driver.Redis.from_url(server.url) as client:
            while not stop.is_set():
                pipeline = client.pipeline(transaction=True)
                pipeline.mget("side:left", "side:right").hlen("onceward:receipts:page%20views:redis")
                (left, right), receipts = pipeline.execute()
                seen.append((int(left or 0), int(right or 0), receipts))

    thread = threading.Thread(target=look)
    thread.start()
    epoch = 0
    # The reader decides how long it takes: on a busy machine it comes to look only now and then.
    while epoch < 200 or len(set(seen)) <= 5:
        assert send(sink, slot_of(sink, batch, epoch=epoch), epoch=epoch)
        epoch += 1
    stop.set()
    thread.join()
    assert [look for look in seen if not (look[0] == look[1] == look[2] * 20)] == []


def test_a_key_of_another_type_stops_the_part_before_its_first_write(server: RedisServer, reader: Reader) -> None:
    """A script is not rolled back, so it looks first; once the key is out of the way the rest follows."""
    reader.client.rpush("count:c", "a list")
    sink = RedisSink(server.url, type="counter", key="count:{key}", name="redis")
    batch = pa.record_batch({"key": ["a", "b", "c"]})
    with pytest.raises(RowsRejected, match=r"'count:c'.*holds a list") as refused:
        write(sink, batch)
    assert (refused.value.sink, refused.value.epoch) == ("redis", 7)
    assert reader.names() == [b"count:c"]
    assert list(sink.receipts(JOB)) == []
    reader.client.delete("count:c")
    assert write(sink, batch)
    assert [reader.client.get(f"count:{key}") for key in "abc"] == [b"1"] * 3


@pytest.mark.parametrize(
    ("held", "by"),
    [
        ("many", 1),
        ("1.5", 1),
        ("007", 1),
        (str(2**63 - 1), 1),
        ("1", 2**63 - 1),
        ("-1", -(2**63)),
        (str(-(2**63)), -1),
        (str(2**63), -1),
    ],
)
def test_a_counter_that_could_not_be_raised_stops_the_part_before_its_first_write(
    server: RedisServer, reader: Reader, held: str, by: int
) -> None:
    reader.client.set("count:b", held)
    reader.client.hset("counts", "b", held)
    batch = pa.record_batch({"key": ["a", "b"], "by": pa.array([1, by], pa.int64())})
    for options in ({"key": "count:{key}"}, {"key": "counts", "field": "{key}"}):
        with pytest.raises(RowsRejected, match="count"):
            write(RedisSink(server.url, type="counter", by="by", name="redis", **options), batch)
    assert reader.client.get("count:a") is None
    assert reader.client.hgetall("counts") == {b"b": held.encode()}


def test_a_script_that_breaks_off_is_noticed_for_ever_after(
    server: RedisServer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No way is known to make it break off, so here it is told to: what is half in is never repeated or called in."""
    broken = apply.APPLY.replace("redis.call('HDEL', key, unpack(gone", "redis.call('NO SUCH', key, unpack(gone")
    assert broken != apply.APPLY
    sink = RedisSink(server.url, type="hash", key="h:{id}", fields=["a"], name="redis")
    batch = pa.record_batch({"id": [1, 2, 3], "a": ["x", None, "z"]})
    with monkeypatch.context() as patch:
        patch.setattr(apply, "APPLY", broken)
        with pytest.raises(driver.ResponseError):
            send(sink, slot_of(sink, batch))
    assert reader.names() == [b"h:1"]
    for _ in range(2):
        with pytest.raises(OutputLost, match="in the middle") as lost:
            send(sink, slot_of(sink, batch))
        assert lost.value.hint
    assert [(one.slot, one.is_whole) for one in sink.receipts(JOB)] == [(0, False)], "it is no receipt of slot 0"
    assert reader.names() == [b"h:1"]


def test_an_epoch_with_another_fingerprint_is_not_the_one_that_is_in(server: RedisServer, reader: Reader) -> None:
    sink = RedisSink(server.url, type="counter", key="count:{key}", name="redis")
    batch = pa.record_batch({"key": ["a"]})
    assert write(sink, batch)
    with pytest.raises(CheckpointRolledBack, match="rolled back"):
        write(sink, batch, mark="ggggggggggggggg2")
    assert reader.client.get("count:a") == b"1"


def test_the_script_itself_refuses_another_fingerprint(
    server: RedisServer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = RedisSink(server.url, type="counter", key="count:{key}", name="redis")
    batch = pa.record_batch({"key": ["a"]})
    assert write(sink, batch)
    monkeypatch.setattr(receipts, "rows_in", lambda client, slots, scope: [0] * len(slots))
    with pytest.raises(CheckpointRolledBack, match="rolled back"):
        write(sink, batch, mark="ggggggggggggggg2")
    assert reader.client.get("count:a") == b"1"


def test_a_slow_publisher_below_the_watermark_writes_nothing(
    server: RedisServer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before the receipts were forgotten, and sends afterwards: the script looks at the watermark."""
    sink = RedisSink(server.url, type="counter", key="count:{key}", name="redis")
    batch = pa.record_batch({"key": ["a"]})
    for epoch in range(5):
        assert write(sink, batch, epoch=epoch)
    sink.forget(JOB, 4)
    assert {receipt.epoch for receipt in sink.receipts(JOB)} == {4}
    monkeypatch.setattr(receipts, "rows_in", lambda client, slots, scope: [0] * len(slots))
    for epoch in range(5):
        assert write(sink, batch, epoch=epoch)
    assert reader.client.get("count:a") == b"5"


def test_a_server_that_forgot_a_part_gets_it_again(server: RedisServer, reader: Reader) -> None:
    """An old snapshot came back in mid-epoch: the receipt went with the rows, so the two still agree."""
    sink = RedisSink(server.url, type="counter", key="count:{key}", name="redis", max_rows_per_script=2)
    batch = pa.record_batch({"key": ["a", "b", "c", "d", "e"]})
    assert write(sink, batch)
    before = {key: reader.client.dump(key) for key in reader.client.scan_iter("*")}
    assert write(sink, batch, epoch=8)
    reader.client.flushdb()
    for key, value in before.items():
        reader.client.restore(key, 0, value)
    assert write(sink, batch, epoch=8)
    assert [reader.client.get(f"count:{key}") for key in "abcde"] == [b"2"] * 5


@pytest.mark.parametrize(("believed", "max_rows_per_script"), [(3, 2), (1, 2), (1, None), (4, 1)])
def test_a_part_that_does_not_follow_on_what_is_in_is_not_written(
    server: RedisServer, reader: Reader, monkeypatch: pytest.MonkeyPatch, believed: int, max_rows_per_script: int | None
) -> None:
    """Two rows are in; the driver, whose knowledge is old or whose server went back, goes on from elsewhere."""
    batch = pa.record_batch({"key": ["a", "b", "c", "d", "e"]})
    first = RedisSink(server.url, type="counter", key="count:{key}", name="redis", max_rows_per_script=1)

    def cut_short() -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 4)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        send(first, replace(slot_of(first, batch), read=cut_short))
    assert reader.names() == [b"count:a", b"count:b"]
    sink = RedisSink(
        server.url, type="counter", key="count:{key}", name="redis", max_rows_per_script=max_rows_per_script
    )
    with monkeypatch.context() as patch:
        patch.setattr(receipts, "rows_in", lambda client, slots, scope: [believed])
        assert not send(sink, slot_of(sink, batch)), "the publisher tries again"
    assert reader.names() == [b"count:a", b"count:b"]
    assert send(sink, slot_of(sink, batch)), "and then looks anew"
    assert [reader.client.get(f"count:{key}") for key in "abcde"] == [b"1"] * 5
