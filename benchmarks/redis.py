"""RedisSink, exactly-once, against a bare pipelined client: one epoch of a million rows, the same writes, no receipts.

Also the longest time for which another client had to wait meanwhile: a script keeps the server to itself.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import redis
from rich.console import Console

from benchmarks.measure import Ratio, interleaved, timed
from onceward.contracts import Receipt, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import RedisSink
from onceward.testing.servers import RedisServer

ROWS = 1_000_000
SLOTS = 4
ROWS_IN_A_BATCH = 10_000
JOB = JobIdentity(JobName("bench"), Generation("aaaaaaaa"))


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Strings and counters, each key once: the most keys that so many rows can have."""
    batches = _batches()
    with RedisServer(appendfsync="everysec") as server:
        client = redis.Redis.from_url(server.url, socket_timeout=120)
        epochs = itertools.count()

        def ours(sink: RedisSink) -> float:
            client.flushall()
            epoch = next(epochs)
            slots = _slots(sink, batches, epoch)
            seconds = timed(lambda: sink.send_transaction(slots, JOB, epoch, datetime.now(UTC)))
            return _checked(client, seconds, receipts=1)

        def bare(write: Callable[..., object]) -> float:
            client.flushall()
            return _checked(client, timed(lambda: _pipelined(client, batches, write)), receipts=0)

        strings = RedisSink(server.url, key="pv:{id}", value="value", name="strings")
        counters = RedisSink(server.url, type="counter", key="pv:{id}", by="views", name="counters")
        for what, sink, write in (
            ("strings", strings, lambda pipeline, id, value, views: pipeline.set(f"pv:{id}", value)),
            ("counters", counters, lambda pipeline, id, value, views: pipeline.incrby(f"pv:{id}", views)),
        ):
            contenders = {"RedisSink": lambda sink=sink: ours(sink), "bare client": lambda write=write: bare(write)}
            medians = interleaved(contenders, repeats=3, console=console, warm_up=False)
            mine, peer = ROWS / medians["RedisSink"], ROWS / medians["bare client"]
            waited = _longest_wait(server, lambda sink=sink: ours(sink))
            console.print(f"  longest wait of another client: {waited * 1000:.0f} ms", style="dim")
            yield Ratio(
                f"RedisSink / pipelined client, {what}, 1 M rows",
                f"{mine:,.0f} rows/s",
                f"{peer:,.0f} rows/s",
                mine / peer,
                ">= 0.5",
            )


def _batches() -> list[pa.RecordBatch]:
    chance = np.random.default_rng(20261115)
    table = pa.table({"id": np.arange(ROWS), "value": chance.random(ROWS), "views": chance.integers(1, 100, ROWS)})
    return table.to_batches(max_chunksize=ROWS_IN_A_BATCH)


def _slots(sink: RedisSink, batches: list[pa.RecordBatch], epoch: int) -> list[SlotValues]:
    each = len(batches) // SLOTS
    slots = []
    for slot in range(SLOTS):
        share = batches[slot * each : (slot + 1) * each]
        receipt = Receipt(JOB.name, JOB.generation, sink.name, epoch, slot, Fingerprint("a" * 16))
        slots.append(SlotValues(slot, each * ROWS_IN_A_BATCH, receipt, lambda share=share: iter(share)))
    return slots


def _pipelined(client: redis.Redis, batches: list[pa.RecordBatch], write: Callable[..., object]) -> None:
    for batch in batches:
        pipeline = client.pipeline(transaction=False)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            write(pipeline, *row)
        pipeline.execute()


def _checked(client: redis.Redis, seconds: float, *, receipts: int) -> float:
    """Speed counts only if all rows are there."""
    keys = client.dbsize()
    if keys != ROWS + receipts:
        raise AssertionError(f"Redis has {keys} keys, not {ROWS + receipts}")
    return seconds


def _longest_wait(server: RedisServer, work: Callable[[], object]) -> float:
    done, waits = threading.Event(), [0.0]

    def ask() -> None:
        with redis.Redis.from_url(server.url, socket_timeout=120) as other:
            other.get("pv:0")
            while not done.is_set():
                started = time.perf_counter()
                other.get("pv:0")
                waits.append(time.perf_counter() - started)
                done.wait(0.005)

    thread = threading.Thread(target=ask)
    thread.start()
    work()
    done.set()
    thread.join()
    return max(waits)
