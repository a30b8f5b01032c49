"""What Spark's types are in Arrow, as the sinks will see them."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from onceward.contracts import AnySink
from onceward.errors import TargetRefused
from onceward.logs import about

# PySpark 4.1 gives timestamps in UTC unless told otherwise, and later releases only if told so.
_TAKES_ZONE = "timezone" in inspect.signature(to_arrow_schema).parameters
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if _TAKES_ZONE else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of the batches that staging will get for this Spark schema."""
    try:
        return to_arrow_schema(schema, **_IN_UTC)
    except (PySparkTypeError, ValueError, pa.ArrowException):
        unfit = [field.name for field in schema if not _fits(field)]
        raise TargetRefused(
            f"the stream has columns of a type that Arrow does not have: {', '.join(unfit)}",
            hint="cast them in the query, for example to a string or a number",
        ) from None


def _fits(field: StructField) -> bool:
    try:
        to_arrow_schema(StructType([field]), **_IN_UTC)
    except (PySparkTypeError, ValueError, pa.ArrowException):
        return False
    return True


def check_sinks(sinks: tuple[AnySink, ...], schema: StructType, *, output_mode: str) -> None:
    """Ask every sink whether it can take rows like these, before any row moves."""
    if len(set(schema.names)) != len(schema.names):
        raise TargetRefused(
            f"the stream has two columns of one name: {schema.names}", hint="rename one of them with .alias(...)"
        )
    for sink in sinks:
        with about(sink=sink.name):
            sink.check(arrow_schema(schema), output_mode=output_mode)
