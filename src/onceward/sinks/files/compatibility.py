"""Do the columns of the stream fit the folders and the format? Nothing here looks at the folder."""

from __future__ import annotations

import pyarrow as pa

from onceward.errors import TargetRefused
from onceward.sinks.files.layout import is_plain
from onceward.sinks.files.options import Options
from onceward.sinks.spark_types import spark_type


def refuse_stream(schema: pa.Schema, options: Options, *, output_mode: str) -> None:
    """Raise `TargetRefused`, naming the columns, when rows of this stream cannot go into files."""
    if output_mode == "complete":
        raise TargetRefused(
            "a file is never changed, and output mode complete would add the whole result in every epoch",
            hint="use output mode append, or a sink with mode='upsert' and keys",
        )
    _refuse_partitions(schema, options)
    written = pa.schema([field for field in schema if field.name not in options.partition_by])
    if not written.names:
        raise TargetRefused(
            "every column is a partition column, so the files would have none",
            hint="leave at least one column out of partition_by",
        )
    _refuse_content(written, options)


def _refuse_partitions(schema: pa.Schema, options: Options) -> None:
    missing = [column for column in options.partition_by if column not in schema.names]
    if missing:
        raise TargetRefused(
            f"the stream has no column {', '.join(missing)} to partition by",
            hint=f"its columns are {', '.join(schema.names)}",
        )
    for column in options.partition_by:
        if column.startswith((".", "_")):
            raise TargetRefused(
                f"a folder named after column {column!r} would be hidden from readers of files",
                hint="rename it: Spark skips folders that begin with a dot, Arrow also those with an underscore",
            )
        if not is_plain(schema.field(column).type):
            raise TargetRefused(
                f"column {column!r} ({spark_type(schema.field(column).type)}) cannot name a folder",
                hint="partition by text, whole numbers, decimals, booleans, dates or timestamps",
            )


def _refuse_content(schema: pa.Schema, options: Options) -> None:
    """What the format says of the types; then it is tried on them, without a row."""
    for field in schema:
        hint = options.file_format.refused_type(field.type)
        if hint is not None:
            raise TargetRefused(
                f"column {field.name!r} ({spark_type(field.type)}) does not fit {options.format}", hint=hint
            )
    try:
        empty = schema.empty_table()
        encoder = options.file_format.open(pa.BufferOutputStream(), empty, options.compression, options.format_options)
        encoder.write(empty)
        encoder.close()
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise TargetRefused(
            f"{options.format} does not take these columns and options: {error}",
            hint="change the columns' types, or the sink's options",
        ) from error
