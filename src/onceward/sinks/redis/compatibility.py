"""Whether the stream has the columns that the options name, of types that Redis can hold. Nothing here connects."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from onceward.errors import TargetRefused
from onceward.sinks.redis.encode import refused_type
from onceward.sinks.redis.options import Layout, Options
from onceward.sinks.spark_types import spark_type


def refuse_stream(schema: pa.Schema, options: Options, *, output_mode: str) -> None:
    """Raise `TargetRefused`, naming the column, when rows of this schema cannot be written."""
    layout = options.layout
    doubled = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if doubled:
        raise TargetRefused(f"the stream has several columns {doubled[0]!r}", hint="rename them in the query")
    for option, column in layout.needed():
        if column not in schema.names:
            raise TargetRefused(
                f"the stream has no column {column!r}, which {option} names",
                hint=f"its columns are {', '.join(schema.names)}",
            )
    if output_mode == "complete" and layout.kind in ("incr", "hincr"):
        raise TargetRefused(
            "output mode complete gives the whole result in every epoch, and a counter would add it up again",
            hint='write the result itself: type="string" or "hash", with the column as value',
        )
    written = layout.written(schema)
    if layout.kind == "hash" and not written:
        raise TargetRefused("no column is left for the hash", hint="name some in fields=[...]")
    texts = [*layout.key.columns, *(layout.member.columns if layout.member else ()), *written]
    for name in texts:
        hint = refused_type(schema.field(name).type)
        if hint is not None:
            raise TargetRefused(f"column {name!r} ({spark_type(schema.field(name).type)}) cannot be stored", hint=hint)
    _refuse_numbers(layout, schema)


def _refuse_numbers(layout: Layout, schema: pa.Schema) -> None:
    if layout.kind in ("zset", "incr", "hincr") and layout.value is not None:
        kind = schema.field(layout.value).type
        if not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
            raise TargetRefused(
                f"column {layout.value!r} ({kind}) is not a number", hint="cast it in the query, or name another"
            )
    if layout.deleted is not None and not pt.is_boolean(schema.field(layout.deleted).type):
        raise TargetRefused(
            f"column {layout.deleted!r} ({spark_type(schema.field(layout.deleted).type)}) is not boolean",
            hint="deleted names a column that is true where the key shall go",
        )


def adds_fractions(layout: Layout, schema: pa.Schema) -> bool:
    """Whether a counter of this stream adds more than whole numbers."""
    return (
        layout.kind in ("incr", "hincr")
        and layout.value is not None
        and not pt.is_integer(schema.field(layout.value).type)
    )
