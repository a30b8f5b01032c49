"""Rows as records: each part of them a whole column at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from onceward.sinks.json_text import iso_text, json_values

if TYPE_CHECKING:
    from onceward.sinks.kafka.columns import Columns

Header = tuple[str | None, bytes | None]
_HEADERS_OF_BYTES = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Records:
    """Some rows of a slot. `topics` is one text for all of them, or a column; keys and values are bytes.

    `garbled` are those whose JSON no reader could decode, where there are any: a text may have come to be from bytes.
    """

    topics: str | pa.Array
    keys: pa.Array | None
    values: pa.Array
    partitions: pa.Array | None = None
    timestamps: pa.Array | None = None
    headers: list[list[Header | None] | None] | None = None
    garbled: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def names(self) -> set[str | None]:
        """The topics that occur."""
        return {self.topics} if isinstance(self.topics, str) else set(self.topics.unique().to_pylist())

    def by_topic(self) -> Iterator[tuple[str, Records]]:
        """Those of each topic, in their order."""
        if isinstance(self.topics, str):
            yield self.topics, self
            return
        for name in self.topics.unique().to_pylist():
            yield name, self._where(pc.equal(self.topics, name), name)

    def _where(self, rows: pa.Array, topic: str) -> Records:
        def chosen(column: pa.Array | None) -> pa.Array | None:
            return None if column is None else column.filter(rows)

        headers = None
        if self.headers is not None:
            headers = [one for one, is_in in zip(self.headers, rows.to_pylist(), strict=True) if is_in]
        return Records(
            topic,
            chosen(self.keys),
            self.values.filter(rows),
            chosen(self.partitions),
            chosen(self.timestamps),
            headers,
        )


def records_of(batch: pa.RecordBatch, columns: Columns) -> Records:
    """The batch's rows as records."""
    column = batch.column
    keys, values = _key(batch, columns.key), _value(batch, columns)
    return Records(
        topics=columns.topic if columns.topic is not None else _names(column(str(columns.topic_column))),
        keys=None if keys is None else keys.cast(pa.binary()),
        values=values.cast(pa.binary()),
        partitions=None if columns.partition is None else column(columns.partition).cast(pa.int64()),
        timestamps=None if columns.timestamp is None else _milliseconds(column(columns.timestamp)),
        headers=None if columns.headers is None else _headers(column(columns.headers)),
        garbled=_garbled([*([keys] if len(columns.key) > 1 else []), *([values] if columns.format == "json" else [])]),
    )


def refused_type(kind: pa.DataType) -> str | None:
    """Why a type has no form in a record; None when it has."""
    if pt.is_duration(kind) or pt.is_interval(kind) or pt.is_union(kind):
        return "cast it to text, a number or bytes"
    try:
        json_values(pa.nulls(0, kind))
    except (pa.ArrowException, TypeError) as error:
        return f"{error}: cast it to text"
    return None


def _key(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array | None:
    if not names:
        return None
    return as_text(batch.column(names[0])) if len(names) == 1 else _object(batch, names)


def _value(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    if columns.value_is_object:
        return _object(batch, columns.value)
    column = batch.column(columns.value[0])
    return json_values(column) if columns.format == "json" else as_text(column)


def _object(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array:
    """One JSON object a row; fields that are null are left out, as Spark's to_json does."""
    return json_values(pa.StructArray.from_arrays([batch.column(name) for name in names], names=list(names)))


def as_text(column: pa.Array) -> pa.Array:
    """Text and bytes as they are, numbers decimal, moments in ISO 8601 (UTC), nested values as JSON, null as null."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return column.cast(pa.binary())
    if pt.is_date(kind) or pt.is_time(kind) or pt.is_timestamp(kind):
        return iso_text(column)
    if pt.is_nested(kind) or pt.is_boolean(kind) or pt.is_decimal(kind) or pt.is_null(kind):
        return json_values(column)
    return column.cast(pa.string())


def _names(column: pa.Array) -> pa.Array:
    """Topics as text. What is none gets a letter that no topic's name has."""
    names = as_text(column).cast(pa.string())
    if _is_text(names):
        return names
    return pa.array([_decoded(one, "replace") for one in names.cast(pa.binary()).to_pylist()], pa.string())


def _garbled(texts: list[pa.Array]) -> pa.Array | None:
    """Which rows have a text that is not UTF-8; None where all are fine."""
    wrong = [column for column in texts if not _is_text(column)]
    if not wrong:
        return None
    rows = zip(*(column.cast(pa.binary()).to_pylist() for column in wrong), strict=True)
    return pa.array([any(_decoded(one, "replace") != _decoded(one, "ignore") for one in row) for row in rows])


def _is_text(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decoded(text: bytes | None, errors: str) -> str | None:
    return None if text is None else text.decode(errors=errors)


def _milliseconds(column: pa.Array) -> pa.Array:
    if pt.is_timestamp(column.type):
        # A part of a millisecond is left out; what has too many of them is an error.
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=column.type.unit == "s")
    return column.cast(pa.int64())


def _headers(column: pa.Array) -> list[list[Header | None] | None]:
    try:
        rows = column.to_pylist()
    except UnicodeDecodeError:
        rows = column.cast(_HEADERS_OF_BYTES).to_pylist()
    return [
        None
        if row is None
        else [None if one is None else (_header_name(one["key"]), _as_bytes(one["value"])) for one in row]
        for row in rows
    ]


def _header_name(name: str | bytes | None) -> str | None:
    """What is not UTF-8 stays recognisable."""
    return name.decode(errors="surrogateescape") if isinstance(name, bytes) else name


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
