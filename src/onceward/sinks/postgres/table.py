"""The table as the server describes it, in one statement: columns, unique indexes, and all that acts on rows.

It is read from the catalog alone, and through no function that would wait for a lock on the table. At the end stand the
statements that make a table for a stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from onceward.connections.postgres import PostgresError, columns_as_sql, quoted
from onceward.sinks.arrow_types import is_bytes, is_text
from onceward.sinks.postgres.options import Options, TableName

_NO_SCHEMA = ("3F000", "42P01")
# A domain may stand on a domain; the modifier that counts is the one nearest to the type itself.
_COLUMNS = """\
SELECT json_agg(json_build_object('name', a.attname, 'kind',
        CASE WHEN t.typtype = 'e' THEN 'enum'
            WHEN t.typtype = 'b' AND (t.typnamespace = 'pg_catalog'::regnamespace OR t.typname = 'citext')
                THEN t.typname
            ELSE 'other' END,
    'modifier', b.modifier, 'printed', format_type(a.atttypid, a.atttypmod),
    'collation', CASE WHEN a.attcollation NOT IN (0, 100)
        THEN (SELECT collname FROM pg_collation WHERE oid = a.attcollation) END,
    'is_required', a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
    'is_computed', a.attgenerated <> '' OR a.attidentity = 'a') ORDER BY a.attnum)
FROM (
    WITH RECURSIVE based AS (
        SELECT attnum, atttypid AS type, atttypmod AS modifier
        FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT b.attnum, t.typbasetype, t.typtypmod FROM based b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
    )
    SELECT attnum, type, modifier FROM based
) AS b JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = b.attnum"""
# What an index takes for equal: its operator class names the operator, and the type it compares as. A type's own
# default class has one too, which sorting and grouping use. Columns that an index only carries along (INCLUDE) make
# nothing unique.
_KEY_PARTS = """\
SELECT json_agg(json_build_object('column', a.attname,
    'operator', (SELECT format('OPERATOR(%s.%s)', oprnamespace::regnamespace, oprname)
        FROM pg_operator WHERE oid = ao.amopopr),
    'compared_as', (SELECT format_type(oid, NULL) FROM pg_type WHERE oid = oc.opcintype AND typtype <> 'p' AND oid <> (
        WITH RECURSIVE based AS (
            SELECT a.atttypid AS type
            UNION ALL SELECT t.typbasetype FROM based b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
        )
        SELECT b.type FROM based b JOIN pg_type t ON t.oid = b.type WHERE t.typtype <> 'd')),
    'collation', (SELECT format('%s.%I', collnamespace::regnamespace, collname)
        FROM pg_collation WHERE oid = i.indcollation[k.place]),
    'is_deterministic', coalesce(
        (SELECT collisdeterministic FROM pg_collation WHERE oid = i.indcollation[k.place]), true),
    'class', oc.opcname,
    'is_default', EXISTS (SELECT FROM pg_opclass d JOIN pg_amop da ON da.amopfamily = d.opcfamily
        AND da.amoplefttype = d.opcintype AND da.amoprighttype = d.opcintype AND da.amopstrategy = 3
        WHERE d.opcmethod = oc.opcmethod AND d.opcdefault AND da.amopopr = ao.amopopr)
    ) ORDER BY k.place)
FROM generate_series(0, i.indnkeyatts - 1) AS k (place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.place]
JOIN pg_opclass oc ON oc.oid = i.indclass[k.place]
JOIN pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amoplefttype = oc.opcintype
    AND ao.amoprighttype = oc.opcintype AND ao.amopstrategy = 3"""
# An index that is attached to one of the parent table is told with that one, as is a trigger that was cloned from it:
# a new partition then changes nothing. An index that is still being built, or built anew, is none yet.
_INDEXES = f"""\
SELECT json_agg(json_build_object('name', x.relname, 'table', t.relname, 'is_ours', t.oid = c.oid,
    'says', substr(d.says, strpos(d.says, ' USING ') + 7) || CASE WHEN i.indimmediate THEN '' ELSE ' DEFERRABLE' END,
    'parts', CASE WHEN i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate
        THEN ({_KEY_PARTS}) END) ORDER BY t.relname, x.relname)
