"""A table as the server describes it, the server itself, and the statements that make a table and fix it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.types as pt

from onceward.connections.mysql import Session, quoted

# As long as an index can take on every server when a key has two of them.
_KEY_LENGTH = 255
_EXACT_SINCE = (8, 0, 17)


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
    is_nullable: bool
    default: str | None
    counts: bool
    is_generated: bool
    charset: str | None
    collation: str | None

    @property
    def is_unsigned(self) -> bool:
        """Whether it has no room for negative numbers."""
        return "unsigned" in self.declared.lower()

    @property
    def is_required(self) -> bool:
        """Whether a row must bring a value for it."""
        return not (self.is_nullable or self.default is not None or self.counts or self.is_generated)

    @property
    def members(self) -> tuple[str, ...]:
        """The texts that an ENUM or a SET knows, in their order; the server shows them as it would write them."""
        shown = re.findall(r"'((?:[^'\\]|''|\\.)*)'", self.declared, re.DOTALL)
        return tuple(re.sub(r"''|\\(.)", _unescaped, text, flags=re.DOTALL) for text in shown)

    def __str__(self) -> str:
        """All of it that a stored value depends on."""
        parts = [self.declared, self.collation, None if self.is_nullable else "not null"]
        return ", ".join(part for part in [*parts, "generated" if self.is_generated else None] if part)


@dataclass(frozen=True, slots=True)
class Index:
    """A unique index: its parts as people write them, and those columns of which no part is left out."""

    name: str
    parts: tuple[str, ...]
    whole: frozenset[str]

    def is_exactly(self, columns: frozenset[str]) -> bool:
        """Whether two rows are one to it when they have the same values in these columns, and only then."""
        return self.whole == columns and len(self.parts) == len(columns)

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.parts)})"


@dataclass(frozen=True, slots=True)
class Trigger:
    """What the table does by itself."""

    name: str
    timing: str
    event: str
    digest: str

    @property
    def may_change_values(self) -> bool:
        """Only before a row is stored; afterwards it is too late."""
        return self.timing == "BEFORE" and self.event != "DELETE"

    def __str__(self) -> str:
        return f"{self.timing} {self.event} {self.name} (statement {self.digest})"


@dataclass(frozen=True)
class Table:
    """A table as the server describes it; column names are folded, because MySQL ignores their case."""

    kind: str
    engine: str
    columns: Mapping[str, Column]
    unique: tuple[Index, ...]
    foreign_keys: tuple[str, ...]
    triggers: tuple[Trigger, ...]

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
        if self.is_mariadb:
            return "utf8mb4_nopad_bin"
        # Older ones have none that minds trailing blanks: keys that differ only in those are rejected there.
        return "utf8mb4_0900_bin" if self.version >= _EXACT_SINCE else "utf8mb4_bin"

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


def _unescaped(found: re.Match[str]) -> str:
    letter = found[1]
    return "'" if letter is None else {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "Z": "\x1a"}.get(letter, letter)


def declared(kind: pa.DataType, server: Server, *, is_key: bool = False) -> str:
    """The column type for an Arrow type that `refused_type` lets pass."""
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
    if pt.is_nested(kind) and (server.is_mariadb or not (has_fractions(kind) or has_maps(kind))):
        return "JSON"
    text = f"VARCHAR({_KEY_LENGTH})" if is_key else "LONGTEXT"
    return f"{text} CHARACTER SET utf8mb4 COLLATE {server.exact}"


def has_fractions(kind: pa.DataType) -> bool:
    """Whether something in it has digits behind the point: MySQL's JSON makes doubles of them; MariaDB's is text."""
    if pt.is_dictionary(kind):
        return has_fractions(kind.value_type)
    if pt.is_nested(kind):
        return any(has_fractions(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pt.is_floating(kind) or pt.is_decimal(kind))


def has_maps(kind: pa.DataType) -> bool:
    """Whether something in it is a map: MySQL's JSON sorts its keys; MariaDB's is text."""
    return bool(pt.is_map(kind)) or (
        pt.is_nested(kind) and any(has_maps(kind.field(number).type) for number in range(kind.num_fields))
    )


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


def add_columns(target: str, fields: Sequence[pa.Field], server: Server) -> str:
    """The statement that adds columns for these fields."""
    additions = ", ".join(f"ADD COLUMN {quoted(field.name)} {declared(field.type, server)}" for field in fields)
    return f"ALTER TABLE {target} {additions}"


def columns_as_sql(names: Sequence[str]) -> str:
    """A list of quoted identifiers."""
    return ", ".join(quoted(name) for name in names)
