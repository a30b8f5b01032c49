"""What the tests of this folder stand on: source files, targets, and how to read and judge them."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import Job
from onceward.contracts import Sink
from onceward.identity import TransactionName
from onceward.sinks import FileSink, SQLiteSink
from onceward.sinks.files.layout import FinalName
from onceward.spark.checkpoint import SparkLogs
from onceward.testing import audit

ROWS = 40
"""Rows in each source file."""

PATIENCE_S = 240.0
"""How long a test waits for what must happen. Far longer than it takes, because machines can be busy."""

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.daemon.module": "spark.python_daemon",
}


def python_path() -> str:
    """Where Spark's Python workers find onceward and these tests."""
    tests = Path(__file__).resolve().parent.parent
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    wanted = [str(tests.parent / "src"), str(tests)]
    return os.pathsep.join([*wanted, *(entry for entry in known if entry and entry not in wanted)])


def wait_until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Look again and again until it is so, for a tenth of the time at most: who is waited for needs the processor."""
    deadline, never = time.monotonic() + timeout_s, threading.Event()
    while True:
        began = time.monotonic()
        if condition():
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for nothing: {what}")
        never.wait(max(0.02, 9 * (time.monotonic() - began)))


@dataclass(frozen=True)
class SparkWorkspace:
    """A folder with one job's source, checkpoint and targets."""

    work: Path

    @property
    def source(self) -> Path:
        return self.work / "in"

    @property
    def checkpoint(self) -> Path:
        return self.work / "checkpoint"

    @property
    def files(self) -> Path:
        return self.work / "out"

    @property
    def database(self) -> Path:
        return self.work / "out.db"

    @property
    def logs(self) -> SparkLogs:
        return SparkLogs(self.checkpoint)

    def add_files(self, count: int, rows: int = ROWS) -> None:
        """More source files; each is one epoch, because the source takes one at a time, the oldest first."""
        self.source.mkdir(parents=True, exist_ok=True)
        present = sorted(self.source.glob("*.json"))
        first_id = sum(len(path.read_text().splitlines()) for path in present)
        for number in range(len(present), len(present) + count):
            lines = [json.dumps({"id": first_id + i, "file": number}) for i in range(rows)]
            hidden = self.source / f".{number:05}"
            hidden.write_text("\n".join(lines))
            os.utime(hidden, (1_600_000_000 + number, 1_600_000_000 + number))
            hidden.rename(self.source / f"{number:05}.json")
            first_id += rows

    def ids(self) -> list[int]:
        """What the source has."""
        paths = sorted(self.source.glob("*.json"))
        return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]

    def stream(self, spark: SparkSession) -> DataFrame:
        """The source as a stream, one file an epoch."""
        return spark.readStream.schema("id long, file int").option("maxFilesPerTrigger", 1).json(str(self.source))

    def lucky(self, spark: SparkSession) -> DataFrame:
        """Two slots an epoch, and a column that no repetition gives again."""
        return self.stream(spark).repartition(2).withColumn("luck", F.rand())

    def job(self, sinks: Sequence[Sink] = (), **options: Any) -> Job:
        """Files and a table, available-now, unless said otherwise."""
        both = [FileSink(self.files), SQLiteSink(self.database, table="t")]
        settings: dict[str, Any] = {
            "name": "tested",
            "checkpoint": self.checkpoint,
            "pipeline": self.lucky,
            "trigger": "available-now",
            **options,
        }
        return Job(sinks=sinks or both, **settings)

    def forget_commit(self, epoch: int) -> None:
        """As a power loss may. Hadoop's checksum goes as well: it would keep Spark from writing the entry again."""
        (self.checkpoint / "commits" / str(epoch)).unlink()
        (self.checkpoint / "commits" / f".{epoch}.crc").unlink()

    def in_files(self) -> list[dict[str, Any]]:
        """What a plain reader of the directory sees."""
        return read_files(visible(self.files))

    def in_table(self, query: str = "SELECT * FROM t ORDER BY rowid") -> list[dict[str, Any]]:
        """What a reader of the database sees."""
        with closing(sqlite3.connect(self.database, timeout=30)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(query)]

    def expect_exactly_once(self) -> None:
        """Every source row once in each target, and both have the same computation of it."""
        files, table = self.in_files(), self.in_table()
        for rows in (files, table):
            expect_exactly_once(rows, self.ids())
        assert {row["id"]: row["luck"] for row in files} == {row["id"]: row["luck"] for row in table}
        epochs = self.epochs_of(row["file"] for row in table)
        assert epochs == sorted(epochs), "epochs out of order"

    def epochs_of(self, files: Iterable[int]) -> list[int]:
        """The epoch of each file, by Spark's log. A driver that dies between Spark's logs can leave one with two."""
        offsets = self.checkpoint / "offsets"
        entries = [(offsets / str(epoch)).read_text() for epoch in range(self.logs.planned() + 1)]
        last = [json.loads(entry.splitlines()[-1])["logOffset"] for entry in entries]
        return [bisect_left(last, file) for file in files]

    def expect_nothing_staged(self) -> None:
        """No hidden file, no segment, no manifest is left."""
        hidden = self.files / ".onceward"
        assert not (list(hidden.iterdir()) if hidden.exists() else [])
        assert not [p for p in (self.checkpoint / "onceward" / "wal").rglob("*") if p.is_file()]
        assert not list((self.checkpoint / "onceward" / "manifests").glob("*"))


def expect_exactly_once(rows: Sequence[dict[str, Any]], ids: Iterable[int]) -> None:
    """Judged by the public audit."""
    verdict = audit(rows, ids, key_column=None, epoch_column=None)
    assert verdict.exactly_once, verdict.summary()


def visible(folder: Path) -> list[Path]:
    """A plain directory listing, as any other tool would make it."""
    return sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")


def read_files(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of these files, whole."""
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def epoch_of(path: Path) -> int:
    """The epoch that a published file belongs to, by its name."""
    final = FinalName.parse(path.name)
    owner = TransactionName.parse(final.transaction) if final else None
    if owner is None:
        raise ValueError(f"{path.name} is not a published file")
    return owner.epoch


def python() -> str:
    """The interpreter for processes that tests start."""
    return sys.executable
