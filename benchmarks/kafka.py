"""KafkaSink, exactly-once, with a million records of 100 bytes: against a bare transactional producer, and in a job
against Spark's own Kafka sink, which is at-least-once: as it comes, and as a careful user tunes it. The job's figure is
for four such epochs, with start and end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka as kafka
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.measure import Ratio, interleaved, session, timed
from onceward import Job
from onceward.contracts import Receipt, SlotValues
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName
from onceward.sinks import KafkaSink
from onceward.testing.servers import KafkaServer

ROWS = 1_000_000
SLOTS = 4
EPOCHS = 4
PARTITIONS = 4
ROWS_IN_A_BATCH = 10_000
TUNED = {"kafka.batch.size": "262144", "kafka.linger.ms": "5"}
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
        by_job = _through_spark(folder, server, batches, console)
    mine, peer = ROWS / medians["KafkaSink"], ROWS / medians["bare producer"]
    yield Ratio(
        "KafkaSink / bare transactional producer, 1 M records of 100 bytes",
        f"{mine:,.0f} rows/s",
        f"{peer:,.0f} rows/s",
        mine / peer,
        ">= 0.7",
    )
    for peer_name, told, goal in (
        ("Spark's sink", "Spark's own Kafka sink", ">= 0.8"),
        ("Spark's sink, tuned", "the same with batch.size=262144, linger.ms=5", ">= 0.8"),
    ):
        mine, peer = EPOCHS * ROWS / by_job["KafkaSink"], EPOCHS * ROWS / by_job[peer_name]
        yield Ratio(
            f"KafkaSink in a job / {told}, 4 epochs of 1 M records of 100 bytes",
            f"{mine:,.0f} rows/s",
            f"{peer:,.0f} rows/s",
            mine / peer,
            goal,
        )


def _through_spark(
    folder: Path, server: KafkaServer, batches: list[pa.RecordBatch], console: Console
) -> dict[str, float]:
    spark = session()
    (folder / "in").mkdir(parents=True)
    for number in range(2 * EPOCHS):
        half = batches[: len(batches) // 2] if number % 2 else batches[len(batches) // 2 :]
        pq.write_table(pa.Table.from_batches(half), folder / "in" / f"{number}.parquet")
    topic = server.create_topic("through-spark", partitions=PARTITIONS)
    numbers = itertools.count()

    def rows(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 2)
        return reader.parquet(str(folder / "in"))

    def ours() -> float:
        number = next(numbers)
        job = Job(
            name=f"bench-{number}",
            checkpoint=folder / f"checkpoint-{number}",
            pipeline=rows,
            sinks=[KafkaSink(server.bootstrap, topic=topic)],
            trigger="available-now",
        )
        return timed(lambda: job.run(spark))

    def theirs(**tuned: str) -> float:
        writer = rows(spark).writeStream.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)
        writer = writer.option("topic", topic).option("kafka.compression.type", "lz4").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{next(numbers)}")).options(**tuned)
        return timed(lambda: writer.start().awaitTermination())

    contenders = {"KafkaSink": ours, "Spark's sink": theirs, "Spark's sink, tuned": lambda: theirs(**TUNED)}
    return interleaved(contenders, repeats=3, console=console)


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
    consumer = kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench"})
    ends = [consumer.get_watermark_offsets(kafka.TopicPartition(topic, n), timeout=10)[1] for n in range(PARTITIONS)]
    consumer.close()
    transactions = expected // ROWS
    if sum(ends) != expected + transactions * PARTITIONS:
        raise AssertionError(
            f"Kafka has {sum(ends)} records and markers, not {expected} and {transactions} a partition"
        )
