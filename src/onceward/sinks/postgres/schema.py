"""The target table: what columns it has, whether the stream fits it, and the statement that makes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceward.connections.postgres import PostgresError, Session, listed, quoted
from onceward.errors import TargetRefused
from onceward.sinks.postgres.target import TableName, Target, wrong_name
from onceward.sinks.postgres.values import Wire, declared, wire_for

_NO_SCHEMA = ("3F000", "42P01")
_WITHOUT_ORDER = ("json", "xml")
ROW = "onceward_row"
DELETED = "onceward_deleted"
"""Columns of our own in the temporary table of an upsert."""


# A domain may stand on a domain; the modifier that counts is the one nearest to the type itself.
_COLUMNS = """\
SELECT a.attname::text,
    CASE WHEN t.typtype = 'e' THEN 'enum'
        WHEN t.typtype = 'b' AND (n.nspname = 'pg_catalog' OR t.typname = 'citext') THEN t.typname::text
        ELSE 'other' END,
    b.modifier, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM (
    WITH RECURSIVE based AS (
        SELECT attnum, atttypid AS type, atttypmod AS modifier
        FROM pg_attribute WHERE attrelid = $1::bigint::oid AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT b.attnum, t.typbasetype, t.typtypmod FROM based b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
    )
    SELECT attnum, type, modifier FROM based
) AS b JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd' JOIN pg_namespace n ON n.oid = t.typnamespace
JOIN pg_attribute a ON a.attrelid = $1::bigint::oid AND a.attnum = b.attnum ORDER BY a.attnum
"""
# Columns that an index only carries along (INCLUDE) make nothing unique.
_UNIQUE = """\
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN pg_attribute a
    ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    AND i.indimmediate
GROUP BY i.indexrelid
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the table has. `printed` is how people write its type; `kind` is that type's own name, or that of
    the type under a domain, or `enum`, or `other` for what binary COPY could only guess at; `modifier` is its length or
    precision as the server packs it."""

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
    is_unlogged: bool
    columns: dict[str, Column]
    unique: tuple[frozenset[str], ...]

    def __str__(self) -> str:
        """As SQL, whatever the search path: a temporary table of the same name comes first in it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def column(self, name: str) -> Column | None:
        """The column for a stream's column: of the very name, or of that name in lower case."""
        return self.columns.get(name) or self.columns.get(name.lower())


def describe(session: Session, wanted: TableName) -> Table | None:
    """The table, or None when there is none. What cannot take rows is refused."""
    try:
        found = session.run(
            "SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, "
            "row_security_active(c.oid) FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)",
            str(wanted),
        )
    except PostgresError as error:
        if error.sqlstate in _NO_SCHEMA:
            return None
        raise
    if not found:
        return None
    oid, schema, name, kind, persistence, has_row_security = found[0]
    if kind not in ("r", "p") or persistence == "t":
        raise TargetRefused(f"{wanted} is no table that takes rows by COPY", hint="name the table behind it")
    if has_row_security:
        raise TargetRefused(
            f"{wanted} has row security, and COPY cannot go through it", hint="use a role with BYPASSRLS"
        )
    columns = session.run(_COLUMNS, oid)
    unique = session.run(_UNIQUE, oid)
    return Table(
        schema=schema,
        name=name,
        is_unlogged=persistence == "u",
        columns={row[0]: Column(*row) for row in columns},
        unique=tuple(frozenset(names) for (names,) in unique),
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
    order = table.column(target.order_by) if target.order_by is not None else None
    if order is not None and order.kind in _WITHOUT_ORDER:
        raise TargetRefused(
            f"column {order.name!r} is {order.printed}, of which none is greater than another",
            hint="name another column in order_by",
        )
    keys = frozenset(column.name for key in target.keys if (column := table.column(key)))
    if keys and keys not in table.unique:
        raise TargetRefused(
            f"table {target.table} has no unique index on {', '.join(target.keys)}, which an upsert needs",
            hint=f"run: {create_index(target)}",
        )


def key_columns(table: Table, target: Target) -> list[str]:
    """The keys as the table spells them."""
    return [column.name for column in map(table.column, target.keys) if column is not None]


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
    wrong = next((found for name in names if (found := wrong_name(name))), None)
    if wrong is not None:
        raise TargetRefused(f"a column: {wrong}", hint="rename it in the query: at most 63 bytes, and no NUL")
