"""Whether the table takes the rows of the stream, value by value and nothing lost. Nothing here asks the server."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.types as pt

from onceward.connections.mysql import quoted
from onceward.errors import TargetRefused
from onceward.sinks.mysql.encode import refused_type
from onceward.sinks.mysql.options import MODES, Options, why_no_identifier
from onceward.sinks.mysql.receipts import RECEIPTS_KEYS
from onceward.sinks.mysql.table import (
    Column,
    Index,
    Server,
    Table,
    add_columns,
    columns_as_sql,
    declared,
    has_fractions,
)
from onceward.sinks.names import refuse_alike
from onceward.sinks.output_mode import refuse_output_mode
from onceward.sinks.spark_types import spark_type

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set"})
_MEMBERS = frozenset({"enum", "set"})
# Tried with every character of the first plane, there and back: in all others each has a code of its own, or none.
_CHARSETS_THAT_MERGE = frozenset({"cp932"})
_BYTES = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 6}


def refuse_stream(schema: pa.Schema, options: Options, *, output_mode: str) -> None:
    """Raise `TargetRefused` for what can be seen without the table."""
    refuse_output_mode(output_mode, options.mode, modes=MODES)
    refuse_alike(schema.names, folded=str.lower, target="MySQL")
    names = [name.lower() for name in schema.names]
    wanted = {"key": options.keys, "order_by": (options.order_by,), "deleted": (options.deleted,)}
    for option, columns in wanted.items():
        missing = [name for name in columns if name is not None and name.lower() not in names]
        if missing:
            raise TargetRefused(
                f"the stream has no {option} column {', '.join(missing)}",
                hint=f"its columns are {', '.join(schema.names)}",
            )
    for field in schema:
        _refuse_field(field, options)


def _refuse_field(field: pa.Field, options: Options) -> None:
    why = why_no_identifier(field.name)
    if why is not None:
        raise TargetRefused(f"column {field.name!r} cannot be a column of MySQL: {why}", hint="rename it in the query")
    if not options.is_stored(field.name) and not pt.is_boolean(field.type):
        raise TargetRefused(
            f"column {field.name!r} ({spark_type(field.type)}) cannot tell which rows are deleted",
            hint="make it a boolean",
        )
    hint = refused_type(field.type)
    if hint is not None:
        raise TargetRefused(f"column {field.name!r} ({spark_type(field.type)}) cannot be stored", hint=hint)
    is_key = field.name.lower() in {key.lower() for key in options.keys}
    if is_key and (pt.is_nested(field.type) or pt.is_floating(field.type)):
        raise TargetRefused(
            f"column {field.name!r} ({spark_type(field.type)}) cannot be a key",
            hint="use text, whole numbers, decimals or times",
        )


def refuse_table(table: Table, options: Options, schema: pa.Schema, server: Server) -> None:
    """Raise `TargetRefused`, with the statement that fixes it, when these columns do not fit the table."""
    target = options.target
    if "VIEW" in table.kind:
        raise TargetRefused(f"{options.table!r} is a view", hint="name the table behind it")
    _refuse_engine(options.table, table, target)
    stream = {field.name.lower(): field for field in schema}
    missing = [field for name, field in stream.items() if name not in table.columns]
    if missing:
        raise TargetRefused(
            f"table {options.table!r} has no column {', '.join(field.name for field in missing)}",
            hint=f"run: {add_columns(target, missing, server)}; or select other columns in the query",
        )
    required = [column for name, column in table.columns.items() if column.is_required and name not in stream]
    if required:
        names = ", ".join(column.name for column in required)
        changes = ", ".join(f"MODIFY {columns_as_sql([c.name])} {c.declared} NULL" for c in required)
        raise TargetRefused(
            f"table {options.table!r} needs a value for {names}, which the stream does not have",
            hint=f"add the column to the query, or run: ALTER TABLE {target} {changes};",
        )
    for name, field in stream.items():
        _refuse_column(table.columns[name], field, target, server)
    _refuse_triggers(table, options)
    if options.keys:
        _refuse_keys(table, options, frozenset(stream))


def refuse_engines(target: Table, ours: Mapping[str, Table], options: Options) -> None:
    """Raise `TargetRefused` when rows and receipts would not be rolled back together, or a receipt be taken twice."""
    _refuse_engine(options.table, target, options.target)
    for name, table in ours.items():
        stands = f"{quoted(options.database)}.{quoted(name)}"
        _refuse_engine(name, table, stands)
        key = RECEIPTS_KEYS[name]
        if not any(index.is_exactly(frozenset({key})) for index in table.unique):
            raise TargetRefused(
                f"table {name!r} has lost its primary key", hint=f"run: ALTER TABLE {stands} ADD PRIMARY KEY ({key});"
            )


def _refuse_engine(name: str, table: Table, target: str) -> None:
    if table.engine.lower() != "innodb":
        raise TargetRefused(
            f"table {name!r} is kept by {table.engine or 'no engine'}, which has no transactions",
            hint=f"run: ALTER TABLE {target} ENGINE=InnoDB;",
        )


def _refuse_triggers(table: Table, options: Options) -> None:
    events = {"INSERT", "UPDATE"} if options.mode == "upsert" else {"INSERT"}
    found = [trigger for trigger in table.triggers if trigger.may_change_values and trigger.event in events]
    if found and options.before_triggers == "refuse":
        raise TargetRefused(
            f"trigger {found[0].name!r} of table {options.table!r} runs before each {found[0].event} and may change "
            "the values that are stored",
            hint='say before_triggers="allow" if that is wished, or drop the trigger: '
            f"DROP TRIGGER {quoted(options.database)}.{quoted(found[0].name)};",
        )


def _refuse_column(column: Column, field: pa.Field, target: str, server: Server) -> None:
    if column.is_generated:
        raise TargetRefused(
            f"column {column.name!r} is computed by the table and cannot take {spark_type(field.type)}",
            hint="leave it out of the query",
        )
    if not _takes(column, field.type, server):
        raise TargetRefused(
            f"column {column.name!r} is declared {column.declared} and cannot keep every "
            f"{spark_type(field.type)} as it is",
            hint=f"cast it in the query, or run: ALTER TABLE {target} "
            f"MODIFY {columns_as_sql([column.name])} {declared(field.type, server)};",
        )
    if column.charset in _CHARSETS_THAT_MERGE:
        raise TargetRefused(
            f"column {column.name!r} is kept in the character set {column.charset}, which has one code for several "
            "characters: another text would be read than was written",
            hint=f"run: ALTER TABLE {target} MODIFY {columns_as_sql([column.name])} "
            f"{column.declared} CHARACTER SET utf8mb4;",
        )


def _takes(column: Column, kind: pa.DataType, server: Server) -> bool:
    """Whether every value of the type can be stored unchanged, but for those that `misfit` finds row by row."""
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
        # FLOAT(7, 2) and DOUBLE(9, 2) round to their digits without a word.
        is_float = column.kind == "double" or (column.kind == "float" and kind.bit_width <= 32)
        return is_float and column.scale is None
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
    if column.kind == "json" and not server.is_mariadb:
        # MySQL keeps what a JSON text says, not the text, and all numbers with a fraction as doubles.
        return bool(pt.is_nested(kind)) and not has_fractions(kind)
    return column.kind in _TEXTS and not (pt.is_nested(kind) and column.kind in _MEMBERS)


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
    return bool(column.kind == "double" and column.scale is None and kind.bit_width <= 32)


def _refuse_keys(table: Table, options: Options, stream: frozenset[str]) -> None:
    keys = frozenset(key.lower() for key in options.keys)
    if not any(index.is_exactly(keys) for index in table.unique):
        raise TargetRefused(
            f"table {options.table!r} has no unique index on {', '.join(options.keys)}, which an upsert needs",
            hint=f"run: ALTER TABLE {options.target} ADD UNIQUE ({columns_as_sql(options.keys)});",
        )
    others = [index for index in table.unique if not _is_harmless(index, keys, table.counting - stream)]
    if others:
        raise TargetRefused(
            f"table {options.table!r} has a second unique index on {', '.join(others[0].parts)}: rows with different "
            "keys could not both be stored",
            hint=f"use those columns as keys, or run: ALTER TABLE {options.target} "
            f"DROP INDEX {quoted(others[0].name)};",
        )


def _is_harmless(index: Index, keys: frozenset[str], numbered: frozenset[str]) -> bool:
    """Two rows that are one to it have the same key anyway, or the server gives them different numbers."""
    return index.whole >= keys or bool(index.whole & numbered)
