"""The first rows of an epoch, brought to the driver: of a small one, which it stages itself, all of them.

`limit(n)` and PySpark's way of collecting Arrow would do as well. They make a plan of their own, with a shuffle where
there is more than one partition, and a socket for the answer: that took two and a half times as long as asking the plan
that is there already. A class of ours inside the JVM asks it, in one call: step by step, from here, it would be twenty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame

from onceward.spark.cause import text_of
from onceward.spark.compiled import load_class
from onceward.spark.local_rows import LOCAL_ROWS
from onceward.spark.local_rows import SOURCE as LOCAL_SOURCE
from onceward.spark.schema import arrow_schema

_AT_ONCE: Final = "spark.sql.limit.initialNumPartitions"
_MOST_BYTES: Final = "spark.driver.maxResultSize"
_BATCH_BYTES: Final = 4 << 20
_ROW_BYTES: Final = 64
_MOST_MS: Final = 5_000
_FIRST_ROWS: Final = "onceward.FirstRows"
# Two fields of one name in a structure are an error, as they are for executors; texts are below 2 GB.
_SOURCE: Final = """
package onceward;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.arrow.ArrowConverters.ArrowBatchWithSchemaIterator;
import scala.collection.Iterator;
import scala.runtime.ScalaRunTime;

public class FirstRows {
    // Arrow streams, one behind the other.
    public static byte[] take(Dataset batch, int count, long batchBytes) throws IOException {
        return toArrow(batch, batch.queryExecution().executedPlan().executeTake(count), batchBytes);
    }

    public static byte[] toArrow(Dataset batch, InternalRow[] rows, long batchBytes) throws IOException {
        Iterator iterator = ScalaRunTime.genericWrapArray(rows).iterator();
        ArrowBatchWithSchemaIterator streams = ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
            iterator, batch.schema(), Math.max(1L, rows.length), batchBytes, "UTC", true, false);
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        try {
            while (streams.hasNext()) {
                found.write((byte[]) streams.next());
            }
        } finally {
            streams.close();
        }
        return found.toByteArray();
    }
}
"""


class FirstRows:
    """Of one query in one run. What does not change from epoch to epoch is looked up once."""

    def __init__(self) -> None:
        self._columns: pa.Schema | None = None
        self._java: Callable[[Any, int], bytes] | None = None

    def take(self, batch: DataFrame, count: int) -> list[pa.RecordBatch] | None:
        """At most so many. Fewer than that: these are all, and every partition was read to its end. None where even so
        many are more bytes than the driver takes."""
        if self._columns is None:
            self._columns = arrow_schema(batch.schema)
            _ask_at_once(batch)
            self._java = _in_java(batch)
        try:
            if self._java is None:
                return _by_a_query(batch, count)
            return _read(self._java(batch._jdf, count))
        except Exception as error:
            if _MOST_BYTES in text_of(error):
                return None
            raise

    def columns(self, batch: DataFrame) -> pa.Schema:
        """As the sinks were checked with."""
        return arrow_schema(batch.schema) if self._columns is None else self._columns


def _ask_at_once(batch: DataFrame) -> None:
    """One job for as many partitions as can run at once, where Spark would begin with one; of each of them the driver
    holds `count` rows at most. The session is the stream's own copy, so nobody else is affected."""
    session = batch.sparkSession
    session.conf.set(_AT_ONCE, str(session.sparkContext.defaultParallelism))


def _in_java(batch: DataFrame) -> Callable[[Any, int], bytes] | None:
    session = batch.sparkSession
    if not load_class(session, _FIRST_ROWS, _SOURCE):
        return None
    client = session._jvm._gateway_client  # type: ignore[union-attr]
    if load_class(session, LOCAL_ROWS, LOCAL_SOURCE):
        local = JavaClass(LOCAL_ROWS, client)
        return lambda frame, count: local.take(frame, count, _BATCH_BYTES, count * _ROW_BYTES, _MOST_MS)
    by_a_job = JavaClass(_FIRST_ROWS, client)
    return lambda frame, count: by_a_job.take(frame, count, _BATCH_BYTES)


def _by_a_query(batch: DataFrame, count: int) -> list[pa.RecordBatch]:
    """Not by `toArrow`, whose cast fails on a null around a map and changes types."""
    return list(batch.limit(count)._collect_as_arrow())  # type: ignore[operator]


def _read(streams: bytes) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    source = pa.BufferReader(streams)
    while source.tell() < source.size():
        found += pa.ipc.open_stream(source).read_all().to_batches()
    return found


def looks_small(batch: DataFrame, rows: int) -> bool:
    """Whether an epoch will hardly have more rows, by what Spark knows of its input before it reads it.

    That is the size of files. Other sources it takes for large. A wrong guess costs time only: see `first_rows`. On a
    cluster nothing looks small: there the first epoch of a run also shows that executors reach the targets.
    """
    if not (batch.sparkSession.sparkContext.master or "").startswith("local"):
        return False
    return int(batch._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()) <= rows * _ROW_BYTES