FROM tree t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class x ON x.oid = i.indexrelid,
    LATERAL pg_get_indexdef(i.indexrelid) AS d (says)
WHERE t.root = c.oid AND (i.indisunique OR i.indisexclusion) AND i.indisvalid AND NOT x.relispartition"""
_TRIGGERS = """\
SELECT json_agg(json_build_object('name', g.tgname, 'table', t.relname, 'kind', g.tgtype,
    'says', pg_get_triggerdef(g.oid), 'body', left(md5(p.prosrc), 8)) ORDER BY t.relname, g.tgname)
FROM tree t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal AND g.tgenabled IN ('O', 'A')
    AND coalesce(to_json(g) ->> 'tgparentid', '0') = '0'
JOIN pg_proc p ON p.oid = g.tgfoid WHERE t.root = c.oid"""
_QUERY = f"""\
WITH RECURSIVE wanted AS (
    SELECT v.place, to_regclass(v.name)::oid AS oid
    FROM (VALUES (0, $1::text), (1, $2::text), (2, $3::text)) AS v (place, name)
), tree AS (
    SELECT c.oid AS root, c.oid, c.relname, c.relkind, c.relpersistence FROM wanted w JOIN pg_class c ON c.oid = w.oid
    UNION ALL
    SELECT t.root, c.oid, c.relname, c.relkind, c.relpersistence FROM tree t
        JOIN pg_inherits i ON i.inhparent = t.oid AND t.relkind = 'p' JOIN pg_class c ON c.oid = i.inhrelid
)
SELECT w.place, CASE WHEN c.oid IS NOT NULL THEN json_build_object(
    'schema', n.nspname, 'name', c.relname, 'kind', c.relkind, 'is_temporary', c.relpersistence = 't',
    'has_row_security', row_security_active(c.oid),
    'unlogged', (SELECT json_agg(relname ORDER BY relname) FROM tree WHERE root = c.oid AND relpersistence = 'u'),
    'foreign', (SELECT json_agg(relname ORDER BY relname) FROM tree WHERE root = c.oid AND relkind = 'f'),
    'children', (SELECT json_agg(k.relname ORDER BY k.relname) FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
        WHERE i.inhparent = c.oid AND c.relkind = 'r'),
    'referring', (SELECT json_agg(conname ORDER BY conname) FROM pg_constraint
        WHERE confrelid = c.oid AND contype = 'f' AND conrelid <> c.oid),
    'rules', (SELECT json_agg(r.rulename ORDER BY r.rulename) FROM tree t JOIN pg_rewrite r ON r.ev_class = t.oid
        WHERE t.root = c.oid AND r.ev_type IN ('2', '3', '4') AND r.ev_enabled IN ('O', 'A')),
    'columns', CASE WHEN w.place = 0 THEN ({_COLUMNS}) END,
    'indexes', CASE WHEN w.place = 0 THEN ({_INDEXES}) END,
    'triggers', ({_TRIGGERS}))::text END
FROM wanted w LEFT JOIN pg_class c ON c.oid = w.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the table has. `printed` is how people write its type; `kind` is that type's own name, or that of
    the type under a domain, or `enum`, or `other` for what binary COPY could only guess at; `modifier` is its length or
    precision as the server packs it; `collation` is told where it is not the database's."""

    name: str
    kind: str
    modifier: int
    printed: str
    collation: str | None
    is_required: bool
    is_computed: bool


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a unique index, and what the index takes for equal there. `compared_as`: another type than its own.
    Not `is_default`: sorting and grouping by the column would go by another equality."""

    column: str
    operator: str
    compared_as: str | None
    collation: str | None
    is_deterministic: bool
    operator_class: str
    is_default: bool

    @property
    def equality(self) -> tuple[str, str | None, str | None]:
        """All that decides whether two values are one key."""
        return self.operator, self.compared_as, self.collation


@dataclass(frozen=True, slots=True)
class Index:
    """A unique index or an exclusion constraint. `parts` is empty for one that ON CONFLICT cannot use."""

    name: str
    table: str
    is_ours: bool
    definition: str
    parts: tuple[KeyPart, ...]

    @property
    def columns(self) -> frozenset[str]:
        """Whose values it keeps unique."""
        return frozenset(part.column for part in self.parts)


_ROW, _BEFORE, _INSERT, _DELETE, _UPDATE = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class Trigger:
    """One that fires, on the table or a partition. `kind` is the server's set of bits."""

    name: str
    table: str
    kind: int
    definition: str
    body: str

    @property
    def comes_between(self) -> frozenset[str]:
        """The operations whose rows it can change or leave out."""
        if not (self.kind & _ROW and self.kind & _BEFORE):
            return frozenset()
        bits = {"INSERT": _INSERT, "DELETE": _DELETE, "UPDATE": _UPDATE}
        return frozenset(name for name, bit in bits.items() if self.kind & bit)


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the server describes it, with its partitions. Names that follow `unlogged` are of tables, partitions,
    constraints of other tables, and rules."""

    schema: str
    name: str
    kind: str
    is_temporary: bool
    has_row_security: bool
    unlogged: tuple[str, ...]
    foreign: tuple[str, ...]
    children: tuple[str, ...]
    referring: tuple[str, ...]
    rules: tuple[str, ...]
    columns: dict[str, Column]
    indexes: tuple[Index, ...]
    triggers: tuple[Trigger, ...]

    def __str__(self) -> str:
        """As SQL, whatever the search path: a temporary table of the same name comes first in it."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def column(self, name: str) -> Column | None:
        """The column for a stream's column: of the very name, or of that name in lower case."""
        return self.columns.get(name) or self.columns.get(name.lower())


