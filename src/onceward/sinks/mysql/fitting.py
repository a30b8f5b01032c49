"""Whether the table takes the rows of the stream, value by value and nothing lost. Nothing here asks the server."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from onceward.errors import TargetRefused
from onceward.sinks.mysql.settings import Settings, why_no_identifier
from onceward.sinks.mysql.table import Column, Server, Table, columns_as_sql, declared
from onceward.sinks.mysql.text import refused

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set"})
_BYTES = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 6}


def refuse_stream(schema: pa.Schema, settings: Settings, *, output_mode: str) -> None:
    """Raise `TargetRefused` for what can be seen without the table."""
    if output_mode == "complete" and settings.mode == "append":
        raise TargetRefused(
            "output mode complete gives the whole result in every epoch, and mode append would pile it up",
            hint='use mode="replace", which exchanges the whole content of the table in every epoch',
        )
    if output_mode != "complete" and settings.mode == "replace":
        raise TargetRefused(
            f"mode replace needs output mode complete; with {output_mode} an epoch is only a part of the result",
            hint='use output_mode="complete", or mode="upsert" with keys',
        )
    names = [name.lower() for name in schema.names]
    doubled = [name for name in schema.names if names.count(name.lower()) > 1]
    if doubled or not schema.names:
        raise TargetRefused(
            f"the stream's columns {', '.join(doubled)} are one column to MySQL, which ignores case"
            if doubled
            else "the stream has no columns",
            hint="rename or add columns in the query",
        )
    wanted = {"key": settings.keys, "order_by": (settings.order_by,), "deleted": (settings.deleted,)}
    for option, columns in wanted.items():
        missing = [name for name in columns if name is not None and name.lower() not in names]
        if missing:
            raise TargetRefused(
                f"the stream has no {option} column {', '.join(missing)}",
                hint=f"its columns are {', '.join(schema.names)}",
            )
    for field in schema:
        _refuse_field(field, settings)


def _refuse_field(field: pa.Field, settings: Settings) -> None:
    why = why_no_identifier(field.name)
    if why is not None:
        raise TargetRefused(f"column {field.name!r} cannot be a column of MySQL: {why}", hint="rename it in the query")
    if not settings.is_stored(field.name) and not pt.is_boolean(field.type):
        raise TargetRefused(
            f"column {field.name!r} ({field.type}) cannot tell which rows are deleted", hint="make it a boolean"
        )
    hint = refused(field.type)
    if hint is not None:
        raise TargetRefused(f"column {field.name!r} ({field.type}) cannot be stored", hint=hint)
    is_key = field.name.lower() in {key.lower() for key in settings.keys}
    if is_key and (pt.is_nested(field.type) or pt.is_floating(field.type)):
        raise TargetRefused(
            f"column {field.name!r} ({field.type}) cannot be a key", hint="use text, whole numbers, decimals or times"
        )


def refuse_table(table: Table, settings: Settings, schema: pa.Schema, server: Server) -> None:
    """Raise `TargetRefused`, with the statement that mends it, when these columns do not fit the table."""
    target = settings.target
    if table.engine.lower() != "innodb":
        raise TargetRefused(
            f"table {settings.table!r} is kept by {table.engine}, which has no transactions",
            hint=f"run: ALTER TABLE {target} ENGINE=InnoDB;",
        )
    stream = {field.name.lower(): field for field in schema}
    missing = [field for name, field in stream.items() if name not in table.columns]
    if missing:
        additions = ", ".join(f"ADD COLUMN {columns_as_sql([f.name])} {declared(f.type, server)}" for f in missing)
        raise TargetRefused(
            f"table {settings.table!r} has no column {', '.join(field.name for field in missing)}",
            hint=f"run: ALTER TABLE {target} {additions}; or select other columns in the query",
        )
    required = [column for name, column in table.columns.items() if column.is_required and name not in stream]
    if required:
        names = ", ".join(column.name for column in required)
        changes = ", ".join(f"MODIFY {columns_as_sql([c.name])} {c.declared} NULL" for c in required)
        raise TargetRefused(
            f"table {settings.table!r} needs a value for {names}, which the stream does not have",
            hint=f"add the column to the query, or run: ALTER TABLE {target} {changes};",
        )
    for name, field in stream.items():
        _refuse_column(table.columns[name], field, target, server)
    if settings.keys:
        _refuse_keys(table, settings, frozenset(stream))


def _refuse_column(column: Column, field: pa.Field, target: str, server: Server) -> None:
    if column.is_generated:
        raise TargetRefused(
            f"column {column.name!r} is computed by the table and cannot take {field.type}",
            hint="leave it out of the query",
        )
    if not _takes(column, field.type):
        raise TargetRefused(
            f"column {column.name!r} is declared {column.declared} and cannot keep every {field.type} as it is",
            hint=f"cast it in the query, or run: ALTER TABLE {target} "
            f"MODIFY {columns_as_sql([column.name])} {declared(field.type, server)};",
        )


def _takes(column: Column, kind: pa.DataType) -> bool:
    """Whether every value of the type can be stored unchanged, but for its length."""
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_boolean(kind):
        return column.kind in {*_INTEGERS, "bit"}
    if pt.is_integer(kind):
        return _takes_integer(column, kind)
    if pt.is_decimal(kind):
        scale = column.scale or 0
        whole = (column.precision or 0) - scale
        return bool(column.kind == "decimal" and scale >= kind.scale and whole >= kind.precision - kind.scale)
    if pt.is_floating(kind):
        return bool(column.kind == "double" or (column.kind == "float" and kind.bit_width <= 32))
    if pt.is_date(kind):
        return column.kind in {"date", "datetime"}
    if pt.is_time(kind):
        return column.kind == "time" and (column.time_precision or 0) >= _DIGITS[kind.unit]
    if pt.is_timestamp(kind):
        # A time without a zone is not an instant, which is what TIMESTAMP stands for.
        is_time = column.kind == "datetime" or (column.kind == "timestamp" and kind.tz is not None)
        return is_time and (column.time_precision or 0) >= _DIGITS[kind.unit]
    if pt.is_fixed_size_binary(kind) and column.kind == "binary":
        return bool(column.length == kind.byte_width)
    if "binary" in str(kind):
        return column.kind in _BYTES
    return column.kind in _TEXTS


def _takes_integer(column: Column, kind: pa.DataType) -> bool:
    is_signed = pt.is_signed_integer(kind)
    digits = {8: 3, 16: 5, 32: 10, 64: 19 if is_signed else 20}[kind.bit_width]
    if column.kind in _INTEGERS:
        width = _INTEGERS[column.kind]
        if is_signed:
            return bool(not column.is_unsigned and width >= kind.bit_width)
        return bool(width >= kind.bit_width if column.is_unsigned else width > kind.bit_width)
    if column.kind == "decimal":
        return not (column.is_unsigned and is_signed) and (column.precision or 0) - (column.scale or 0) >= digits
    return bool(column.kind == "double" and kind.bit_width <= 32)


def _refuse_keys(table: Table, settings: Settings, stream: frozenset[str]) -> None:
    keys = frozenset(key.lower() for key in settings.keys)
    if keys not in table.unique:
        raise TargetRefused(
            f"table {settings.table!r} has no unique index on {', '.join(settings.keys)}, which an upsert needs",
            hint=f"run: ALTER TABLE {settings.target} ADD UNIQUE ({columns_as_sql(settings.keys)});",
        )
    others = [index for index in table.unique if not index >= keys and not index & (table.counting - stream)]
    if others:
        raise TargetRefused(
            f"table {settings.table!r} has a second unique index on {_named(table, others)}: a row that meets another "
            "one there would change that one, whatever its key",
            hint=f"use those columns as keys, or drop the index from {settings.target}",
        )


def _named(table: Table, indexes: Sequence[frozenset[str]]) -> str:
    return "; ".join(", ".join(table.columns[name].name for name in sorted(index)) for index in indexes)
