"""What the user said: which table, in which way. Shared by both templates, and sent to the executors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onceward.connections.postgres import Address, quoted
from onceward.errors import ConfigurationError

MODES = ("append", "upsert", "replace")
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True)
class TableName:
    """A table in a schema, or wherever the search path finds it."""

    schema: str | None
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """`table`, `schema.table`, or either part in double quotes, as in SQL; unquoted parts keep their case."""
        parts, at = [], 0
        while match := _PART.match(text, at):
            parts.append((match[1] or "").replace('""', '"') or match[2])
            at = match.end()
            if at == len(text) or text[at] != ".":
                break
            at += 1
        if at != len(text) or not 1 <= len(parts) <= 2 or "\0" in text:
            raise ConfigurationError(
                f"{text!r} cannot be a table",
                hint='write table, schema.table, or "odd.name" in double quotes as in SQL',
            )
        long = [part for part in parts if len(part.encode()) > _LONGEST_NAME]
        if long:
            raise ConfigurationError(
                f"{long[0]!r} is longer than PostgreSQL's names can be", hint=f"use at most {_LONGEST_NAME} bytes"
            )
        return cls(parts[0] if len(parts) == 2 else None, parts[-1])

    def __str__(self) -> str:
        """As SQL."""
        return quoted(self.table) if self.schema is None else f"{quoted(self.schema)}.{quoted(self.table)}"


@dataclass(frozen=True, slots=True)
class Target:
    """The options of a `PostgresSink`, checked."""

    address: Address
    table: TableName
    mode: str
    keys: tuple[str, ...]
    order_by: str | None
    deleted: str | None
    create_table: bool
    receipts_schema: str | None

    def __post_init__(self) -> None:
        """Refuse what can be refused without a connection."""
        wrong = _wrong_option(self)
        if wrong is not None:
            raise ConfigurationError(wrong[0], hint=wrong[1])


def _wrong_option(target: Target) -> tuple[str, str] | None:
    upsert = target.mode == "upsert"
    if target.mode not in MODES:
        return f"unknown mode {target.mode!r}", f"choose one of {', '.join(MODES)}"
    if upsert and not target.keys:
        return "an upsert needs keys", 'name the columns that tell rows apart: keys=["id"]'
    if not upsert and target.keys:
        return f"mode {target.mode} has no use for keys", 'say mode="upsert", or leave keys out'
    if len(set(target.keys)) < len(target.keys):
        return f"keys names a column twice: {', '.join(target.keys)}", "name each column once"
    for option, value in (("order_by", target.order_by), ("deleted", target.deleted)):
        if value is not None and not upsert:
            return f"mode {target.mode} has no use for {option}", f'say mode="upsert", or leave {option} out'
        if value is not None and value in target.keys:
            return f"{option} names the key {value!r}", "name another column"
    return None


def as_names(keys: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (keys,) if isinstance(keys, str) else tuple(keys)
