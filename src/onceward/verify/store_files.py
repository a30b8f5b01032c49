"""The content of a state store's files: deltas and changelogs, snapshots, and what a RocksDB snapshot is made of."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from onceward.contracts import Finding, Severity
from onceward.verify.files import Files
from onceward.verify.lz4_blocks import TornBlocksError, check_blocks, first_bytes
from onceward.verify.report import MOVE
from onceward.verify.stores import Chain, Provider, chain

_FIX: Final = "restore the file from a backup; else take the checkpoint back to an epoch that is whole"
_LINEAGE_MOST: Final = 1 << 16
_REPAIR: Final = "spark.sql.streaming.stateStore.autoSnapshotRepair.enabled"
_REPLAYED_MOST: Final = 500
"""Where more changes would have to be replayed Spark does not pass over a snapshot (`...maxChangeFileReplay`)."""
_LINEAGE = re.compile(rb"\0\x02v[0-9](..)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Store:
    """One store folder. `codec` is how Spark packs its changes, as the barrier says. `has_families`: a snapshot names
    the column families, so that changes alone make no state; Spark writes one whenever it adds a family."""

    folder: str
    provider: Provider
    codec: str
    has_families: bool = False


def store_findings(files: Files, store: Store, version: int, unique_id: str | None) -> Iterator[Finding]:
    """What keeps Spark from loading this version."""
    if version <= 0:
        return
    names = files.names(store.folder)
    if unique_id is not None and store.codec != "lz4":
        what = f"its changes are packed with {store.codec}, so that nothing tells which files are of which version"
        yield Finding(store.folder, Severity.WARNING, f"{what}: they were not looked at", "nothing")
        return
    try:
        ids = None if unique_id is None else _lineage(files, store, version, unique_id)
    except (OSError, ValueError) as error:
        path = f"{store.folder}/{version}_{unique_id}.{store.provider.change}"
        what = "it is missing" if isinstance(error, OSError) else f"its lineage cannot be read: {error}"
        yield Finding(path, Severity.ERROR, what, _FIX)
        return
    needed = chain(names, version, store.provider, ids)
    for name in needed.missing:
        what = f"it is missing, and version {version} of the state cannot be made without it"
        yield Finding(f"{store.folder}/{name}", Severity.ERROR, what, _FIX)
    for name in needed.changes:
        if name not in needed.missing:
            yield from _packed(files, f"{store.folder}/{name}", store.codec, _FIX)
    if needed.snapshot is None and store.has_families:
        what = f"no snapshot up to version {version} is there, and without one nothing tells the column families"
        yield Finding(store.folder, Severity.ERROR, what, _FIX)
    if needed.snapshot is None and unique_id is not None and not _begins(files, store, version, unique_id):
        what = f"no snapshot up to version {version} is there, and its newest change stands on one"
        yield Finding(store.folder, Severity.ERROR, what, _FIX)
    if needed.snapshot is not None and (damaged := [*_snapshot(files, store, needed.snapshot, _FIX)]):
        way = _way_round(files, store, version, needed, ids)
        yield from damaged if way is None else (replace(one, severity=way[0], fix=way[1]) for one in damaged)


def needed_files(files: Files, store: Store, version: int, unique_id: str | None) -> Iterator[str]:
    """Every file that a load of this version reads; `OSError` or `ValueError` where that cannot be told."""
    if version <= 0:
        return
    ids = None if unique_id is None else _lineage(files, store, version, unique_id)
    needed = chain(files.names(store.folder), version, store.provider, ids)
    for name in needed.changes:
        yield f"{store.folder}/{name}"
    if needed.snapshot is not None:
        path = f"{store.folder}/{needed.snapshot}"
        yield path
        if store.provider is Provider.ROCKSDB:
            yield from (part for part, _ in _tables(files, store.folder, path))


def _way_round(
    files: Files, store: Store, version: int, needed: Chain, ids: Mapping[int, str] | None
) -> tuple[Severity, str] | None:
    """An older snapshot that is sound, or none at all, with every change since makes the same version: how bad a
    damaged one is then, and what to do about it. Spark tries them in this order, unless that is switched off."""
    damaged: list[str] = []
    other = needed
    while other.snapshot is not None and any(_snapshot(files, store, other.snapshot, "")):
        damaged.append(other.snapshot)
        other = chain(files.names(store.folder) - {*damaged}, version, store.provider, ids)
        changes = (f"{store.folder}/{name}" for name in other.changes)
        if other.missing or any(found for path in changes for found in _packed(files, path, store.codec, "")):
            return None
    if other.snapshot is None and store.has_families:
        return None
    base = f"{other.snapshot} and the changes since" if other.snapshot else "the changes since the beginning"
    away = f"{MOVE}{' and '.join(damaged)}, with .crc files, out of the folder: {base} make the same state"
    if len(other.changes) > _REPLAYED_MOST:
        return Severity.ERROR, away
    return Severity.WARNING, f"nothing; Spark passes over it. If {_REPAIR} is false: {away}"


def _snapshot(files: Files, store: Store, name: str, fix: str) -> Iterator[Finding]:
    path = f"{store.folder}/{name}"
    match store.provider:
        case Provider.HDFS:
            yield from _packed(files, path, store.codec, fix)
        case Provider.ROCKSDB:
            yield from _zipped(files, store.folder, path, fix)


def _packed(files: Files, path: str, codec: str, fix: str) -> Iterator[Finding]:
    """A stream of blocks, whole. Of another codec than LZ4 only the checksums can be looked at."""
    if (why := plain_problem(files, path)) is not None:
        yield Finding(path, Severity.ERROR, why, fix)
        return
    if codec != "lz4":
        return
    try:
        with files.open(path) as file:
            check_blocks(file, unpacks=not files.check(path).is_vouched_for)
    except FileNotFoundError:
        yield Finding(path, Severity.ERROR, "it vanished while it was read", fix)
    except TornBlocksError as error:
        yield Finding(path, Severity.ERROR, str(error), fix)


def plain_problem(files: Files, path: str) -> str | None:
    """What is wrong with a file of Spark's, by Hadoop's checksums and by those that Spark itself may keep beside it."""
    checked = files.check(path)
    if not checked.exists:
        return "it is missing"
    if checked.problem is not None or checked.size == 0:
        return checked.problem or "it is empty"
    own = files.check(f"{path}.crc")
    if not own.exists:
        return None
    name = path.rpartition("/")[2]
    if own.problem is not None:
        return f"the checksum that Spark keeps of it, {name}.crc, is damaged; without that file Spark does without it"
    try:
        size = json.loads(files.read(f"{path}.crc") or b"")["mainFileSize"]
    except (ValueError, LookupError, TypeError):
        return f"the checksum that Spark keeps of it, {name}.crc, is torn or garbled"
    return None if size == checked.size else f"it has {checked.size} bytes, and {name}.crc says {size}"


def _zipped(files: Files, folder: str, path: str, fix: str) -> Iterator[Finding]:
    """A RocksDB snapshot: the archive, and the table files that its `metadata` names."""
    if (why := plain_problem(files, path)) is not None:
        yield Finding(path, Severity.ERROR, why, fix)
        return
    try:
        parts = [*_tables(files, folder, path)]
    except FileNotFoundError:
        yield Finding(path, Severity.ERROR, "it vanished while it was read", fix)
        return
    except (
        zipfile.BadZipFile,
        zlib.error,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,
        EOFError,
    ) as error:
        yield Finding(path, Severity.ERROR, f"the archive cannot be read: {error}", fix)
        return
    for part, size in parts:
        checked = files.check(part)
        if checked.exists and checked.problem is None and checked.size != size:
            yield Finding(part, Severity.ERROR, f"it has {checked.size} bytes, and {path} says {size}", fix)
        elif not checked.is_sound:
            yield Finding(part, Severity.ERROR, checked.problem or f"it is missing, and {path} names it", fix)


def _tables(files: Files, folder: str, path: str) -> Iterator[tuple[str, int]]:
    """Every file that the archive says lies beside it, with its size; the archive's own checksums are tried first."""
    with files.open(path) as file, zipfile.ZipFile(file) as archive:
        if (torn := archive.testzip()) is not None:
            raise ValueError(f"{torn} in it does not match its checksum")
        _, _, document = archive.read("metadata").decode().partition("\n")
    described: dict[str, Any] = json.loads(document)
    for one in described.get("sstFiles", ()):
        yield f"{folder}/SSTs/{one['dfsSstFileName']}", int(one["sizeBytes"])
    for one in described.get("logFiles") or ():
        yield f"{folder}/logs/{one['dfsLogFileName']}", int(one["sizeBytes"])


