"""A savepoint of 2 GB of state beside a plain recursive copy of its checkpoint, and what it costs a running job."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import shutil
import statistics
import struct
import subprocess
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.measure import NO_GOAL, SHARE, Ratio, rounds, session, timed
from benchmarks.small import ten_rows_a_file
from onceward import Job
from onceward.clock import SystemClock
from onceward.identity import Generation, JobName
from onceward.journal import IdentityFile, IdentityRecord
from onceward.savepoints import restore_savepoint, take
from onceward.savepoints.copying import BESIDE_A_JOB
from onceward.savepoints.progress import Progress
from onceward.sinks import SQLiteSink
from onceward.storage import LocalStorage, sync_file_system

REPEATS = 5
PARTITIONS, TABLES, TABLE_BYTES = 8, 4, int((64 << 20) * SHARE)
"""As RocksDB leaves it: a snapshot a partition that names table files of 64 MB, and a few changes since."""
_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run(folder: Path, console: Console) -> Iterator[Ratio]:
    """Takes and copies in turns, each forced to the disk; then epochs with and without a take beside them."""
    checkpoint = large_checkpoint(folder / "large")
    numbers = itertools.count()

    def saved() -> float:
        into = folder / f"saved-{next(numbers)}"
        took = timed(lambda: take(checkpoint, into, clock=SystemClock(), spark="4.3.0"))
        shutil.rmtree(into)
        sync_file_system(folder)
        return took

    def copied(*, is_synced: bool) -> float:
        into = folder / f"copy-{next(numbers)}"
        into.mkdir(parents=True)

        def copy() -> None:
            subprocess.run(["cp", "-r", str(checkpoint), str(into)], check=True)
            if is_synced:
                sync_file_system(into)

        took = timed(copy)
        shutil.rmtree(into)
        sync_file_system(folder)
        return took

    size = PARTITIONS * TABLES * TABLE_BYTES / 1e9
    ways = {"take": saved, "cp -r, sync": lambda: copied(is_synced=True), "cp -r": lambda: copied(is_synced=False)}
    seconds = rounds(ways, repeats=REPEATS, console=console)
    yield _speed(f"savepoint of {size:.1f} GB / cp -r, both synced", seconds["take"], seconds["cp -r, sync"], ">= 0.7")
    yield _speed("the same / cp -r that is not synced", seconds["take"], seconds["cp -r"], NO_GOAL)
    one = take(checkpoint, folder / "kept", clock=SystemClock(), spark="4.3.0")
    restored = rounds({"restore": lambda: _restored(one.path, folder / "restored")}, repeats=3, console=console)
    yield _speed("restore / cp -r, both synced", restored["restore"], seconds["cp -r, sync"], NO_GOAL)
    yield from _beside_a_job(folder, checkpoint, console)


def _restored(path: Path, target: Path) -> float:
    took = timed(lambda: restore_savepoint(path, target))
    shutil.rmtree(target)
    return took


def _speed(what: str, ours: list[float], peer: list[float], goal: str) -> Ratio:
    size = PARTITIONS * TABLES * TABLE_BYTES
    mine, theirs = statistics.median(ours), statistics.median(peer)
    speeds = f"{size / mine / 1e6:,.0f} MB/s", f"{size / theirs / 1e6:,.0f} MB/s"
    return Ratio(what, speeds[0], speeds[1], theirs / mine, goal)


def _beside_a_job(folder: Path, checkpoint: Path, console: Console) -> Iterator[Ratio]:
    """A take of the large checkpoint after another, by a thread of the driver, as its API does it."""
    spark, source, numbers = session(), ten_rows_a_file(folder / "source"), itertools.count()

    def deliver() -> float:
        work = folder / f"work-{next(numbers)}"
        work.mkdir(parents=True)
        return timed(lambda: _job(work, source).run(spark))

    def deliver_beside() -> float:
        ended = threading.Event()

        def takes() -> None:
            with contextlib.suppress(_Ended):
                while True:
                    one = take(
                        checkpoint,
                        folder / "beside",
                        clock=SystemClock(),
                        spark="4.3.0",
                        progress=_Until(ended),
                        pace=BESIDE_A_JOB,
                    )
                    shutil.rmtree(one.path)

        taking = threading.Thread(target=takes)
        taking.start()
        try:
            return deliver()
        finally:
            ended.set()
            taking.join()

    deliver()
    seconds = rounds({"beside": deliver_beside, "alone": deliver}, repeats=3 * REPEATS, console=console)
    both = list(zip(seconds["beside"], seconds["alone"], strict=True))
    ours, peer = (f"{statistics.median(values):.2f} s" for values in zip(*both, strict=True))
    cost = statistics.median(beside / alone for beside, alone in both)
    yield Ratio("epochs of 10 rows, takes without a pause beside / alone", ours, peer, cost, "<= 1.10")


class _Ended(Exception):
    """The job that was to be measured has ended, and so does the take."""


class _Until(Progress):
    """Of a take that goes on for as long as the job beside it."""

    def __init__(self, ended: threading.Event) -> None:
        super().__init__()
        self._has_ended = ended

    def add(self, count: int) -> None:
        if self._has_ended.is_set():
            raise _Ended
        super().add(count)


def _job(work: Path, source: Path) -> Job:
    def rows(spark: SparkSession):
        return spark.readStream.schema("id long, app string").option("maxFilesPerTrigger", 1).json(str(source))

    sinks = [SQLiteSink(work / "out.db", table="rows")]
    return Job(name="bench", checkpoint=work / "checkpoint", pipeline=rows, sinks=sinks, trigger="available-now")


def large_checkpoint(root: Path) -> Path:
    """In Spark's form, with Hadoop's checksums beside the files; its content is noise."""
    conf = {"spark.sql.shuffle.partitions": str(PARTITIONS), f"{_STORE}.providerClass": _PROVIDER}
    conf[f"{_STORE}.compression.codec"] = "lz4"
    barrier = "v1\n" + json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}) + "\n{}"
    for name, text in (("offsets/0", barrier), ("offsets/1", barrier), ("commits/1", "v1\n{}")):
        _written(root / name, text.encode())
    _written(root / "metadata", b'{"id":"0d3b4f5e-9a3d-4f39-a5bd-6b3b0c3a9a11"}')
    table = os.urandom(TABLE_BYTES)
    sums = _sums(table)
    stores = [{"storeName": "default", "numPartitions": PARTITIONS}]
    described = {"operatorInfo": {"operatorId": 0, "operatorName": "dedupe"}, "stateStoreInfo": stores}
    _written(root / "state" / "0" / "_metadata" / "metadata", b"v1\n" + json.dumps(described).encode())
    for partition in range(PARTITIONS):
        store = root / "state" / "0" / str(partition)
        names = [f"{number:06}-{partition}.sst" for number in range(TABLES)]
        for name in names:
            _written(store / "SSTs" / name, table)
            _written(store / "SSTs" / f".{name}.crc", sums)
        _written(store / "2.zip", _snapshot(names))
    record = IdentityRecord(0, JobName("large"), Generation("abcdefgh"), (), 1, "elsewhere")
    IdentityFile(LocalStorage(root / "onceward")).create(record)
    sync_file_system(root)
    return root


def _snapshot(names: list[str]) -> bytes:
    tables = [{"localFileName": one, "dfsSstFileName": one, "sizeBytes": TABLE_BYTES} for one in names]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("metadata", "v1\n" + json.dumps({"sstFiles": tables, "logFiles": [], "numKeys": 1}))
    return archive.getvalue()


def _sums(data: bytes) -> bytes:
    chunks = (zlib.crc32(data[at : at + 512]) for at in range(0, len(data), 512))
    return b"crc\0" + struct.pack(">i", 512) + b"".join(struct.pack(">I", one) for one in chunks)


def _written(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
