"""The target table: how the server describes it, and the statements that make and mend it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.types as pt

from onceward.connections.mysql import Session, literal, quoted
from onceward.errors import TargetRefused

# As long as an index can take on every server when a key has two of them.
_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Column:
    """A column that the table has."""

    name: str
    kind: str
    declared: str
    length: int | None
    precision: int | None
    scale: int | None
    time_precision: int | None
    is_required: bool
    counts: bool
    is_generated: bool

    @property
    def is_unsigned(self) -> bool:
        """Whether it has no room for negative numbers."""
        return "unsigned" in self.declared.lower()


@dataclass(frozen=True)
class Table:
    """A table as the server describes it; column names are folded, because MySQL ignores their case."""

    engine: str
    columns: Mapping[str, Column]
    unique: tuple[frozenset[str], ...]

    @cached_property
    def counting(self) -> frozenset[str]:
        """The columns to which the server gives numbers by itself."""
        return frozenset(name for name, column in self.columns.items() if column.counts)


@dataclass(frozen=True, slots=True)
class Server:
    """What differs between servers."""

    version: tuple[int, ...]
    is_mariadb: bool
    folds_table_names: bool
    has_local_infile: bool
    is_galera: bool

    @property
    def exact(self) -> str:
        """A collation in which two texts are equal only when they are the same, trailing blanks and all."""
        return "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"

    @property
    def name(self) -> str:
        """For people."""
        return ("MariaDB " if self.is_mariadb else "MySQL ") + ".".join(map(str, self.version))


def ask_server(session: Session) -> Server:
    """One round trip, and a second one for the variables that only one of them has."""
    version, local_infile, lower_case = session.execute(
        "SELECT VERSION(), @@GLOBAL.local_infile, @@GLOBAL.lower_case_table_names"
    )[0]
    wsrep = session.execute("SHOW GLOBAL VARIABLES LIKE 'wsrep_on'")
    numbers = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return Server(
        version=tuple(int(number or 0) for number in numbers.groups()) if numbers else (0,),
        is_mariadb="mariadb" in version.lower(),
        folds_table_names=int(lower_case) != 0,
        has_local_infile=bool(local_infile),
        is_galera=any(str(value).upper() == "ON" for _, value in wsrep),
    )


def describe(session: Session, database: str, table: str, server: Server) -> Table | None:
    """The table, or None when there is none that we may see. A view is refused."""
    fold = str.lower if server.folds_table_names else str
    where = f"WHERE TABLE_SCHEMA = {literal(database)} AND TABLE_NAME = {literal(table)}"
    found = session.execute(f"SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES {where}")
    mine = [(kind, engine) for name, kind, engine in found if fold(name) == fold(table)]
    if not mine:
        return None
    kind, engine = mine[0]
    if "VIEW" in kind:
        raise TargetRefused(f"{table!r} is a view", hint="name the table behind it")
    columns = session.execute(
        "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, "
        "NUMERIC_SCALE, DATETIME_PRECISION, IS_NULLABLE, COLUMN_DEFAULT, EXTRA "
        f"FROM information_schema.COLUMNS {where} ORDER BY ORDINAL_POSITION"
    )
    indexes = session.execute(
        "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS "
        f"{where} AND NON_UNIQUE = 0"
    )
    return Table(
        engine or "",
        {row[1].lower(): _column(row[1:]) for row in columns if fold(row[0]) == fold(table)},
        _unique([row[1:] for row in indexes if fold(row[0]) == fold(table)]),
    )


def _column(row: Sequence[object]) -> Column:
    name, kind, declared, length, precision, scale, time_precision, nullable, default, extra = row
    said = str(extra).lower()
    counts = "auto_increment" in said
    is_generated = "generated" in said.replace("default_generated", "")
    return Column(
        name=str(name),
        kind=str(kind).lower(),
        declared=str(declared),
        length=_number(length),
        precision=_number(precision),
        scale=_number(scale),
        time_precision=_number(time_precision),
        is_required=nullable == "NO" and default is None and not counts and not is_generated,
        counts=counts,
        is_generated=is_generated,
    )


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))


def _unique(rows: Sequence[Sequence[object]]) -> tuple[frozenset[str], ...]:
    """The unique indexes; one over an expression, or over a part of a column, says nothing about whole columns."""
    columns: dict[object, list[object]] = {}
    for index, column, part in rows:
        columns.setdefault(index, []).append(column if part is None else None)
    return tuple(frozenset(str(name).lower() for name in names) for names in columns.values() if None not in names)


def declared(kind: pa.DataType, server: Server, *, is_key: bool = False) -> str:
    """The column type for an Arrow type that `text.refused` lets pass."""
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pt.is_boolean(kind):
        return "BOOLEAN"
    if pt.is_integer(kind):
        name = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[kind.bit_width]
        return name if pt.is_signed_integer(kind) else f"{name} UNSIGNED"
    if pt.is_floating(kind):
        # Also for float32: the server shows a FLOAT with six digits only.
        return "DOUBLE"
    if pt.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pt.is_date(kind):
        return "DATE"
    if pt.is_time(kind):
        return "TIME(6)"
    if pt.is_timestamp(kind):
        # TIMESTAMP would end in 2038 and show every reader another time.
        return "DATETIME(6)"
    if "binary" in str(kind):
        return f"VARBINARY({_KEY_LENGTH})" if is_key else "LONGBLOB"
    if pt.is_nested(kind):
        return "JSON"
    text = f"VARCHAR({_KEY_LENGTH})" if is_key else "LONGTEXT"
    return f"{text} CHARACTER SET utf8mb4 COLLATE {server.exact}"


def create_table(target: str, schema: pa.Schema, keys: Sequence[str], server: Server) -> str:
    """The statement that makes a table for this stream."""
    folded = {key.lower() for key in keys}
    columns = [
        f"{quoted(field.name)} {declared(field.type, server, is_key=field.name.lower() in folded)}"
        + (" NOT NULL" if field.name.lower() in folded else " NULL")
        for field in schema
    ]
    columns += [f"PRIMARY KEY ({columns_as_sql(keys)})"] if keys else []
    return f"CREATE TABLE {target} ({', '.join(columns)}) ENGINE=InnoDB"


def columns_as_sql(names: Sequence[str]) -> str:
    """A list of quoted identifiers."""
    return ", ".join(quoted(name) for name in names)
