"""KafkaSink, exactly-once, with a million records of 100 bytes: against a bare transactional producer, and in a job
against Spark's own Kafka sink, which is at-least-once: as it comes, and as a careful user tunes it. Compressed by lz4
everywhere. The job's figure is for four such epochs, with start and end.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka as kafka
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import Ratio, interleaved, rates, session, share_of, timed
from onceward import Job
from onceward.contracts import Receipt, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import KafkaSink
from onceward.testing.servers import KafkaServer

ROWS = share_of(1_000_000)
SLOTS = 4
EPOCHS = 4
PARTITIONS = 4
ROWS_IN_A_BATCH = 10_000
OURS = "KafkaSink in a job"
TUNING = {"batch.size": "262144", "linger.ms": "5"}
DEFAULT = "Spark's Kafka sink, default"
TUNED = "Spark's Kafka sink, tuned (batch.size 262144, linger.ms 5)"
JOB = JobIdentity(JobName("bench"), Generation("aaaaaaaa"))


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """The same records, settings and topic; ours with a receipt, theirs without."""
    batches = _batches()
    with KafkaServer() as server:
        topic = server.create_topic("rows", partitions=PARTITIONS)
        sink = KafkaSink(server.bootstrap, topic=topic, name="kafka")
        sink.check(batches[0].schema, output_mode="append")
        bare = kafka.Producer(sink.settings.producer("bare"))
        bare.init_transactions(30)
        epochs = itertools.count()

        def ours() -> float:
            epoch = next(epochs)
            slots = _slots(sink, batches, epoch)
            return timed(lambda: sink.send_transaction(slots, JOB, epoch, datetime.now(UTC)))

        def theirs() -> float:
            return timed(lambda: _send(bare, topic, batches))

        medians = interleaved({"KafkaSink": ours, "bare producer": theirs}, repeats=3, console=console)
        _check(server, topic, 8 * ROWS)
        by_job = interleaved(job_contenders(folder, session(), server), repeats=3, console=console)
    yield rates(
        f"KafkaSink / bare transactional producer, {ROWS:,} records of 100 bytes",
        rows=ROWS,
        ours=medians["KafkaSink"],
        peer=medians["bare producer"],
        goal=">= 0.7",
    )
    for peer in (DEFAULT, TUNED):
        what = f"{OURS} / {peer}, {EPOCHS} epochs of {ROWS:,} records of 100 bytes"
        yield rates(what, rows=EPOCHS * ROWS, ours=by_job[OURS], peer=by_job[peer], goal=">= 0.8")


def job_contenders(folder: Path, spark: SparkSession, server: KafkaServer) -> dict[str, Callable[[], float]]:
    """Ours, and Spark's own sink in both ways, each into a topic of its own."""
    source = source_in(folder)
    numbers = itertools.count()

    def rows(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 2)
        return reader.parquet(str(source))

    def ours(topic: str) -> float:
        number = next(numbers)
        job = Job(
            name=f"bench-{number}",
            checkpoint=folder / f"checkpoint-{number}",
            pipeline=rows,
            sinks=[KafkaSink(server.bootstrap, topic=topic)],
            trigger="available-now",
        )
        return timed(lambda: job.run(spark))

    def theirs(topic: str, **settings: str) -> float:
        writer = rows(spark).writeStream.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
        writer = writer.option("topic", topic).option("kafka.compression.type", "lz4").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{next(numbers)}"))
        writer = writer.options(**{f"kafka.{name}": value for name, value in settings.items()})
        return timed(lambda: writer.start().awaitTermination())

    return {
        OURS: lambda: into_a_topic(server, ours),
        DEFAULT: lambda: into_a_topic(server, theirs),
        TUNED: lambda: into_a_topic(server, lambda topic: theirs(topic, **TUNING)),
    }


def source_in(folder: Path) -> Path:
    """The records of every epoch, in two files each."""
    source = folder / "in"
    if not source.exists():
        source.mkdir(parents=True)
        batches = _batches()
        for number in range(2 * EPOCHS):
            half = batches[: len(batches) // 2] if number % 2 else batches[len(batches) // 2 :]
            pq.write_table(pa.Table.from_batches(half), source / f"{number}.parquet")
    return source


def into_a_topic(server: KafkaServer, deliver: Callable[[str], float]) -> float:
    """Into a topic that is removed afterwards. Speed counts only if all records are there, and all are committed.

    Besides records a partition has a marker or two of each transaction, which are few.
    """
    topic = server.create_topic(f"job-{secrets.token_hex(4)}", partitions=PARTITIONS)
    seconds = deliver(topic)
    committed, written = (_ends(server, topic, level) for level in ("read_committed", "read_uncommitted"))
    if committed != written or not 0 <= committed - EPOCHS * ROWS < 0.01 * EPOCHS * ROWS:
        raise AssertionError(f"{topic} ends at {committed} (committed) and {written}, not at {EPOCHS * ROWS}")
    server.delete_topics(topic)
    return seconds


def _batches() -> list[pa.RecordBatch]:
    chance = np.random.default_rng(20261116)
    letters = chance.integers(97, 123, (ROWS, 100), dtype=np.uint8)
    offsets = pa.py_buffer(np.arange(0, 100 * ROWS + 1, 100, dtype=np.int32))
    values = pa.StringArray.from_buffers(ROWS, offsets, pa.py_buffer(letters.tobytes()))
    keys = pa.array(chance.integers(0, 10_000, ROWS)).cast(pa.string())
    return pa.table({"key": keys, "value": values}).to_batches(max_chunksize=ROWS_IN_A_BATCH)


def _slots(sink: KafkaSink, batches: list[pa.RecordBatch], epoch: int) -> list[SlotValues]:
    each = len(batches) // SLOTS
    slots = []
    for slot in range(SLOTS):
        share = batches[slot * each : (slot + 1) * each]
        receipt = Receipt(JOB.name, JOB.generation, sink.name, epoch, slot, Fingerprint("a" * 16))
        slots.append(SlotValues(slot, each * ROWS_IN_A_BATCH, receipt, lambda share=share: iter(share)))
    return slots


def _send(producer: kafka.Producer, topic: str, batches: list[pa.RecordBatch]) -> None:
    """As one would write it by hand."""
    producer.begin_transaction()
    for batch in batches:
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    producer.commit_transaction(60)


def _check(server: KafkaServer, topic: str, expected: int) -> None:
    """Speed counts only if all records are there. A marker of each transaction stands in every partition."""
    found, transactions = _ends(server, topic, "read_committed"), expected // ROWS
    if found != expected + transactions * PARTITIONS:
        raise AssertionError(f"Kafka has {found} records and markers, not {expected} and {transactions} a partition")


def _ends(server: KafkaServer, topic: str, level: str) -> int:
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "bench", "isolation.level": level}
    consumer = kafka.Consumer(settings)
    places = [kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    consumer.close()
    return ends
