"""Which column of the stream becomes which part of a record.

With a column `value` of text or bytes, and nothing said about it, Spark's own conventions hold: the columns `key`,
`value`, `topic`, `headers` and `partition` are what they are for its Kafka sink. Otherwise only what the options name
is special, and the value is a JSON object of all columns that are neither the topic, the partition nor the headers.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from onceward.sinks.kafka.options import Choice


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
    """What the options name, and what the conventions say where they name nothing. Whether the rows have it, and of the
    right types, is asked in `compatibility`."""
    names = schema.names
    by_convention = not choice.value and any(f.name == "value" and is_text_or_bytes(f.type) for f in schema)
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
    return Columns(
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


def is_text(kind: pa.DataType) -> bool:
    """Text, dictionary-encoded or not."""
    if pt.is_dictionary(kind):
        kind = kind.value_type
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or kind == pa.string_view())


def is_text_or_bytes(kind: pa.DataType) -> bool:
    """What can be a record's value as it is."""
    return is_text(kind) or bool(pt.is_binary(kind) or pt.is_large_binary(kind) or kind == pa.binary_view())
