"""What the user asked for, checked; the `Layout` says what one row writes. Nothing here connects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from onceward.connections import redis
from onceward.errors import ConfigurationError

Kind = Literal["string", "hash", "field", "zset", "incr", "hincr"]
"""What the script does with a row: SET, HSET of columns, HSET of one field, ZADD, INCRBY, HINCRBY."""

HOLDS: dict[str, str] = {"hash": "hash", "field": "hash", "hincr": "hash", "zset": "zset", "incr": "string"}
"""What a key must hold, if anything; a string is set whatever was there."""

TYPES = ("string", "hash", "zset", "counter")
DEFAULT_PREFIX = "onceward"
"""How the keys of receipts and checkpoints begin where nobody chose otherwise."""


@dataclass(frozen=True, slots=True)
class Template:
    """Text with columns in braces. Each part is a literal and the column after it; the last has no column."""

    text: str
    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, option: str, text: str) -> Template:
        """The template that `text` spells, or a clear refusal."""
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigurationError(f"{option}={text!r} is not a template: {error}", hint=_BRACES) from None
        if not text or any(column == "" or spec or conversion for _, column, spec, conversion in parts):
            raise ConfigurationError(f"{option}={text!r} is not a template", hint=_BRACES)
        return cls(text, tuple((literal, column) for literal, column, _, _ in parts))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(column for _, column in self.parts if column is not None)

    @property
    def literal(self) -> bytes | None:
        """The text itself, when no column is in it."""
        return None if self.columns else self.prefix

    @property
    def prefix(self) -> bytes:
        """What every text made from it begins with."""
        found = ""
        for literal, column in self.parts:
            found += literal
            if column is not None:
                break
        return found.encode()


_BRACES = 'put columns in braces, as in "pv:{app}"; a brace of the key itself is written twice'


@dataclass(frozen=True, slots=True)
class Layout:
    """Which key and which values a row has."""

    kind: Kind
    key: Template
    member: Template | None
    """The field of a hash, or the member of a sorted set."""
    values: tuple[str, ...]
    """The columns that are written; of `hash`, empty: all that are not in the key."""
    deleted: str | None
    ttl_ms: int | None
    reserved: tuple[bytes, ...] = ()
    """How the keys begin that are onceward's own: no row may have one."""

    @property
    def value(self) -> str | None:
        """The one column that is written; None: a counter counts rows."""
        return self.values[0] if self.values else None

    def written(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns that a row of this schema writes."""
        if self.values or self.kind != "hash":
            return self.values
        others = {*self.key.columns, self.deleted}
        return tuple(name for name in schema.names if name not in others)

    def needed(self) -> Iterator[tuple[str, str]]:
        """Every option that names columns, with each of them."""
        yield from (("key", column) for column in self.key.columns)
        if self.member is not None:
            yield from (("member" if self.kind == "zset" else "field", column) for column in self.member.columns)
        yield from (("a value", column) for column in self.values)
        if self.deleted is not None:
            yield "deleted", self.deleted


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a `RedisSink`. The URL is checked before; its password is in no repr."""

    url: str = field(repr=False)
    layout: Layout
    null_keys: str
    max_rows_per_script: int | None
    receipts_prefix: str
    timeout_s: float

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        wrong: tuple[str, str] | None = None
        if self.null_keys not in ("refuse", "skip"):
            wrong = f"null_keys is {self.null_keys!r}", "choose refuse or skip"
        elif self.max_rows_per_script is not None and self.max_rows_per_script < 1:
            wrong = f"max_rows_per_script is {self.max_rows_per_script}", "give 1 or more, or None for whole epochs"
        elif self.timeout_s <= 0:
            wrong = f"timeout_s is {self.timeout_s}", "give seconds"
        elif not self.receipts_prefix or set(self.receipts_prefix) & set("{} \n"):
            wrong = f"receipts_prefix is {self.receipts_prefix!r}", "give a short text without braces or blanks"
        if wrong is not None:
            raise ConfigurationError(wrong[0], hint=wrong[1])

    @property
    def skips_null_keys(self) -> bool:
        """Whether a row whose key has a null is left out."""
        return self.null_keys == "skip"

    @property
    def address(self) -> str:
        """Where the server is, for messages."""
        return redis.address(self.url)

    @property
    def database(self) -> int:
        """The number of the database that the URL names; 0 when it names none."""
        parts = urlsplit(self.url)
        named = parse_qs(parts.query).get("db", [parts.path.strip("/") if parts.scheme != "unix" else ""])
        return int(named[0] or 0)


def make_layout(
    *,
    type: str,
    key: str,
    value: str | None,
    fields: Sequence[str],
    field: str | None,
    member: str | None,
    score: str | None,
    by: str | None,
    deleted: str | None,
    ttl_s: float | None,
    receipts_prefix: str,
) -> Layout:
    """The options of a sink as one value; raises `ConfigurationError` when they do not belong together."""
    given = {"value": value, "fields": tuple(fields), "field": field, "member": member, "score": score, "by": by}
    given |= {"deleted": deleted}
    if type not in TYPES:
        raise ConfigurationError(f"unknown type {type!r}", hint=f"choose one of {', '.join(TYPES)}")
    by_field = type == "hash" and field is not None
    allowed, required = _OPTIONS["field" if by_field else type]
    superfluous = [name for name, option in given.items() if option and name not in allowed]
    if superfluous:
        usable = ", ".join(sorted(allowed)) or "none of these"
        raise ConfigurationError(
            f"type {type!r} has no use for {', '.join(superfluous)}", hint=f"with it go {usable}; leave the rest out"
        )
    missing = [name for name in required if not given[name]]
    if missing:
        raise ConfigurationError(f"type {type!r} needs {' and '.join(missing)}", hint=_EXAMPLES[type])
    if ttl_s is not None and not 0.001 <= ttl_s <= 1e9:
        raise ConfigurationError(f"ttl_s is {ttl_s}", hint="give seconds, or None for keys that stay")
    if len(set(fields)) < len(fields):
        raise ConfigurationError(f"fields names a column twice: {', '.join(fields)}", hint="name each column once")
    inner = field if field is not None else member
    values = {"string": (value,), "zset": (score,), "counter": (by,), "hash": (value,) if by_field else fields}[type]
    own, template = reserved_keys(receipts_prefix), Template.parse("key", key)
    if template.prefix.startswith(own):
        raise ConfigurationError(
            f"key={key!r} is among the receipts and checkpoints of onceward",
            hint="choose another key, or another receipts_prefix",
        )
    return Layout(
        kind=_kind(type, has_field=field is not None),
        key=template,
        member=Template.parse("field" if field is not None else "member", inner) if inner is not None else None,
        values=tuple(column for column in values if column is not None),
        deleted=deleted,
        ttl_ms=None if ttl_s is None else int(ttl_s * 1000),
        reserved=own,
    )


def reserved_keys(receipts_prefix: str) -> tuple[bytes, ...]:
    """How keys begin that no row may have: receipts and checkpoints under this sink's prefix and the usual one."""
    prefixes = dict.fromkeys((receipts_prefix, DEFAULT_PREFIX))
    return tuple(f"{prefix}:{what}:".encode() for prefix in prefixes for what in ("receipts", "checkpoints"))


# Which options a type knows, and which of them it cannot do without.
_OPTIONS: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "string": (frozenset({"value", "deleted"}), ("value",)),
    "hash": (frozenset({"fields", "field", "deleted"}), ()),
    "field": (frozenset({"field", "value", "deleted"}), ("value",)),
    "zset": (frozenset({"member", "score", "deleted"}), ("member", "score")),
    "counter": (frozenset({"field", "by"}), ()),
}
_EXAMPLES = {
    "string": 'for example RedisSink(url, type="string", key="pv:{app}", value="count")',
    "hash": 'for example RedisSink(url, type="hash", key="pv", field="{app}", value="count")',
    "zset": 'for example RedisSink(url, type="zset", key="top", member="{app}", score="count")',
    "counter": 'for example RedisSink(url, type="counter", key="pv:{app}", by="views")',
}


def _kind(type: str, *, has_field: bool) -> Kind:
    kinds: dict[tuple[str, bool], Kind] = {
        ("hash", True): "field",
        ("hash", False): "hash",
        ("counter", True): "hincr",
        ("counter", False): "incr",
        ("zset", False): "zset",
    }
    return kinds.get((type, has_field), "string")
