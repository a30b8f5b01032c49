"""The job that the crash tests run as a process of its own, with `onceward run`, and kill.

`ONCEWARD_TEST` tells it at which point of the protocol to die (itself, its JVM and its workers at once), to pause, or
to ask its JVM for more memory than it has. The points are reached by the job's hooks, by sinks that extend the real
ones, and by wrapping the protocol's own steps here: the library knows nothing of it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward import Hooks, Job
from onceward.contracts import Handle, Outcome, SlotValues
from onceward.epoch import Coordinator
from onceward.identity import JobIdentity, TransactionName
from onceward.journal import Register
from onceward.sinks import FileSink, SQLiteSink
from onceward.sinks.files.writer import SlotTransaction
from onceward.wal import SegmentStore

CONFIG: dict[str, Any] = json.loads(os.environ["ONCEWARD_TEST"])
WORK = Path(CONFIG["work"])


def reached(point: str, epoch: int) -> None:
    """Die or pause here, if that is what this start is for."""
    if epoch < CONFIG.get("epoch", 0):
        return
    if point == CONFIG.get("die"):
        note("deaths", f"{point} {epoch}")
        die()
    if point == CONFIG.get("exhaust") and (WORK / "exhaust").exists():
        gateway = SparkSession.active().sparkContext._gateway
        gateway.new_array(gateway.jvm.long, 1 << 30)
    if point == CONFIG.get("pause") and not (marker := WORK / f"paused-{point}").exists():
        marker.write_text(str(os.getpid()))
        while not (WORK / f"go-{point}").exists():
            threading.Event().wait(0.05)


def note(name: str, line: str) -> None:
    """Say to the test what happened."""
    with (WORK / name).open("a") as file:
        file.write(line + "\n")


def die() -> None:
    """As a power cut does it: everything of this session at once, nothing gets to clean up."""
    me, session = os.getpid(), os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != me and _session_of(int(entry.name)) == session:
            os.kill(int(entry.name), signal.SIGKILL)
    os.kill(me, signal.SIGKILL)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def in_recovery() -> bool:
    """Recovery runs where the job is started, its calls in a helper of that thread; the publisher has its own."""
    return threading.current_thread().name.startswith(threading.main_thread().name)


def held(point: str, transaction: str) -> None:
    """On an executor: the first attempt that comes here in the chosen epoch says where it runs, and goes no further."""
    name = TransactionName.parse(transaction)
    if name is None or CONFIG.get("hold", {}).get(point) != name.epoch:
        return
    try:
        with (WORK / f"held-{point}").open("x") as file:
            file.write(f"{os.getpid()}\n")
    except FileExistsError:
        return
    threading.Event().wait()


class Files(FileSink):
    """Dies between the commits or the aborts of two slots; is held in mid-stage, or before its ack."""

    def invoke(self, transaction: SlotTransaction, batch: pa.RecordBatch) -> None:
        super().invoke(transaction, batch)
        held("invoke", transaction.transaction)

    def pre_commit(self, transaction: SlotTransaction) -> Handle:
        handle = super().pre_commit(transaction)
        held("pre-commit", transaction.transaction)
        return handle

    def commit_all(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        first = super().commit_all(handles[:1])
        reached("recovery-publish" if in_recovery() else "slots", _epoch(handles[0]))
        return [*first, *super().commit_all(handles[1:])]

    def abort(self, handle: Handle) -> None:
        super().abort(handle)
        reached("recovery-abort" if in_recovery() else "abort", _epoch(handle))


class Table(SQLiteSink):
    """Dies before the epoch goes in (the files are published then), and after."""

    def send_transaction(
        self, slots: Sequence[SlotValues], job: JobIdentity, checkpoint_id: int, timestamp: datetime
    ) -> bool:
        reached("recovery-sinks" if in_recovery() else "sinks", checkpoint_id)
        sent = super().send_transaction(slots, job, checkpoint_id, timestamp)
        reached("recovery-sent" if in_recovery() else "sent", checkpoint_id)
        return sent


def _epoch(handle: Handle) -> int:
    name = TransactionName.parse(str(handle["transaction"]))
    return name.epoch if name else -1


def after(method: Callable[..., Any], point: str, epoch_of: Callable[..., int]) -> Callable[..., Any]:
    """The method, and then the point."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        reached(point, epoch_of(*args))
        return result

    return wrapped


def before(method: Callable[..., Any], point: str, epoch_of: Callable[..., int]) -> Callable[..., Any]:
    """The point, and then the method."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        reached(point, epoch_of(*args))
        return method(*args, **kwargs)

    return wrapped


Coordinator.pre_commit = after(Coordinator.pre_commit, "manifest", lambda _, order, *__: order.epoch)
Register.reserve = after(Register.reserve, "recovery-reserved", lambda _, epoch, *__: epoch)
SegmentStore.remove_epoch = before(SegmentStore.remove_epoch, "settled", lambda _, epoch: epoch)


def pipeline(spark: SparkSession) -> DataFrame:
    """One file an epoch, two slots, and a column that no repetition gives again."""
    note("starts", CONFIG.get("die", ""))
    rows = spark.readStream.schema("id long, file int").option("maxFilesPerTrigger", 1).json(str(WORK / "in"))
    return rows.repartition(2).withColumn("luck", F.rand())


job = Job(
    name="tested",
    checkpoint=WORK / "checkpoint",
    pipeline=pipeline,
    sinks=[Files(WORK / "out"), Table(WORK / "out.db", table="t")],
    trigger=CONFIG.get("trigger", "available-now"),
    small_epoch_rows=CONFIG.get("small", 0),
    hooks=Hooks(
        on_begin=lambda epoch: reached("begin", epoch),
        on_pre_commit=lambda epoch: reached("pre-commit", epoch),
        on_decision=lambda epoch: reached("decision", epoch),
    ),
)