def describe(run: Callable[..., list[tuple[Any, ...]]], *names: str) -> list[Table | None]:
    """The tables of these names, at most three, as they are now; None for one that does not exist."""
    try:
        rows = run(_QUERY, *names, *[None] * (3 - len(names)))
    except PostgresError as error:
        if error.sqlstate in _NO_SCHEMA:
            return [None] * len(names)
        raise
    return [_table(json.loads(found)) if found is not None else None for _, found in rows][: len(names)]


def _table(found: dict[str, Any]) -> Table:
    given: dict[str, Any] = {
        **{name: found[name] for name in ("schema", "name", "kind", "is_temporary", "has_row_security")},
        **{name: tuple(found[name] or ()) for name in ("unlogged", "foreign", "children", "referring", "rules")},
    }
    return Table(
        **given,
        columns={column["name"]: Column(**column) for column in found["columns"] or ()},
        indexes=tuple(_index(index) for index in found["indexes"] or ()),
        triggers=tuple(Trigger(definition=trigger.pop("says"), **trigger) for trigger in found["triggers"] or ()),
    )


def _index(found: dict[str, Any]) -> Index:
    parts: Sequence[dict[str, Any]] = found.pop("parts") or ()
    return Index(
        definition=found.pop("says"),
        parts=tuple(KeyPart(operator_class=part.pop("class"), **part) for part in parts),
        **found,
    )


def create_table(options: Options, schema: pa.Schema) -> str:
    """The statement that makes a table for this stream."""
    fields = [field for field in schema if field.name != options.deleted]
    columns = [f"{quoted(field.name)} {_declared(field)}" for field in fields]
    columns += [f"UNIQUE ({columns_as_sql(options.keys)})"] if options.keys else []
    return f"CREATE TABLE {options.table} ({', '.join(columns)})"


def add_column(table: TableName, field: pa.Field) -> str:
    """The statement that adds a column for this field."""
    return f"ALTER TABLE {table} ADD COLUMN {quoted(field.name)} {_declared(field)}"


def _declared(field: pa.Field) -> str:
    """The column type that takes this field without loss."""
    kind = field.type
    if pt.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    for fits, name in _DECLARED:
        if fits(kind):
            return name
    return "jsonb"


_DECLARED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pt.is_boolean, "boolean"),
    (lambda kind: pt.is_int8(kind) or pt.is_int16(kind), "smallint"),
    (pt.is_int32, "integer"),
    (pt.is_integer, "bigint"),
    (pt.is_float32, "real"),
    (pt.is_floating, "double precision"),
    (lambda kind: is_text(kind) or pt.is_null(kind), "text"),
    (is_bytes, "bytea"),
    (pt.is_date, "date"),
    (lambda kind: pt.is_timestamp(kind) and kind.tz is None, "timestamp"),
    (pt.is_timestamp, "timestamptz"),
    (pt.is_time, "time"),
    (pt.is_duration, "interval"),
)