def _lineage(files: Files, store: Store, version: int, unique_id: str) -> dict[int, str]:
    """The ids of the versions that this one stands on. Each change names those since the snapshot before it; where the
    last one named has a change too, that leads further back. A snapshot needs none."""
    ids, oldest = {version: unique_id}, version
    while True:
        try:
            before = _named_by(files, f"{store.folder}/{oldest}_{ids[oldest]}.{store.provider.change}")
        except (OSError, ValueError):
            if oldest < version or f"{version}_{unique_id}.{store.provider.snapshot}" in files.names(store.folder):
                return ids
            raise
        ids = {**before, **ids}
        if min(ids) == oldest:
            return ids
        oldest = min(ids)


def _begins(files: Files, store: Store, version: int, unique_id: str) -> bool:
    """Whether the change itself names all versions from the first one on: where no snapshot is there, Spark looks no
    further."""
    try:
        named = _named_by(files, f"{store.folder}/{version}_{unique_id}.{store.provider.change}")
    except (OSError, ValueError):
        return True  # Which is said already.
    return min({version, *named}) == 1


def _named_by(files: Files, path: str) -> dict[int, str]:
    """The lineage at the head of a change."""
    with files.open(path) as file:
        head = first_bytes(file, _LINEAGE_MOST)
    match = _LINEAGE.match(head)
    if match is None:
        raise ValueError("it does not begin with a version")
    length = int.from_bytes(match[1], "big")
    lineage = json.loads(head[match.end() : match.end() + length])
    return {int(one["version"]): str(one["checkpointUniqueId"]) for one in lineage}
