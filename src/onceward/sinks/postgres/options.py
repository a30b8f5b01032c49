"""What the user said: which table, in which way. Shared by both templates, and sent to the executors."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onceward.connections.postgres import Address, quoted
from onceward.errors import ConfigurationError
from onceward.sinks.names import wrong_keys
from onceward.sinks.postgres.receipts import RECEIPTS, WATERMARKS

MODES = ("append", "upsert", "replace")
_PART = r'(?:"((?:[^"]|"")+)"|([^".]+))'
_TABLE = re.compile(rf"(?:{_PART}\.)?{_PART}")
_LONGEST_NAME = 63
STAGE = "onceward_stage"
RESERVED = (RECEIPTS, WATERMARKS, STAGE)
"""Tables of our own."""
ROW = "onceward_row"
DELETED = "onceward_deleted"
"""Columns of our own in the temporary table of an upsert."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a schema, or wherever the search path finds it."""

    schema: str | None
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`table`, `schema.table`, or either part in double quotes, as in SQL; unquoted parts keep their case."""
        match = None if "`" in text and '"' not in text else _TABLE.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{text!r} cannot be a table",
                hint='write table, schema.table, or "odd.name" in double quotes as in SQL',
            )
        schema, table = (
            within.replace('""', '"') if within is not None else bare
            for within, bare in (match.group(1, 2), match.group(3, 4))
        )
        wrong = next((found for part in (schema, table) if part is not None and (found := wrong_name(part))), None)
        if wrong is not None:
            raise ConfigurationError(wrong, hint=f"use at most {_LONGEST_NAME} bytes, and no NUL")
        if table in RESERVED or (schema or "").startswith("pg_"):
            raise ConfigurationError(
                f"{text!r} is not for rows of yours", hint="name a table of your own, in a schema of your own"
            )
        return cls(schema, table)

    def __str__(self) -> str:
        """As SQL."""
        return quoted(self.table) if self.schema is None else f"{quoted(self.schema)}.{quoted(self.table)}"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a `PostgresSink`, checked."""

    address: Address
    table: TableName
    mode: str
    keys: tuple[str, ...]
    order_by: str | None
    deleted: str | None
    create_table: bool
    receipts_schema: str | None
    triggers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what can be refused without a connection."""
        wrong = _wrong_option(self)
        if wrong is not None:
            raise ConfigurationError(wrong[0], hint=wrong[1])


def _wrong_option(options: Options) -> tuple[str, str] | None:
    upsert = options.mode == "upsert"
    if options.mode not in MODES:
        return f"unknown mode {options.mode!r}", f"choose one of {', '.join(MODES)}"
    if (wrong := wrong_keys(options.keys, options.mode)) is not None:
        return wrong
    if options.receipts_schema is not None and (why := wrong_name(options.receipts_schema)):
        return f"receipts_schema: {why}", f"use at most {_LONGEST_NAME} bytes, and no NUL"
    for option, value in (("order_by", options.order_by), ("deleted", options.deleted)):
        if value is not None and not upsert:
            return f"mode {options.mode} has no use for {option}", f'say mode="upsert", or leave {option} out'
        if value is not None and value in options.keys:
            return f"{option} names the key {value!r}", "name another column"
    return None


def wrong_name(name: str) -> str | None:
    """Why PostgreSQL cannot have a name like this; None when it can."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return f"{name!r} cannot be a name: it is not Unicode"
    if not name or "\0" in name:
        return f"{name!r} cannot be a name"
    return f"{name!r} is longer than PostgreSQL's names can be" if size > _LONGEST_NAME else None
