"""Types in messages are named as Spark names them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from onceward.sinks.spark_types import spark_type
from onceward.spark.schema import arrow_schema

TYPES = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(38,18)",
    "interval day to second",
    "array<int>",
    "map<string,bigint>",
    "struct<a:int,b:array<timestamp>>",
]


@pytest.mark.parametrize("name", TYPES)
def test_a_type_is_named_as_it_was_written(spark: SparkSession, name: str) -> None:
    (field,) = arrow_schema(StructType.fromDDL(f"c {name}"))
    assert spark_type(field.type) == name
