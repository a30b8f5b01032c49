"""Spark's schema of a state store, `_metadata/schema`: the columns of its key, read without Spark.

A version ("v1" to "v3") as Java's `writeUTF`, then, in versions 1 and 2, the key's schema and the value's as JSON.
Version 3 has many of them, those of transformWithState, and is not read here.
"""

from __future__ import annotations

import json
from typing import Any, Final

from onceward.operators.topology import Column

_SESSION_START: Final = "sessionStartTime"
_BY_COLUMNS: Final = frozenset(
    {"stateStoreSave", "dedupe", "dedupeWithinWatermark", "sessionWindowStateStoreSaveExec"},
)
"""Operators whose store has the columns of the pipeline as its key. A join calls them field0, field1."""


def key_columns(kind: str, data: bytes) -> tuple[Column, ...] | None:
    """The key of an operator of this kind, by the schema of its store; None where that does not tell it."""
    if kind not in _BY_COLUMNS:
        return None
    try:
        key = json.loads(_key_schema(data))
        found = tuple(Column(str(one["name"]), spelled(one["type"])) for one in key["fields"])
    except (ValueError, LookupError, TypeError):
        return None
    return tuple(one for one in found if one.name != _SESSION_START) if kind.startswith("session") else found


def spelled(kind: Any) -> str:
    """A type of Spark's JSON in one word, without what may differ where the type does not: nullability, metadata."""
    if not isinstance(kind, dict):
        return str(kind)
    match kind["type"]:
        case "struct":
            fields = (f"{one['name']}:{spelled(one['type'])}" for one in kind["fields"])
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{spelled(kind['elementType'])}>"
        case "map":
            return f"map<{spelled(kind['keyType'])},{spelled(kind['valueType'])}>"
        case other:
            return str(other)


def _key_schema(data: bytes) -> str:
    version, at = _text(data, 0)
    if version == "v1":
        return _text(data, at)[0]
    if version != "v2":
        raise ValueError(version)
    # JSON past 65,535 bytes does not fit into one text: it is cut into as many as it takes.
    count, parts = int.from_bytes(data[at : at + 4], "big"), []
    at += 4
    for _ in range(count):
        part, at = _text(data, at)
        parts.append(part)
    return "".join(parts)


def _text(data: bytes, at: int) -> tuple[str, int]:
    """As `DataOutputStream.writeUTF` writes it: two bytes of length first. Where it ends comes second."""
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if end > len(data) or end == at + 2:
        raise ValueError("cut short")
    return data[at + 2 : end].decode(), end
