"""What it costs to look at the target again in every epoch: ten rows published, against the same without the look.

The look cannot be left out, since what follows goes by what it found. So its own time is taken, and subtracted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from rich.console import Console

from benchmarks.measure import Ratio
from onceward.contracts import Receipt, SlotValues, TransactionalWriteAheadSink
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import KafkaSink, MySQLSink, PostgresSink
from onceward.testing.servers import KafkaServer, MariaDBServer, PostgresServer

EPOCHS = 200
WARM_UP = 20
JOB = JobIdentity(JobName("bench"), Generation("aaaaaaaa"))


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """PostgreSQL, MySQL and Kafka. Redis looks inside the script that writes, without a round trip of its own."""
    with PostgresServer() as postgres:
        sink = PostgresSink(postgres.url, table="rows", mode="upsert", keys=["id"]).choose()
        yield _cost("PostgresSink upsert", sink, "onceward.sinks.postgres.facts.TargetFacts.confirm", console)
    with MariaDBServer() as mariadb:
        sink = MySQLSink(mariadb.url, table="rows", mode="upsert", keys=["id"]).choose()
        yield _cost("MySQLSink upsert", sink, "onceward.sinks.mysql.facts.TargetFacts.confirm", console)
    with KafkaServer() as kafka:
        sink = KafkaSink(kafka.bootstrap, topic="rows", key="id", create_partitions=2)
        yield _cost("KafkaSink", sink, "onceward.sinks.kafka.topics.Topics.look", console)


def _cost(name: str, sink: Any, look: str, console: Console) -> Ratio:
    assert isinstance(sink, TransactionalWriteAheadSink)
    batch = pa.record_batch({"id": pa.array(range(10), pa.int64()), "app": pa.array([f"app-{n}" for n in range(10)])})
    sink.check(batch.schema, output_mode="update" if name.endswith("upsert") else "append")
    whole, looking = [], []
    module, _, attribute = look.rpartition(".")
    with patch(look, _timed(_resolve(module, attribute), looking)):
        for epoch in range(EPOCHS):
            receipt = Receipt(JOB.name, JOB.generation, sink.name, epoch, 0, Fingerprint("a" * 16))
            slot = SlotValues(0, batch.num_rows, receipt, partial(iter, [batch]))
            looking.append(0.0)
            started = time.perf_counter()
            sink.send_transaction([slot], JOB, epoch, datetime.now(UTC))
            whole.append(time.perf_counter() - started)
    ours = statistics.median(whole[WARM_UP:])
    peer = statistics.median(w - spent for w, spent in zip(whole[WARM_UP:], looking[WARM_UP:], strict=True))
    console.print(f"  {name}: the look takes {statistics.median(looking[WARM_UP:]) * 1000:.1f} ms", style="dim")
    return Ratio(
        f"ten rows published, {name}, with the look at the target / without",
        f"{ours * 1000:.1f} ms",
        f"{peer * 1000:.1f} ms",
        ours / peer,
        "<= 1.5",
    )


def _resolve(path: str, attribute: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")
    function: Callable[..., Any] = getattr(getattr(__import__(module, fromlist=[name]), name), attribute)
    return function


def _timed(look: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return look(*arguments, **named)
        finally:
            if spent:
                spent[-1] += time.perf_counter() - started

    return timed
