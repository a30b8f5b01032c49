"""Whether the rows have the columns that the options name, of types that fit a record, and the topic takes such ones.

Nothing here connects.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from onceward.errors import TargetRefused
from onceward.sinks.kafka.columns import Columns, columns_of, is_text, is_text_or_bytes
from onceward.sinks.kafka.encode import refused_type
from onceward.sinks.kafka.limits import Topic
from onceward.sinks.kafka.options import Choice
from onceward.sinks.spark_types import spark_type

_HEADERS = "an array of structs with the fields key (text) and value (bytes)"


def fitting_columns(choice: Choice, schema: pa.Schema) -> Columns:
    """The choice, made for this schema. Raise `TargetRefused`, naming the column, when the rows do not fit it."""
    columns = columns_of(choice, schema)
    refuse_stream(schema, columns)
    return columns


def refuse_stream(schema: pa.Schema, columns: Columns) -> None:
    """Raise `TargetRefused`, naming the column, when rows of this schema do not have what the columns say."""
    if columns.topic is None and columns.topic_column is None:
        raise TargetRefused(
            "no topic is named", hint="say topic='name', or topic_column='column', or give the rows a column topic"
        )
    singles = (columns.topic_column, columns.headers, columns.partition, columns.timestamp)
    for name in [*columns.key, *columns.value, *(one for one in singles if one is not None)]:
        if schema.names.count(name) != 1:
            has = "no column" if name not in schema.names else "more than one column"
            raise TargetRefused(f"the rows have {has} {name!r}", hint=f"they have {', '.join(schema.names)}")
        why = None if name == columns.headers else refused_type(schema.field(name).type)
        if why is not None:
            raise TargetRefused(f"column {name!r} is {spark_type(schema.field(name).type)}: {why}")
    if not columns.value:
        raise TargetRefused("no column is left for the value")

    def refuse(name: str | None, fits: bool, wanted: str) -> None:
        if name is not None and not fits:
            raise TargetRefused(
                f"column {name!r} is {spark_type(schema.field(name).type)}", hint=f"it must be {wanted}"
            )

    def kind(name: str | None) -> pa.DataType:
        return schema.field(name).type if name is not None else pa.null()

    refuse(columns.topic_column, is_text(kind(columns.topic_column)), "text")
    refuse(columns.partition, pt.is_integer(kind(columns.partition)), "a whole number")
    moment = kind(columns.timestamp)
    refuse(columns.timestamp, pt.is_timestamp(moment) or pt.is_int64(moment), "a timestamp, or milliseconds (bigint)")
    refuse(columns.headers, _is_headers(kind(columns.headers)), _HEADERS)
    if columns.format == "bytes":
        refuse(columns.value[0], is_text_or_bytes(kind(columns.value[0])), "bytes or text")


def refuse_topic(topic: Topic, columns: Columns) -> None:
    """Raise `TargetRefused` when the topic of all rows takes no such records, or would change them."""
    if not columns.key and topic.wants_keys:
        raise TargetRefused(
            f"topic {topic.name!r} is compacted, and takes no record without a key", hint="say key='column'"
        )
    if columns.timestamp is not None and topic.own_times:
        raise TargetRefused(
            f"topic {topic.name!r} has message.timestamp.type=LogAppendTime: the brokers put their time in the place "
            "of the rows'",
            hint=f"leave timestamp out, or kafka-configs --alter --topic {topic.name} "
            "--add-config message.timestamp.type=CreateTime",
        )


def _is_headers(kind: pa.DataType) -> bool:
    if not (pt.is_list(kind) or pt.is_large_list(kind)) or not pt.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return set(fields) == {"key", "value"} and is_text(fields["key"]) and is_text_or_bytes(fields["value"])
