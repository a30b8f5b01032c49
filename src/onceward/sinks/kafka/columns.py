"""Which column of the stream becomes which part of a record.

With a column `value` of text or bytes, and nothing said about it, Spark's own conventions hold: the columns `key`,
`value`, `topic`, `headers` and `partition` are what they are for its Kafka sink. Otherwise only what the options name
is special, and the value is a JSON object of all columns that are neither the topic, the partition nor the headers.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from onceward.errors import ConfigurationError, TargetRefused
from onceward.sinks.kafka.encode import refused_type
from onceward.sinks.spark_types import spark_type

FORMATS = ("string", "json", "bytes")
_HEADERS = "an array of structs with the fields key (text) and value (bytes)"


@dataclass(frozen=True, slots=True)
class Choice:
    """What the options say. `topic` is one for all rows, the others name columns."""

    topic: str | None = None
    topic_column: str | None = None
    key: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    format: str | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.topic is not None and self.topic_column is not None:
            raise ConfigurationError("both topic and topic_column are given", hint="leave one of them out")
        if self.format is not None and self.format not in FORMATS:
            raise ConfigurationError(f"format is {self.format!r}", hint=f"choose one of {', '.join(FORMATS)}")
        if self.format in ("string", "bytes") and len(self.value) != 1:
            raise ConfigurationError(
                f"format {self.format} makes a record's value of one column", hint="name it: value='column'"
            )


@dataclass(frozen=True, slots=True)
class Columns:
    """The choice, made for one schema. `value_is_object`: several columns become one JSON object."""

    topic: str | None
    topic_column: str | None
    key: tuple[str, ...]
    value: tuple[str, ...]
    format: str
    value_is_object: bool
    headers: str | None
    partition: str | None
    timestamp: str | None


def columns_of(choice: Choice, schema: pa.Schema) -> Columns:
    """Raise `TargetRefused` when the stream has not what the options name."""
    names = schema.names
    by_convention = not choice.value and any(f.name == "value" and _is_text_or_bytes(f.type) for f in schema)
    topic_column = choice.topic_column
    if choice.topic is None and topic_column is None and "topic" in names:
        topic_column = "topic"

    def conventional(given: str | None, name: str) -> str | None:
        return given if given is not None or not by_convention or name not in names else name

    key = choice.key or (("key",) if by_convention and "key" in names else ())
    headers, partition = conventional(choice.headers, "headers"), conventional(choice.partition, "partition")
    not_data = {topic_column, headers, partition}
    value = choice.value or (("value",) if by_convention else tuple(name for name in names if name not in not_data))
    is_object = (len(choice.value) != 1 and not by_convention) or (len(choice.value) == 0 and choice.format == "json")
    found = Columns(
        topic=choice.topic,
        topic_column=topic_column,
        key=key,
        value=value,
        format=choice.format or ("json" if is_object else "string"),
        value_is_object=is_object,
        headers=headers,
        partition=partition,
        timestamp=choice.timestamp,
    )
    _refuse_unless_fitting(found, schema)
    return found


def _refuse_unless_fitting(columns: Columns, schema: pa.Schema) -> None:
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

    refuse(columns.topic_column, _is_text(kind(columns.topic_column)), "text")
    refuse(columns.partition, pt.is_integer(kind(columns.partition)), "a whole number")
    moment = kind(columns.timestamp)
    refuse(columns.timestamp, pt.is_timestamp(moment) or pt.is_int64(moment), "a timestamp, or milliseconds (bigint)")
    refuse(columns.headers, _is_headers(kind(columns.headers)), _HEADERS)
    if columns.format == "bytes":
        refuse(columns.value[0], _is_text_or_bytes(kind(columns.value[0])), "bytes or text")


def _is_text(kind: pa.DataType) -> bool:
    if pt.is_dictionary(kind):
        kind = kind.value_type
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or kind == pa.string_view())


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pt.is_binary(kind) or pt.is_large_binary(kind) or kind == pa.binary_view())


def _is_headers(kind: pa.DataType) -> bool:
    if not (pt.is_list(kind) or pt.is_large_list(kind)) or not pt.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return set(fields) == {"key", "value"} and _is_text(fields["key"]) and _is_text_or_bytes(fields["value"])
