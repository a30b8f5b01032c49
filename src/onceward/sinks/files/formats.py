"""The formats a file sink writes: how each is opened, fed with tables, and closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from onceward.sinks.json_text import iso_text, json_lines, without_json_form

FormatOptions = Mapping[str, object]

_SAMPLE_ROWS = 10_000
# A dictionary pays when a value comes back at least this often; else Parquet builds one and throws it away.
_REPEATS_FOR_A_DICTIONARY = 4


class Encoder(Protocol):
    """A file that is being written."""

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """Write what the format needs at its end. The stream stays open."""
        ...


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One way to write a file. `compressions` maps each to the file's extension; the first is the default.

    `refused_type` says why it has no form for a type; None when it has one.
    """

    open: Callable[[pa.NativeFile, pa.Table, str, FormatOptions], Encoder]
    compressions: Mapping[str, str]
    refused_type: Callable[[pa.DataType], str | None]
    rows_per_group: int

    @property
    def default_compression(self) -> str:
        """The one that is taken when the user names none."""
        return next(iter(self.compressions))


class _Parquet:
    def __init__(self, stream: pa.NativeFile, first: pa.Table, compression: str, options: FormatOptions) -> None:
        settings: dict[str, object] = {"use_dictionary": _worth_a_dictionary(first), "compression": compression}
        self._writer = pq.ParquetWriter(stream, first.schema, **(settings | dict(options)))

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    def __init__(self, stream: pa.NativeFile, first: pa.Table, compression: str, options: FormatOptions) -> None:
        if options:
            raise TypeError(f"JSON lines take no options, got {', '.join(options)}")
        refused = without_json_form(first.schema)
        if refused is not None:
            raise TypeError(refused)
        self._stream, self._closing = _compressed(stream, compression)

    def write(self, table: pa.Table) -> None:
        for lines in json_lines(table):
            self._stream.write(lines)

    def close(self) -> None:
        if self._closing:
            self._stream.close()


class _Csv:
    def __init__(self, stream: pa.NativeFile, first: pa.Table, compression: str, options: FormatOptions) -> None:
        self._stream, self._closing = _compressed(stream, compression)
        settings = pa.csv.WriteOptions(**options)
        self._writer = pa.csv.CSVWriter(self._stream, _zones_as_text(first).schema, write_options=settings)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(_zones_as_text(table))

    def close(self) -> None:
        self._writer.close()
        if self._closing:
            self._stream.close()


def _zones_as_text(table: pa.Table) -> pa.Table:
    """Timestamps with a zone in ISO 8601; Arrow's own CSV spells them otherwise, and thirty times slower."""
    for position, field in enumerate(table.schema):
        if pt.is_timestamp(field.type) and field.type.tz is not None:
            column = table.column(position).combine_chunks()
            table = table.set_column(position, pa.field(field.name, pa.string()), iso_text(column))
    return table


def _compressed(stream: pa.NativeFile, compression: str) -> tuple[pa.NativeFile, bool]:
    """The stream to write to, and whether it must be closed for its last bytes to get out."""
    if compression == "none":
        return stream, False
    return pa.CompressedOutputStream(stream, compression), True


def _worth_a_dictionary(first: pa.Table) -> list[str]:
    """The Parquet columns whose values repeat, judged by the first rows; nested ones count as repeating."""
    sample = first.slice(0, _SAMPLE_ROWS)
    paths: list[str] = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if pt.is_nested(field.type) or pt.is_dictionary(field.type):
            paths += _leaves(field.name, field.type)
        elif not pt.is_boolean(field.type) and not pt.is_null(field.type):
            distinct = pc.count_distinct(column, mode="all").as_py()
            if distinct * _REPEATS_FOR_A_DICTIONARY <= sample.num_rows:
                paths.append(field.name)
    return paths


def _leaves(path: str, kind: pa.DataType) -> list[str]:
    """The names that Parquet gives to the columns inside a nested one."""
    if pt.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(f"{path}.{field.name}", field.type)]
    if pt.is_map(kind):
        inside = f"{path}.key_value"
        return _leaves(f"{inside}.key", kind.key_type) + _leaves(f"{inside}.value", kind.item_type)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _leaves(f"{path}.list.element", kind.value_type)
    return [path]


def _takes_all(kind: pa.DataType) -> str | None:
    return None


def _refused_by_csv(kind: pa.DataType) -> str | None:
    if pt.is_nested(kind):
        return "CSV has no nested values; take them apart, or write them as text with to_json"
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return "CSV holds text; encode the bytes with base64 or hex"
    return None


FORMATS: Mapping[str, FileFormat] = {
    "parquet": FileFormat(
        open=_Parquet,
        compressions={
            "snappy": "snappy.parquet",
            "zstd": "zstd.parquet",
            "lz4": "lz4.parquet",
            "gzip": "gz.parquet",
            "none": "parquet",
        },
        refused_type=_takes_all,
        rows_per_group=1 << 20,
    ),
    "jsonl": FileFormat(
        open=_JsonLines,
        compressions={"none": "jsonl", "gzip": "jsonl.gz"},
        refused_type=_takes_all,
        rows_per_group=1 << 16,
    ),
    "csv": FileFormat(
        open=_Csv,
        compressions={"none": "csv", "gzip": "csv.gz"},
        refused_type=_refused_by_csv,
        rows_per_group=1 << 16,
    ),
}
