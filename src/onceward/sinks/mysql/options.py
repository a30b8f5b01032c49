"""What the user asked for, checked, in the form that both templates share. Nothing here connects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onceward.connections.mysql import Address, quoted
from onceward.errors import ConfigurationError
from onceward.sinks.mysql.receipts import RECEIPTS, WATERMARKS
from onceward.sinks.names import as_names, wrong_keys

INCOMING = "onceward_incoming"
"""The temporary table in which the rows of an upsert are put in order."""
LATEST = "onceward_latest"
"""The temporary table that tells which of them count, and which of those the target has."""
LENGTH = 64
"""Characters in an identifier."""

_TABLE = re.compile(r"(?:(?P<database>`(?:[^`]|``)+`|[^`.]+)\.)?(?P<table>`(?:[^`]|``)+`|[^`.]+)", re.DOTALL)
MODES = ("append", "upsert", "replace")
_CHOICES = {
    "before_triggers": ("refuse", "allow"),
    "non_finite": ("refuse", "null"),
    "mode": MODES,
}
_LONGEST_LOCK_S = 31_536_000


@dataclass(frozen=True, slots=True)
class Options:
    """Picklable. `database` is that of the table, which is where receipts are kept."""

    address: Address
    database: str
    table: str
    mode: str
    keys: tuple[str, ...]
    order_by: str | None
    deleted: str | None
    create_table: bool
    non_finite: str
    before_triggers: str
    timeout_s: float
    lock_timeout_s: float

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        table: str,
        mode: str,
        keys: str | Sequence[str],
        order_by: str | None,
        deleted: str | None,
        create_table: bool,
        non_finite: str,
        before_triggers: str,
        timeout_s: float,
        lock_timeout_s: float,
    ) -> Options:
        """The settings, or a `ConfigurationError` that says which one is wrong."""
        address = Address.parse(url)
        database, name = _parse_table(table)
        options = cls(
            address=address,
            database=database if database is not None else address.database,
            table=name,
            mode=mode,
            keys=as_names(keys),
            order_by=order_by,
            deleted=deleted,
            create_table=create_table,
            non_finite=non_finite,
            before_triggers=before_triggers,
            timeout_s=timeout_s,
            lock_timeout_s=lock_timeout_s,
        )
        wrong = options._wrong()
        if wrong is not None:
            raise ConfigurationError(wrong[0], hint=wrong[1])
        return options

    def _wrong(self) -> tuple[str, str] | None:
        for option, choices in _CHOICES.items():
            if getattr(self, option) not in choices:
                return f"unknown {option} {getattr(self, option)!r}", f"choose {' or '.join(choices)}"
        if self.table.lower() in {RECEIPTS, WATERMARKS, INCOMING, LATEST}:
            return f"table {self.table!r} is reserved", "choose another name"
        if self.mode != "upsert" and (self.keys or self.order_by or self.deleted):
            return f"mode {self.mode} has no use for keys, order_by or deleted", 'say mode="upsert", or leave them out'
        if (wrong := wrong_keys(self.keys, self.mode, folded=str.lower)) is not None:
            return wrong
        reserved = {*map(str.lower, self.keys), (self.order_by or "").lower()}
        if self.deleted is not None and self.deleted.lower() in reserved:
            return f"deleted names {self.deleted!r}, which is a key or order_by", "use a boolean column of its own"
        if self.timeout_s <= 0:
            return f"timeout_s is {self.timeout_s}", "give seconds"
        if not 0 < self.lock_timeout_s <= _LONGEST_LOCK_S:
            return f"lock_timeout_s is {self.lock_timeout_s}", "give seconds; the server counts whole ones"
        return None

    @property
    def target(self) -> str:
        """The table as it stands in statements."""
        return f"{quoted(self.database)}.{quoted(self.table)}"

    @property
    def incoming(self) -> str:
        """The temporary table of an upsert, as it stands in statements."""
        return f"{quoted(self.database)}.{quoted(INCOMING)}"

    @property
    def latest(self) -> str:
        """The other one, likewise."""
        return f"{quoted(self.database)}.{quoted(LATEST)}"

    def is_stored(self, column: str) -> bool:
        """Whether the table has this column of the stream; the flag for deletions is for us alone."""
        return self.deleted is None or column.lower() != self.deleted.lower()


def why_no_identifier(name: str) -> str | None:
    """Why the server cannot have a table or column of this name; None when it can."""
    if not name or len(name) > LENGTH:
        return f"a name has 1 to {LENGTH} characters"
    if name.endswith(" "):
        return "a name cannot end with a blank"
    if any(letter == "\0" or ord(letter) > 0xFFFF for letter in name):
        return "a name has no zero bytes and no characters beyond U+FFFF"
    return None


def _parse_table(text: str) -> tuple[str | None, str]:
    match = None if '"' in text and "`" not in text else _TABLE.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            f"{text!r} cannot be a table",
            hint="write table or database.table; a name with dots or quotes goes in backquotes: `my.table`",
        )
    names = [_unquoted(match[part]) for part in ("database", "table")]
    for name in names:
        why = why_no_identifier(name) if name is not None else None
        if why is not None:
            raise ConfigurationError(f"{text!r} cannot be a table: {why}", hint="choose another name")
    return names[0], str(names[1])


def _unquoted(name: str | None) -> str | None:
    return name[1:-1].replace("``", "`") if name is not None and name.startswith("`") else name
