"""How long a record takes from its producer to a `read_committed` consumer behind a job with a one-second trigger.

A hundred records of 100 bytes a second, Kafka in and Kafka out, with KafkaSink and with Spark's own sink, which is
at-least-once. The clock begins when a record is given to the producer and ends when the consumer has it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as kafka
import numpy as np
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import Ratio, session
from onceward import Job
from onceward.sinks import KafkaSink
from onceward.sources import KafkaSource
from onceward.testing.servers import KafkaServer

ROUNDS = 3
EVERY_S = 0.01
WARM_UP_S = 10.0
MEASURED_S = 20.0
PATIENCE_S = 120.0
PARTITIONS = 2

Stop = Callable[[], object]
Start = Callable[[SparkSession, str, str, str, Path], Stop]


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """In turns, each time with new topics and a new checkpoint; percentiles over all records of all rounds."""
    spark = session()
    contenders: dict[str, Start] = {"KafkaSink": _ours, "Spark's sink": _theirs}
    found: dict[str, list[float]] = {name: [] for name in contenders}
    numbers = itertools.count()
    with KafkaServer() as server:
        for _ in range(ROUNDS):
            for name, start in contenders.items():
                number = next(numbers)
                source = server.create_topic(f"in-{number}", partitions=PARTITIONS)
                target = server.create_topic(f"out-{number}", partitions=PARTITIONS)
                stop = start(spark, server.bootstrap, source, target, folder / str(number))
                try:
                    latencies = _latencies(server.bootstrap, source, target)
                finally:
                    stop()
                console.print(f"  {name}: {_shown(latencies)} of {len(latencies):,} records", style="dim")
                found[name] += latencies
    mine, peer = found["KafkaSink"], found["Spark's sink"]
    yield Ratio(
        "latency at a one-second trigger, KafkaSink / Spark's own Kafka sink, by p50",
        _shown(mine),
        _shown(peer),
        float(np.median(mine) / np.median(peer)),
        "<= 1.5",
    )


def _shown(latencies: list[float]) -> str:
    return ", ".join(f"p{quantile} {np.percentile(latencies, quantile):.2f} s" for quantile in (50, 99))


def _rows(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    return KafkaSource(servers, topics=topic).load(spark).select("key", "value")


def _ours(spark: SparkSession, servers: str, source: str, target: str, checkpoint: Path) -> Stop:
    job = Job(
        name=f"latency-{target}",
        checkpoint=checkpoint,
        pipeline=lambda session: _rows(session, servers, source),
        sinks=[KafkaSink(servers, topic=target)],
        trigger="1 second",
    )
    return job.start(spark).stop


def _theirs(spark: SparkSession, servers: str, source: str, target: str, checkpoint: Path) -> Stop:
    writer = _rows(spark, servers, source).writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", target).option("kafka.compression.type", "lz4").trigger(processingTime="1 second")
    return writer.option("checkpointLocation", str(checkpoint)).start().stop


class _Views(threading.Thread):
    """Sends a numbered record every hundredth of a second, and remembers when."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._topic = topic
        self._over = threading.Event()
        self.sent: list[float] = []

    def run(self) -> None:
        """Until told to end."""
        while not self._over.wait(EVERY_S):
            self.sent.append(time.perf_counter())
            number = len(self.sent) - 1
            self._producer.produce(self._topic, f"{number:0100}", str(number % 1000))
            self._producer.poll(0)
        self._producer.flush(30)

    def end(self) -> None:
        """And wait until all are sent."""
        self._over.set()
        self.join()


def _latencies(servers: str, source: str, target: str) -> list[float]:
    """Of the records that were sent in the measured time, which begins when the first ones have come through."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": target, "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
    )
    consumer.assign([kafka.TopicPartition(target, n, 0) for n in range(PARTITIONS)])
    views = _Views(servers, source)
    views.start()
    came: dict[int, float] = {}
    begin, give_up = float("inf"), time.perf_counter() + PATIENCE_S + WARM_UP_S + MEASURED_S
    while not (ended := not views.is_alive()) or len(came) < len(views.sent):
        message = consumer.poll(0.2)
        now = time.perf_counter()
        if message is not None and message.error() is None:
            number = int(message.value() or b"")
            if number in came:
                raise AssertionError(f"record {number} came twice")
            came[number] = now
            begin = min(begin, now + WARM_UP_S)
        if not ended and now > begin + MEASURED_S:
            views.end()
        if now > give_up:
            raise TimeoutError(f"{len(came)} of {len(views.sent)} records came")
    consumer.close()
    wanted = [number for number, sent in enumerate(views.sent) if begin <= sent <= begin + MEASURED_S]
    return [came[number] - views.sent[number] for number in wanted]
