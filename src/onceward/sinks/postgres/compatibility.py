"""Whether the stream fits the table, and the statement that makes one which it fits."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceward.connections.postgres import listed, quoted
from onceward.errors import TargetRefused
from onceward.sinks.output_mode import refuse_output_mode
from onceward.sinks.postgres.catalog import Column, Table
from onceward.sinks.postgres.encode import Wire, declared, wire_for
from onceward.sinks.postgres.equality import keys_of
from onceward.sinks.postgres.options import MODES, Options, TableName, wrong_name
from onceward.sinks.spark_types import spark_type

_WITHOUT_ORDER = ("json", "xml")
ROW = "onceward_row"
DELETED = "onceward_deleted"
"""Columns of our own in the temporary table of an upsert."""


def create_table(options: Options, schema: pa.Schema) -> str:
    """The statement that makes a table for this stream."""
    fields = [field for field in schema if field.name != options.deleted]
    columns = [f"{quoted(field.name)} {declared(field)}" for field in fields]
    columns += [f"UNIQUE ({listed(options.keys)})"] if options.keys else []
    return f"CREATE TABLE {options.table} ({', '.join(columns)})"


def refuse_unless_fitting(table: Table, options: Options, schema: pa.Schema) -> None:
    """Raise `TargetRefused`, naming the columns, when rows of this stream cannot go into the table."""
    fields = [field for field in schema if field.name != options.deleted]
    missing = [field.name for field in fields if table.column(field.name) is None]
    if missing:
        raise TargetRefused(
            f"table {options.table} has no column {', '.join(missing)}",
            hint=f"its columns are {', '.join(table.columns)}; run: "
            + "; ".join(_add_column(options.table, schema.field(name)) for name in missing),
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
    wires(table, options, schema)
    order = table.column(options.order_by) if options.order_by is not None else None
    if order is not None and order.kind in _WITHOUT_ORDER:
        raise TargetRefused(
            f"column {order.name!r} is {order.printed}, of which none is greater than another",
            hint="name another column in order_by",
        )
    if options.keys:
        keys_of(table, options)


def wires(table: Table, options: Options, schema: pa.Schema) -> list[Wire]:
    """How each of the stream's columns travels into its column; refused by name where it cannot."""
    found = []
    for field in schema:
        if field.name == options.deleted:
            continue
        column = table.column(field.name)
        if column is None:
            raise TargetRefused(
                f"table {options.table} has lost its column {field.name}", hint="put it back, then start again"
            )
        wire = None if column.is_computed else wire_for(field, column.name, column.kind, column.modifier)
        if wire is None:
            is_a = "is computed by the table" if column.is_computed else f"is {column.printed}"
            raise TargetRefused(
                f"column {column.name!r} {is_a} and cannot faithfully take {spark_type(field.type)} from the stream",
                hint=_hint_for(field, column),
            )
        found.append(wire)
    return found


def _hint_for(field: pa.Field, column: Column) -> str:
    if pa.types.is_timestamp(field.type) and column.kind in ("timestamp", "timestamptz"):
        other, way = ("timestamptz", "timestamp_ntz") if field.type.tz else ("timestamp", "timestamp")
        return f"make the column {other}, or cast it to {way} in the query"
    return "cast it in the query, or change the table"


def _add_column(table: TableName, field: pa.Field) -> str:
    return f"ALTER TABLE {table} ADD COLUMN {quoted(field.name)} {declared(field)}"


def check_stream(options: Options, schema: pa.Schema, output_mode: str) -> None:
    """Refuse what no table could fix."""
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


def check_names(names: Sequence[str]) -> None:
    """Refuse names that PostgreSQL would cut off."""
    taken = [name for name in names if name in (ROW, DELETED)]
    if taken:
        raise TargetRefused(f"a column cannot be called {taken[0]!r} here", hint="rename it in the query")
    wrong = next((found for name in names if (found := wrong_name(name))), None)
    if wrong is not None:
        raise TargetRefused(f"a column: {wrong}", hint="rename it in the query: at most 63 bytes, and no NUL")
