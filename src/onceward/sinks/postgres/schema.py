"""The target table: what columns it has, whether the stream fits it, and the statement that makes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceward.connections.postgres import PostgresError, Session, listed, quoted
from onceward.errors import TargetRefused
from onceward.sinks.postgres.target import TableName, Target
from onceward.sinks.postgres.values import Wire, declared, wire_for

_NO_SCHEMA = ("3F000", "42P01")
ROW = "onceward_row"
DELETED = "onceward_deleted"
"""Columns of our own in the temporary table of an upsert."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the table has. `kind` is the type's own name, `printed` how people write it."""

    name: str
    kind: str
    modifier: int
    printed: str
    is_required: bool
    is_computed: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the server describes it."""

    schema: str
    name: str
    columns: dict[str, Column]
    unique: tuple[frozenset[str], ...]

    def column(self, name: str) -> Column | None:
        """The column for a stream's column: of the very name, or of that name in lower case."""
        return self.columns.get(name) or self.columns.get(name.lower())


def describe(session: Session, wanted: TableName) -> Table | None:
    """The table, or None when there is none. What cannot take rows is refused."""
    try:
        found = session.run(
            "SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)",
            str(wanted),
        )
    except PostgresError as error:
        if error.sqlstate in _NO_SCHEMA:
            return None
        raise
    if not found:
        return None
    oid, schema, name, kind = found[0]
    if kind not in ("r", "p"):
        raise TargetRefused(f"{wanted} is no table that takes rows by COPY", hint="name the table behind it")
    columns = session.run(
        "SELECT a.attname::text, t.typname::text, a.atttypmod, format_type(a.atttypid, a.atttypmod), "
        "a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' OR a.attidentity = 'a' "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = CASE WHEN (SELECT b.typtype FROM pg_type b "
        "WHERE b.oid = a.atttypid) = 'd' THEN (SELECT b.typbasetype FROM pg_type b WHERE b.oid = a.atttypid) "
        "ELSE a.atttypid END WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum",
        oid,
    )
    unique = session.run(
        "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY (i.indkey) WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid "
        "AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate GROUP BY i.indexrelid",
        oid,
    )
    return Table(
        schema, name, {row[0]: Column(*row) for row in columns}, tuple(frozenset(names) for (names,) in unique)
    )


def create_table(target: Target, schema: pa.Schema) -> str:
    """The statement that makes a table for this stream."""
    fields = [field for field in schema if field.name != target.deleted]
    columns = [f"{quoted(field.name)} {declared(field)}" for field in fields]
    columns += [f"UNIQUE ({listed(target.keys)})"] if target.keys else []
    return f"CREATE TABLE {target.table} ({', '.join(columns)})"


def create_index(target: Target) -> str:
    """The statement that makes an existing table fit for upserts."""
    return f"CREATE UNIQUE INDEX ON {target.table} ({listed(target.keys)})"


def refuse_unless_fitting(table: Table, target: Target, schema: pa.Schema) -> None:
    """Raise `TargetRefused`, naming the columns, when rows of this stream cannot go into the table."""
    fields = [field for field in schema if field.name != target.deleted]
    missing = [field.name for field in fields if table.column(field.name) is None]
    if missing:
        raise TargetRefused(
            f"table {target.table} has no column {', '.join(missing)}",
            hint=f"its columns are {', '.join(table.columns)}; run: "
            + "; ".join(_add_column(target.table, schema.field(name)) for name in missing),
        )
    filled = {column.name for field in fields if (column := table.column(field.name))}
    if len(filled) < len(fields):
        raise TargetRefused("two of the stream's columns are one column of the table", hint="rename one in the query")
    required = [column.name for column in table.columns.values() if column.is_required and column.name not in filled]
    if required:
        raise TargetRefused(
            f"table {target.table} needs a value for {', '.join(required)}, which the stream does not have",
            hint="add the column to the query, or give it a default in the table",
        )
    wires(table, target, schema)
    keys = frozenset(column.name for key in target.keys if (column := table.column(key)))
    if keys and keys not in table.unique:
        raise TargetRefused(
            f"table {target.table} has no unique index on {', '.join(target.keys)}, which an upsert needs",
            hint=f"run: {create_index(target)}",
        )


def wires(table: Table, target: Target, schema: pa.Schema) -> list[Wire]:
    """How each of the stream's columns travels into its column; refused by name where it cannot."""
    found = []
    for field in schema:
        if field.name == target.deleted:
            continue
        column = table.column(field.name)
        if column is None:
            raise TargetRefused(
                f"table {target.table} has lost its column {field.name}", hint="put it back, then start again"
            )
        wire = None if column.is_computed else wire_for(field, column.name, column.kind, column.modifier)
        if wire is None:
            is_a = "is computed by the table" if column.is_computed else f"is {column.printed}"
            raise TargetRefused(
                f"column {column.name!r} {is_a} and cannot faithfully take {field.type} from the stream",
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


def check_stream(target: Target, schema: pa.Schema, output_mode: str) -> None:
    """Refuse what no table could mend."""
    if (output_mode == "complete") != (target.mode == "replace") and target.mode != "upsert":
        if output_mode == "complete":
            raise TargetRefused(
                "output mode complete gives the whole result in every epoch, and mode append would pile it up",
                hint='use mode="replace", or mode="upsert" with keys',
            )
        raise TargetRefused(
            f"mode replace needs output mode complete; with {output_mode} an epoch is only a part of the result",
            hint='use output_mode="complete", or mode="upsert" with keys',
        )
    if not len(schema):
        raise TargetRefused("the stream has no columns", hint="select some in the query")
    named = [*target.keys, *(name for name in (target.order_by, target.deleted) if name is not None)]
    missing = [name for name in named if name not in schema.names]
    if missing:
        raise TargetRefused(
            f"the stream has no column {', '.join(missing)}", hint=f"its columns are {', '.join(schema.names)}"
        )
    if target.deleted is not None and not pa.types.is_boolean(schema.field(target.deleted).type):
        raise TargetRefused(
            f"column {target.deleted!r} tells which rows are deleted and must be boolean", hint="cast it in the query"
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse names that PostgreSQL would cut off."""
    taken = [name for name in names if name in (ROW, DELETED)]
    if taken:
        raise TargetRefused(f"a column cannot be called {taken[0]!r} here", hint="rename it in the query")
    long = [name for name in names if len(name.encode()) > 63 or "\0" in name]
    if long:
        raise TargetRefused(f"{long[0]!r} cannot be a column of PostgreSQL", hint="use at most 63 bytes, and no NUL")
