"""The first rows of an epoch, brought to the driver: of a small one, which it stages itself, all of them.

`limit(n)` and PySpark's way of collecting Arrow would do as well. They make a plan of their own, with a shuffle where
there is more than one partition, and a socket for the answer: that took two and a half times as long as asking the plan
that is there already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame

from onceward.spark.cause import text_of
from onceward.spark.schema import arrow_schema

log = logging.getLogger("onceward")

_AT_ONCE: Final = "spark.sql.limit.initialNumPartitions"
_MOST_BYTES: Final = "spark.driver.maxResultSize"
_CONVERTERS: Final = "org.apache.spark.sql.execution.arrow.ArrowConverters$"
_SCALA: Final = "scala.runtime.ScalaRunTime"
_BATCH_BYTES: Final = 4 << 20
_ROW_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class _Known:
    """What is the same in every epoch of a run: the columns, and where the JVM has what is called."""

    columns: pa.Schema
    schema: Any
    converters: Any
    wrapped: Callable[[Any], Any]


class FirstRows:
    """Of one query in one run. A question to the JVM takes a good part of a millisecond, and an epoch may have only a
    few: what does not change is asked once."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def take(self, batch: DataFrame, count: int) -> list[pa.RecordBatch] | None:
        """At most so many. Fewer than that: these are all, and every partition was read to its end. None where even so
        many are more bytes than the driver takes."""
        if self._known is None:
            _ask_at_once(batch)
        rows = _taken(batch._jdf.queryExecution().executedPlan(), count)
        if rows is None:
            return None
        try:
            self._known = self._known or _look_up(batch)
            return _in_arrow(self._known, rows, count)
        except Py4JJavaError:
            raise
        except Py4JError as error:
            # These are no interfaces that Spark promises to keep.
            log.debug("this Spark has no such way to Arrow, so a slower one is taken: %s", error)
            return _by_a_query(batch, count)

    def columns(self, batch: DataFrame) -> pa.Schema:
        """As the sinks were checked with."""
        return arrow_schema(batch.schema) if self._known is None else self._known.columns


def _ask_at_once(batch: DataFrame) -> None:
    """One job for as many partitions as can run at once, where Spark would begin with one; of each of them the driver
    holds `count` rows at most. The session is the stream's own copy, so nobody else is affected."""
    session = batch.sparkSession
    session.conf.set(_AT_ONCE, str(session.sparkContext.defaultParallelism))


def _look_up(batch: DataFrame) -> _Known:
    client = batch.sparkSession._jvm._gateway_client  # type: ignore[union-attr]
    # By their full names: looking packages up takes a call for every part of one.
    converters = getattr(JavaClass(_CONVERTERS, client), "MODULE$")
    return _Known(
        arrow_schema(batch.schema), batch._jdf.schema(), converters, JavaClass(_SCALA, client).genericWrapArray
    )


def _taken(plan: Any, count: int) -> Any | None:
    try:
        return plan.executeTake(count)
    except Exception as error:
        if _MOST_BYTES in text_of(error):
            return None
        raise


def _by_a_query(batch: DataFrame, count: int) -> list[pa.RecordBatch]:
    """Not by `toArrow`, whose cast fails on a null around a map and changes types."""
    return list(batch.limit(count)._collect_as_arrow())  # type: ignore[operator]


def _in_arrow(known: _Known, rows: Any, count: int) -> list[pa.RecordBatch]:
    # Two fields of one name in a structure are an error, as they are for executors; texts are below 2 GB.
    iterator = known.wrapped(rows).iterator()
    streams = known.converters.toBatchWithSchemaIterator(
        iterator, known.schema, count, _BATCH_BYTES, "UTC", True, False
    )
    found: list[pa.RecordBatch] = []
    try:
        while streams.hasNext():
            found += pa.ipc.open_stream(streams.next()).read_all().to_batches()
    finally:
        streams.close()
    return found


def looks_small(batch: DataFrame, rows: int) -> bool:
    """Whether an epoch will hardly have more rows, by what Spark knows of its input before it reads it.

    That is the size of files. Other sources it takes for large. A wrong guess costs time only: see `first_rows`. On a
    cluster nothing looks small: there the first epoch of a run also shows that executors reach the targets.
    """
    if not (batch.sparkSession.sparkContext.master or "").startswith("local"):
        return False
    return int(batch._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()) <= rows * _ROW_BYTES
