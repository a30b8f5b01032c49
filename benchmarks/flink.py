"""FileSink and KafkaSink against Flink's exactly-once file and Kafka sinks, and Spark's own beside them: the same rows,
cores, broker, format and compression. Only when named, `python -m benchmarks flink`, after `tools/setup-flink`.

Flink reads and writes in Java alone, through SQL tables; Python only says what to run. Its checkpoints are where its
rows become visible, as they do with our epochs: every two seconds. It waits for the next one when the input has ended,
a second on average. By the clock its time begins when its cluster is up, and ours with `run`; processor time has
the planning and the start of the cluster in it, which every job of Flink pays here, and no waiting.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import files, kafka
from benchmarks.measure import NO_GOAL, Ratio, processor_seconds, rates, rounds, session
from onceward.testing.servers import KafkaServer

HOME = Path(__file__).resolve().parent.parent / ".flink"
INTERVAL = "2s"
REPEATS = 3
COLUMNS = "id BIGINT, app STRING, `value` DOUBLE, ts TIMESTAMP(6)"
RECORDS = "`key` STRING, `value` STRING"
FILES = "Flink's file sink, exactly-once"
DEFAULT = "Flink's Kafka sink, exactly-once, default"
TUNED = "Flink's Kafka sink, exactly-once, tuned (batch.size 262144, linger.ms 5)"


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """First files, then Kafka."""
    if not (HOME / ".ready").exists():
        raise SystemExit("Flink is not set up: run tools/setup-flink, once")
    spark = session()
    with Flink(folder / "flink.log") as flink:
        yield from beside_files(flink, folder / "files", spark, console)
        yield from beside_kafka(flink, folder / "kafka", spark, console)


def beside_files(flink: Flink, folder: Path, spark: SparkSession, console: Console) -> Iterator[Ratio]:
    """The rows of `benchmarks files`."""
    contenders = files.contenders(folder, spark) | {FILES: _into_files(flink, folder)}
    yield from _compared(contenders, files.OURS, f"{files.ROWS:,} rows", rows=files.ROWS, console=console)


def beside_kafka(flink: Flink, folder: Path, spark: SparkSession, console: Console) -> Iterator[Ratio]:
    """The records of `benchmarks kafka`."""
    rows = kafka.EPOCHS * kafka.ROWS
    with KafkaServer() as server:
        contenders = kafka.job_contenders(folder, spark, server)
        contenders[DEFAULT] = _into_kafka(flink, folder, server)
        contenders[TUNED] = _into_kafka(flink, folder, server, **kafka.TUNING)
        yield from _compared(contenders, kafka.OURS, f"{rows:,} records of 100 bytes", rows=rows, console=console)


def _compared(
    contenders: Mapping[str, Callable[[], float]], ours: str, what: str, *, rows: int, console: Console
) -> Iterator[Ratio]:
    """By the clock and by the processor, from the same rounds. The first round of each warms it up."""
    spent: dict[str, list[float]] = {name: [] for name in contenders}

    def counted(name: str) -> Callable[[], float]:
        def work() -> float:
            seconds: list[float] = []
            spent[name].append(processor_seconds(lambda: seconds.append(contenders[name]())))
            return seconds[0]

        return work

    clock = rounds({name: counted(name) for name in contenders}, repeats=REPEATS, console=console)
    medians = {name: statistics.median(values) for name, values in clock.items()}
    processor = {name: statistics.median(values[1:]) for name, values in spent.items()}
    for peer in (name for name in contenders if name != ours):
        yield rates(f"{ours} / {peer}, {what}", rows=rows, ours=medians[ours], peer=medians[peer])
        mine, theirs = processor[ours], processor[peer]
        yield Ratio(
            f"the same by processor time, {ours} / {peer}", f"{mine:.1f} s", f"{theirs:.1f} s", mine / theirs, NO_GOAL
        )


def _into_files(flink: Flink, folder: Path) -> Callable[[], float]:
    numbers = itertools.count()
    tables = [
        _table("source", COLUMNS, connector="filesystem", path=files.source_in(folder).as_uri(), format="parquet")
    ]

    def deliver() -> float:
        out = folder / f"flink-{next(numbers)}"
        settings = {"path": out.as_uri(), "format": "parquet", "parquet.compression": "SNAPPY"}
        seconds = flink.insert([*tables, _table("target", COLUMNS, connector="filesystem", **settings)], folder)
        files.check(out)
        return seconds

    return deliver


def _into_kafka(flink: Flink, folder: Path, server: KafkaServer, **tuning: str) -> Callable[[], float]:
    source = kafka.source_in(folder).as_uri()
    tables = [_table("source", RECORDS, connector="filesystem", path=source, format="parquet")]

    def deliver(topic: str) -> float:
        settings = {
            "topic": topic,
            "key.format": "raw",
            "key.fields": "key",
            "value.format": "raw",
            "value.fields-include": "EXCEPT_KEY",
            "sink.partitioner": "default",
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": topic,
            "properties.bootstrap.servers": server.bootstrap,
            "properties.compression.type": "lz4",
            "properties.transaction.timeout.ms": "600000",
            **{f"properties.{name}": value for name, value in tuning.items()},
        }
        return flink.insert([*tables, _table("target", RECORDS, connector="kafka", **settings)], folder)

    return lambda: kafka.into_a_topic(server, deliver)


def _table(name: str, columns: str, **settings: str) -> str:
    told = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({told})"


@dataclass
class Flink:
    """A process with PyFlink in it, which runs one job after the other."""

    log: Path

    def __enter__(self) -> Flink:
        """Start it. Java gets the memory and the collector that Spark's gets."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [HOME / "venv/bin/python", Path(__file__).with_name("flink_once.py"), HOME / "jars"]
        # PYTHONPATH is for our own Python: PyFlink has other releases of the same libraries.
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FLINK_HOME")}
        pipe: Any = subprocess.PIPE
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=pipe,
            stdout=pipe,
            stderr=self.log.open("w"),
            text=True,
            env=inherited | {"JVM_ARGS": "-Xmx4g -XX:+UseSerialGC"},
        )
        return self

    def insert(self, tables: list[str], folder: Path) -> float:
        """Everything from `source` into `target`; the seconds it took."""
        settings = {
            "execution.checkpointing.interval": INTERVAL,
            "execution.checkpointing.dir": (folder / "flink-checkpoints").as_uri(),
        }
        insert = "INSERT INTO target SELECT * FROM source"
        asked, answers = self._pipes()
        asked.write(json.dumps({"settings": settings, "tables": tables, "insert": insert}) + "\n")
        asked.flush()
        for line in answers:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError(f"Flink failed:\n{self.log.read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        """It ends with its input; not in the middle of a job, where whoever is interrupted has no time to wait."""
        asked, _answers = self._pipes()
        asked.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout
