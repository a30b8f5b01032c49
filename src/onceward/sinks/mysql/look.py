"""One statement that locks the target and our own tables against any change of their definition, and describes them.

Whoever uses a table in a transaction holds a metadata lock on it until the end, whatever its engine: an ALTER TABLE, a
CREATE TRIGGER or a RENAME waits for that. The server opens every table of a statement before it reads the first row, so
that a statement with a part that reads nothing of the target describes it as it will be until the COMMIT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from onceward.connections.mysql import Session, literal, quoted
from onceward.sinks.mysql.table import Column, Index, Server, Table, Trigger

_FIELDS = 14
_EXPRESSIONS_SHOWN = (8, 0, 13)


@dataclass(frozen=True, slots=True)
class Seen:
    """The target, or None where there is none that we may see; and those of our tables that are there."""

    target: Table | None
    ours: Mapping[str, Table]


def look(
    session: Session, database: str, table: str, server: Server, *, ours: Sequence[str] = (), locked: bool = False
) -> Seen:
    """Describe them. `locked`: for the transaction that the session is in, and then all of them must be there."""
    fold = str.lower if server.folds_table_names else str
    parts = [part for name in (table, *ours) for part in _of_table(database, name, server)]
    parts += _of_target(database, table)
    if locked:
        nothing = ", ".join(["NULL"] * _FIELDS)
        parts += [f"SELECT {nothing} FROM {quoted(database)}.{quoted(name)} WHERE FALSE" for name in (table, *ours)]
    rows: dict[str, list[Sequence[str | None]]] = {}
    for kind, name, *about in session.execute(" UNION ALL ".join(parts)):
        # The server compares names of its own without regard to case, also where they are told apart.
        rows.setdefault(fold(name), []).append((kind, *about))
    return Seen(
        _described(rows.get(fold(table), [])), {name: t for name in ours if (t := _described(rows.get(fold(name), [])))}
    )


def _select(kind: str, fields: Sequence[str], source: str) -> str:
    """All fields as text of one collation: those of information_schema have several, and a UNION takes only one."""
    texts = [f"CONVERT({field} USING utf8mb4)" for field in fields]
    return f"SELECT {', '.join([repr(kind), *texts, *['NULL'] * (_FIELDS - 1 - len(texts))])} FROM {source}"


def _of_table(database: str, table: str, server: Server) -> Iterator[str]:
    where = f"WHERE TABLE_SCHEMA = {literal(database)} AND TABLE_NAME = {literal(table)}"
    yield _select("table", ["TABLE_NAME", "TABLE_TYPE", "ENGINE"], f"information_schema.TABLES {where}")
    expression = "EXPRESSION" if not server.is_mariadb and server.version >= _EXPRESSIONS_SHOWN else "NULL"
    fields = ["TABLE_NAME", "INDEX_NAME", "SEQ_IN_INDEX", "COLUMN_NAME", "SUB_PART", expression]
    yield _select("unique", fields, f"information_schema.STATISTICS {where} AND NON_UNIQUE = 0")


def _of_target(database: str, table: str) -> Iterator[str]:
    where = f"WHERE TABLE_SCHEMA = {literal(database)} AND TABLE_NAME = {literal(table)}"
    fields = ["TABLE_NAME", "COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE", "CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION"]
    fields += ["NUMERIC_SCALE", "DATETIME_PRECISION", "IS_NULLABLE", "COLUMN_DEFAULT", "EXTRA"]
    fields += ["CHARACTER_SET_NAME", "COLLATION_NAME"]
    yield _select("column", fields, f"information_schema.COLUMNS {where}")
    keys = f"information_schema.KEY_COLUMN_USAGE {where} AND REFERENCED_TABLE_NAME IS NOT NULL"
    yield _select("foreign key", ["TABLE_NAME", "CONSTRAINT_NAME"], keys)
    event = f"EVENT_OBJECT_SCHEMA = {literal(database)} AND EVENT_OBJECT_TABLE = {literal(table)}"
    fields = ["EVENT_OBJECT_TABLE", "TRIGGER_NAME", "ACTION_TIMING", "EVENT_MANIPULATION", "ACTION_STATEMENT"]
    yield _select("trigger", fields, f"information_schema.TRIGGERS WHERE {event}")


def _described(rows: Sequence[Sequence[str | None]]) -> Table | None:
    found: dict[str | None, list[Sequence[str | None]]] = {}
    for kind, *about in rows:
        found.setdefault(kind, []).append(about)
    if "table" not in found:
        return None
    kind, engine = found["table"][0][:2]
    columns = [_column(about) for about in found.get("column", ())]
    return Table(
        kind=kind or "",
        engine=engine or "",
        columns={column.name.lower(): column for column in columns},
        unique=tuple(_unique(found.get("unique", ()))),
        foreign_keys=tuple(sorted({str(about[0]) for about in found.get("foreign key", ())})),
        triggers=tuple(sorted((_trigger(about) for about in found.get("trigger", ())), key=str)),
    )


def _column(about: Sequence[str | None]) -> Column:
    name, kind, declared, length, precision, scale, time_precision, nullable, default, extra, charset, collation = (
        about[:12]
    )
    said = (extra or "").lower()
    return Column(
        name=str(name),
        kind=str(kind).lower(),
        declared=str(declared),
        length=_number(length),
        precision=_number(precision),
        scale=_number(scale),
        time_precision=_number(time_precision),
        is_nullable=nullable == "YES",
        default=default,
        counts="auto_increment" in said,
        is_generated="generated" in said.replace("default_generated", ""),
        charset=charset,
        collation=collation,
    )


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)


def _unique(rows: Sequence[Sequence[str | None]]) -> Iterator[Index]:
    indexes: dict[str, list[tuple[int, str | None, str | None, str | None]]] = {}
    for name, position, column, length, expression, *_ in rows:
        indexes.setdefault(str(name), []).append((int(position or 0), column, length, expression))
    for name, parts in sorted(indexes.items()):
        parts.sort(key=lambda part: part[0])
        shown = [f"({expression})" if c is None else c + (f"({n})" if n else "") for _, c, n, expression in parts]
        whole = frozenset(column.lower() for _, column, length, _ in parts if column is not None and length is None)
        yield Index(name, tuple(shown), whole)


def _trigger(about: Sequence[str | None]) -> Trigger:
    name, timing, event, statement = (str(text) for text in about[:4])
    digest = blake2b(re.sub(r"\s+", " ", statement).encode(), digest_size=4).hexdigest()
    return Trigger(name, timing, event, digest)
