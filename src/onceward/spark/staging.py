"""*Stage* on Spark: run `stage_slot` once for every partition of a micro-batch and bring the winners' acks home."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql import DataFrame

from onceward.contracts import EngineWritten
from onceward.epoch import EpochAssignment, SinkAck, SlotAck, stage_slot
from onceward.errors import Fenced, StagedRowsMissing
from onceward.spark.batches import BatchSize, gathered
from onceward.spark.counted import Observed, save_counted
from onceward.spark.first_rows import FirstRows
from onceward.spark.schema import arrow_schema

_BATCH_ID = "streaming.sql.batchId"
_ACKS = "slot int, ack string, row_bytes long"
_LONGEST_STOP_MS = 60_000
_STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


@dataclass(frozen=True, slots=True)
class StageTask:
    """What an executor runs for one partition: consumes the rows, yields one ack."""

    assignment: EpochAssignment
    schema: pa.Schema
    gather: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage this partition. The ack counts only if Spark takes this attempt for the winner."""
        context = TaskContext.get()
        if context is None:
            raise Fenced("a staging task runs outside Spark", epoch=self.assignment.epoch)
        running = context.getLocalProperty(_BATCH_ID)
        if running is not None and int(running) != self.assignment.epoch:
            raise Fenced(f"this task was started for epoch {running}", epoch=self.assignment.epoch)
        slot = context.partitionId()
        row_bytes = 0

        def passing() -> Iterator[pa.RecordBatch]:
            nonlocal row_bytes
            for batch in batches:
                row_bytes = max(row_bytes, batch.nbytes // max(1, batch.num_rows))
                yield in_utc(batch, self.schema)

        rows = gathered(passing()) if self.gather else passing()
        ack = stage_slot(self.assignment, slot=slot, attempt=context.taskAttemptId(), batches=rows)
        _spare_the_collector()
        yield pa.RecordBatch.from_pydict(
            {
                "slot": pa.array([slot], pa.int32()),
                "ack": pa.array([ack.to_json()], pa.string()),
                "row_bytes": pa.array([row_bytes], pa.int64()),
            }
        )


@functools.cache
def _spare_the_collector() -> None:
    """Once in each of Spark's workers, when everything is imported.

    After every task they search all that they have for garbage: 50 ms for the modules alone, as long as 50,000 rows.
    What is there now is left out of it from here on.
    """
    gc.collect()
    gc.freeze()


def in_utc(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Spark gives timestamps in the session's time zone; the sinks were checked with UTC, and get UTC. Columns are
    matched by place and get the names that the sinks were checked with.

    Types are compared as they print: below that, in the names inside a map, Spark and Arrow differ without meaning it,
    and casting such a column fails on its nulls.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if str(column.type) == str(wanted.type) else column.cast(wanted.type)
        for column, wanted in zip(batch.columns, schema, strict=True)
    ]
    fields = [wanted.with_type(column.type) for column, wanted in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def use_this_python(batch: DataFrame) -> None:
    """In local mode, let Spark's workers be of the interpreter that runs this driver, unless the user chose another.

    Spark takes `python3` from the PATH, which lacks our packages whenever a virtual environment is used without being
    activated.
    """
    context = batch.sparkSession.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not chosen:
        context.pythonExec = sys.executable


def stage_on_executors(batch: DataFrame, assignment: EpochAssignment, size: BatchSize) -> list[SlotAck]:
    """Every partition by its own task; `collect` returns the rows of winning attempts only."""
    size.set_for(batch.sparkSession)
    task = StageTask(assignment, arrow_schema(batch.schema), gather=bool(size.is_ours))
    observed = Observed(with_plain_names(batch))
    answers = observed.frame.mapInArrow(task, _ACKS).collect()
    if row_bytes := max((answer.row_bytes for answer in answers), default=0):
        size.learn(row_bytes)
    acks = [SlotAck.from_json(answer.ack) for answer in answers]
    _compare(assignment, counted=observed.rows(), staged=sum(ack.rows for ack in acks))
    return acks


def _compare(assignment: EpochAssignment, *, counted: int | None, staged: int, where: str = "") -> None:
    if counted != staged:
        said = "did not say how many rows it has computed" if counted is None else f"has counted {counted} rows"
        raise StagedRowsMissing(
            f"Spark {said}, and the driver on {platform.node()} finds {staged} of them staged{where}",
            epoch=assignment.epoch,
            hint="do driver and executors see one and the same folder there? Give a path on a file system that all of "
            "them have mounted. The epoch was aborted: nothing is decided and nothing is visible",
        )


def with_plain_names(batch: DataFrame) -> DataFrame:
    """PySpark looks columns up by name for `mapInArrow`, and takes a dot or a backtick in it for syntax.

    The task gives the columns their names back, by place: see `in_utc`.
    """
    if not any("." in name or "`" in name for name in batch.columns):
        return batch
    return batch.toDF(*(f"c{number}" for number in range(len(batch.columns))))


def stage_by_engine(batch: DataFrame, assignment: EpochAssignment) -> list[SlotAck] | None:
    """By Spark's own writer, as one slot, if the job's only sink can take what Spark has written; else None."""
    sink = assignment.sinks[0]
    if len(assignment.sinks) > 1 or not isinstance(sink, EngineWritten):
        return None
    context = assignment.context(sink.name, 0, 0)
    target = sink.engine_target(context, arrow_schema(batch.schema))
    if target is None:
        return None
    # Otherwise Spark's timestamps would be of another type than those that pass through Arrow. The session is the
    # stream's own copy, so nobody else is affected.
    batch.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    counted = save_counted(
        batch, target.folder, format=target.format, options=dict(target.options), by=target.partition_by
    )
    handle = sink.engine_pre_commit(context)
    rows = int(str(handle["rows"]))
    _compare(assignment, counted=counted, staged=rows, where=f" in {target.folder.removeprefix('file://')}")
    return [SlotAck(0, rows, (SinkAck.of(handle, context, sink.name),) if rows else ())]


def may_be_computed_twice(batch: DataFrame) -> bool:
    """Whether state is of the last computation of an epoch, as what is staged is.

    From version 2 of its checkpoints on, Spark keeps one state of each computation and goes on with that of the first,
    partition by partition. The session is the stream's own, with the version that its offset log has.
    """
    return int(batch.sparkSession.conf.get(_STATE_FORMAT, "1") or 1) < 2


def stage_on_driver(
    batch: DataFrame,
    assignment: EpochAssignment,
    most_rows: int,
    rows: FirstRows,
    stage: Callable[..., SlotAck] = stage_slot,
) -> list[SlotAck] | None:
    """The whole epoch as one slot, staged here, if it has no more than `most_rows`; None when it has more.

    Asking for one row more than allowed makes the answer certain and bounds what the driver holds: fewer rows than
    asked for means that every partition was read to its end, so nothing is missing and all state is committed. When it
    turns out too large nothing has been staged, and the executors compute it once more.
    """
    parts = rows.take(batch, most_rows + 1)
    if parts is None or sum(part.num_rows for part in parts) > most_rows:
        return None
    schema = rows.columns(batch)
    return [stage(assignment, slot=0, attempt=0, batches=[in_utc(part, schema) for part in parts])]


def consume(batch: DataFrame) -> None:
    """Read every row and keep none: a stateful query must be read to its end even when nothing is staged."""
    batch.write.format("noop").mode("overwrite").save()


def wait_to_be_interrupted(batch: DataFrame) -> None:
    """Hold Spark's stream thread, which runs this callback, until `query.stop()` interrupts it there."""
    jvm = batch.sparkSession.sparkContext._jvm
    with contextlib.suppress(Py4JJavaError):
        jvm.java.lang.Thread.sleep(_LONGEST_STOP_MS)  # type: ignore[union-attr]
