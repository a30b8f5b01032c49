"""Whether the stream fits the table. Nothing here asks the server."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceward.errors import TargetRefused
from onceward.sinks.output_mode import refuse_output_mode
from onceward.sinks.postgres.encode import encoders
from onceward.sinks.postgres.equality import keys_of
from onceward.sinks.postgres.options import DELETED, MODES, ROW, Options, wrong_name
from onceward.sinks.postgres.table import Table, add_column

_WITHOUT_ORDER = ("json", "xml")


def refuse_stream(schema: pa.Schema, options: Options, *, output_mode: str) -> None:
    """Raise `TargetRefused` for what no table could fix."""
    refuse_output_mode(output_mode, options.mode, modes=MODES)
    if not len(schema):
        raise TargetRefused("the stream has no columns", hint="select some in the query")
    named = [*options.keys, *(name for name in (options.order_by, options.deleted) if name is not None)]
    missing = [name for name in named if name not in schema.names]
    if missing:
        raise TargetRefused(
            f"the stream has no column {', '.join(missing)}", hint=f"its columns are {', '.join(schema.names)}"
        )
    if options.deleted is not None and not pa.types.is_boolean(schema.field(options.deleted).type):
        raise TargetRefused(
            f"column {options.deleted!r} tells which rows are deleted and must be boolean", hint="cast it in the query"
        )
    _refuse_names(schema.names)


def _refuse_names(names: Sequence[str]) -> None:
    """Those that are ours, and those that PostgreSQL would cut off."""
    taken = [name for name in names if name in (ROW, DELETED)]
    if taken:
        raise TargetRefused(f"a column cannot be called {taken[0]!r} here", hint="rename it in the query")
    wrong = next((found for name in names if (found := wrong_name(name))), None)
    if wrong is not None:
        raise TargetRefused(f"a column: {wrong}", hint="rename it in the query: at most 63 bytes, and no NUL")


def refuse_table(table: Table, options: Options, schema: pa.Schema) -> None:
    """Raise `TargetRefused`, naming the columns, when rows of this stream cannot go into the table."""
    fields = [field for field in schema if field.name != options.deleted]
    missing = [field.name for field in fields if table.column(field.name) is None]
    if missing:
        raise TargetRefused(
            f"table {options.table} has no column {', '.join(missing)}",
            hint=f"its columns are {', '.join(table.columns)}; run: "
            + "; ".join(add_column(options.table, schema.field(name)) for name in missing),
        )
    filled = {column.name for field in fields if (column := table.column(field.name))}
    if len(filled) < len(fields):
        raise TargetRefused("two of the stream's columns are one column of the table", hint="rename one in the query")
    required = [column.name for column in table.columns.values() if column.is_required and column.name not in filled]
    if required:
        raise TargetRefused(
            f"table {options.table} needs a value for {', '.join(required)}, which the stream does not have",
            hint="add the column to the query, or give it a default in the table",
        )
    encoders(table, options, schema)
    order = table.column(options.order_by) if options.order_by is not None else None
    if order is not None and order.kind in _WITHOUT_ORDER:
        raise TargetRefused(
            f"column {order.name!r} is {order.printed}, of which none is greater than another",
            hint="name another column in order_by",
        )
    if options.keys:
        keys_of(table, options)
