"""What Spark calls a type, for messages: a user has written `bigint`, and Arrow would say `int64`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

_NAMES = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.month_day_nano_interval(): "interval",
}


def spark_type(kind: pa.DataType) -> str:
    """In the words of `DataFrame.printSchema` and of DDL; Arrow's own where Spark has no such type."""
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_duration(kind):
        return "interval day to second"
    if pt.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pt.is_list(kind) or pt.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pt.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in kind)}>"
    return _NAMES.get(kind, str(kind))
