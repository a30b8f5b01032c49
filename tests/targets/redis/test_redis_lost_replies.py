"""The connection is cut after the server did what it was asked, and before it could say so (scenario 5)."""

import random
import threading
from contextlib import suppress

import pyarrow as pa
import pytest
from shapes import COUNTER, JOB, Reader, send, slot_of

from onceward.contracts import SlotValues, TryAgain
from onceward.identity import Generation, JobIdentity
from onceward.sinks import RedisSink
from onceward.sinks.redis import receipts
from onceward.testing import Harness, Source
from onceward.testing.servers import Proxy, RedisServer

SEED = 20261115
LOST = TryAgain
KEYS = 7


def through(proxy: Proxy, **options: object) -> RedisSink:
    url = f"redis://127.0.0.1:{proxy.port}/0"
    return RedisSink(url, type="counter", key="count:{key}", by="by", name="redis", **options)


def some_rows(chance: random.Random) -> pa.RecordBatch:
    count = chance.randrange(1, 20)
    return pa.record_batch(
        {
            "key": pa.array([chance.randrange(KEYS) for _ in range(count)], pa.int64()),
            "by": pa.array([chance.randrange(-5, 100) for _ in range(count)], pa.int64()),
        }
    )


def counted(reader: Reader) -> dict[int, int]:
    return {key: int(reader.client.get(f"count:{key}") or 0) for key in range(KEYS)}


@pytest.mark.parametrize("max_rows_per_script", [None, 3])
@pytest.mark.parametrize("looks_before", [True, False])
def test_counters_are_exact_after_hundreds_of_lost_replies(
    server: RedisServer,
    reader: Reader,
    max_rows_per_script: int | None,
    looks_before: bool,
    record_sweep: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every epoch is sent until the server confirms it; which answers get through is drawn from the seed.

    That the sink looks for receipts before it sends only saves work: the script alone must do.
    """
    if not looks_before:
        monkeypatch.setattr(receipts, "rows_in", lambda client, slots, scope: [0] * len(slots))
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    expected = dict.fromkeys(range(KEYS), 0)
    with Proxy(server.port) as proxy:
        sink = through(proxy, max_rows_per_script=max_rows_per_script)
        tries = 0
        for epoch in range(150):
            batch = some_rows(chance)
            for key, by in zip(batch["key"].to_pylist(), batch["by"].to_pylist(), strict=True):
                expected[key] += by
            slot = slot_of(sink, batch, epoch=epoch)
            proxy.cut_after(b"EVALSHA", answers=chance.choice([0, 0, 0, 1, 2]), times=chance.randrange(1, 4))
            while True:
                tries += 1
                with suppress(LOST):
                    if send(sink, slot, epoch=epoch):
                        break
            if chance.random() < 0.3:
                assert send(sink, slot, epoch=epoch), "what is in is confirmed, not repeated"
    assert counted(reader) == expected
    assert proxy.cuts >= 150
    record_sweep.append(f"lost replies: {proxy.cuts} cuts in {tries} tries of 150 epochs, seed {SEED}")


def test_without_a_receipt_the_same_cuts_count_twice(server: RedisServer, reader: Reader) -> None:
    """The test above can fail: take the receipt away, and it would."""
    chance = random.Random(SEED)
    expected = dict.fromkeys(range(KEYS), 0)
    with Proxy(server.port) as proxy:
        sink = through(proxy)
        for epoch in range(20):
            batch = some_rows(chance)
            for key, by in zip(batch["key"].to_pylist(), batch["by"].to_pylist(), strict=True):
                expected[key] += by
            proxy.cut_after(b"EVALSHA", answers=0)
            for _ in range(2):
                with suppress(LOST):
                    if send(sink, slot_of(sink, batch, epoch=epoch, with_receipt=False), epoch=epoch):
                        break
    assert counted(reader) != expected


def test_a_whole_job_survives_cut_connections(server: RedisServer, reader: Reader) -> None:
    """The publisher itself repeats what was cut."""
    source = Source(ends=(4, 9, 15, 16), keys=3)
    with Proxy(server.port) as proxy:
        proxy.cut_after(b"EVALSHA", answers=0, times=6)
        harness = Harness(COUNTER.subject(f"redis://127.0.0.1:{proxy.port}/0", reader, check=False), source=source)
        harness.drain()
        assert proxy.cuts == 4, "one for each epoch: the next try finds the receipt"
    assert harness.problems() == []


def test_two_drivers_that_publish_the_same_epochs_at_once_count_each_row_once(
    server: RedisServer, reader: Reader
) -> None:
    """Scenario 29: in any order and interleaving, part by part."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    epochs = [some_rows(chance) for _ in range(60)]
    expected = dict.fromkeys(range(KEYS), 0)
    for batch in epochs:
        for key, by in zip(batch["key"].to_pylist(), batch["by"].to_pylist(), strict=True):
            expected[key] += by
    together = threading.Barrier(3)
    failures: list[BaseException] = []

    def publish(max_rows_per_script: int) -> None:
        sink = RedisSink(
            server.url,
            type="counter",
            key="count:{key}",
            by="by",
            name="redis",
            max_rows_per_script=max_rows_per_script,
        )
        try:
            for epoch, batch in enumerate(epochs):
                together.wait(60)
                while not send(sink, slot_of(sink, batch, epoch=epoch), epoch=epoch):
                    pass
        except BaseException as error:
            failures.append(error)
            together.abort()

    threads = [threading.Thread(target=publish, args=(rows,)) for rows in (1, 2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert counted(reader) == expected


def test_an_answer_that_comes_too_late_is_a_lost_one(server: RedisServer, reader: Reader) -> None:
    """The server stops answering, the client gives up, the server wakes and does it after all."""
    sink, hasty = (
        RedisSink(server.url, type="counter", key="count:{key}", by="by", name="redis", timeout_s=timeout_s)
        for timeout_s in (30.0, 0.2)
    )
    batch = some_rows(random.Random(SEED))
    slot: SlotValues = slot_of(sink, batch)
    server.pause()
    try:
        with pytest.raises(LOST):
            send(hasty, slot)
    finally:
        server.resume()
    while not send(sink, slot):
        pass
    assert sum(counted(reader).values()) == sum(batch["by"].to_pylist())
    other = JobIdentity(JOB.name, Generation("bbbbbbbb"))
    assert send(sink, slot_of(sink, batch, job=other), job=other), "another generation is another delivery"
    assert sum(counted(reader).values()) == 2 * sum(batch["by"].to_pylist())
