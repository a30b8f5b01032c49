"""One state store, one folder: which of its files make a version. Pure: it knows names only.

A version is the newest snapshot at or below it (`.snapshot`, or a RocksDB `.zip`) and every change after that
(`.delta`, `.changelog`). A snapshot that is gone costs nothing as long as an older one and all changes since are there.
One that is there and damaged Spark takes first all the same; whether it then passes over it is a setting. Under state
format 2 names carry an id, and a changelog says on which versions with which ids it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

_NAME = re.compile(r"([0-9]+)(?:_([0-9A-Za-z-]+))?\.(delta|snapshot|changelog|zip)")


class Provider(Enum):
    """Spark's two, by what they call a snapshot and a change."""

    HDFS = ("snapshot", "delta")
    ROCKSDB = ("zip", "changelog")

    @property
    def snapshot(self) -> str:
        """How the name of a snapshot ends."""
        return self.value[0]

    @property
    def change(self) -> str:
        """How the name of a change ends."""
        return self.value[1]


def provider_of(class_name: str) -> Provider | None:
    """By the class that a barrier names; None for one that is not Spark's own."""
    if class_name.endswith("RocksDBStateStoreProvider"):
        return Provider.ROCKSDB
    return Provider.HDFS if class_name.endswith("HDFSBackedStateStoreProvider") else None


@dataclass(frozen=True, slots=True)
class Chain:
    """The files that make one version; `missing` are those of them that are not there."""

    snapshot: str | None
    changes: tuple[str, ...]
    missing: tuple[str, ...]


def chain(names: Iterable[str], version: int, provider: Provider, ids: Mapping[int, str] | None = None) -> Chain:
    """What a load of `version` reads. `ids` are those of its lineage, under state format 2."""
    present = set(names)

    def name(number: int, suffix: str) -> str:
        return f"{number}_{ids[number]}.{suffix}" if ids is not None else f"{number}.{suffix}"

    # Under format 2 only what the lineage names belongs to it: another computation of a version has another id.
    known = range(version, 0, -1) if ids is None else sorted((n for n in ids if n <= version), reverse=True)
    base = next((number for number in known if name(number, provider.snapshot) in present), 0)
    numbers = range(base + 1, version + 1)
    changes = [name(n, provider.change) if ids is None or n in ids else f"{n}_?.{provider.change}" for n in numbers]
    missing = tuple(change for change in changes if change not in present)
    return Chain(name(base, provider.snapshot) if base else None, tuple(changes), missing)


def version_in(name: str) -> int | None:
    """The version that a file of a store belongs to, its checksums too; None for any other file."""
    match = _NAME.match(name.removeprefix("."))
    rest = name.removeprefix(".")[match.end() :] if match else ""
    return int(match[1]) if match and rest in ("", ".crc", ".crc.crc") else None
