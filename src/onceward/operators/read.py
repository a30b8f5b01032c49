"""The topology of a checkpoint, from its files alone: what Spark keeps beside its state, and our record of names."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from onceward.operators.record import TopologyLog
from onceward.operators.schema import key_columns
from onceward.operators.topology import Operator, SourceInfo, Topology
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage

_DEFAULT = "default"


def read_topology(root: Path) -> Topology:
    """What stands in the checkpoint at `root`, or in a copy of one; may be called while the job runs.

    Names, kinds, keys and the order data flows are ours, from the newest record; without one, as in a checkpoint of an
    older release, they are what Spark has written, in the reverse of its numbers. Partitions and stores are Spark's.
    `DamagedFile` where our record cannot be read.
    """
    logs = SparkLogs(root)
    recorded = TopologyLog(LocalStorage(root / "onceward")).read()
    partitions = logs.shuffle_partitions()
    found = {one.number: one for one in _operators(root, partitions)}
    if recorded is None:
        sources = tuple(_sources(logs))
        return Topology(tuple(found[number] for number in sorted(found, reverse=True)), sources, ())
    known = recorded.topology
    operators = [_merged(one, found.get(one.number)) for one in known.operators]
    strangers = [found[number] for number in sorted(found, reverse=True) if known.operator(number) is None]
    return Topology((*strangers, *operators), known.sources, known.sinks)


def _merged(recorded: Operator, found: Operator | None) -> Operator:
    """Our record, which is sealed and was compared before each start, with what only Spark's files tell."""
    if found is None:
        return recorded
    keys = recorded.keys if recorded.keys is not None else found.keys
    return Operator(found.number, recorded.kind, recorded.name, keys, found.partitions, found.stores)


def _operators(root: Path, partitions: int | None) -> list[Operator]:
    folders = [path for path in (root / "state").iterdir() if path.name.isdigit()] if (root / "state").is_dir() else []
    return [_operator(folder, partitions) for folder in folders]


def _operator(folder: Path, partitions: int | None) -> Operator:
    """As its description says: one file, or one for each start, of which the newest counts.

    Spark goes on without the one file, so a start is not refused for it: then the kind of the operator is not known.
    """
    kind = ""
    names: tuple[str, ...] = ()
    count = 0
    with suppress(OSError, ValueError, LookupError, TypeError):
        document = described(description_of(folder) or folder / "_metadata" / "metadata")
        stores = [(str(one["storeName"]), int(one["numPartitions"])) for one in document["stateStoreInfo"]]
        kind = str(document["operatorInfo"]["operatorName"])
        names, count = tuple(name for name, _ in stores), max((number for _, number in stores), default=0)
    # The description is not written again when the state is repartitioned. An aggregate without a key has one.
    is_single = not (folder / "1").is_dir()
    return Operator(
        number=int(folder.name),
        kind=kind,
        keys=_keys(folder, kind),
        partitions=count if is_single or partitions is None else partitions,
        stores=names,
    )


def description_of(folder: Path) -> Path | None:
    """The file that describes the operator of this state folder."""
    versions = folder / "_metadata" / "v2"
    starts = [int(path.name) for path in versions.iterdir() if path.name.isdigit()] if versions.is_dir() else []
    path = versions / str(max(starts)) if starts else folder / "_metadata" / "metadata"
    return path if path.is_file() else None


def described(path: Path) -> dict[str, Any]:
    """The JSON under its version line; ValueError where there is none."""
    version, _, text = path.read_text().partition("\n")
    document = json.loads(text)
    if not version.startswith("v") or not isinstance(document, dict):
        raise ValueError(version)
    return document


def _keys(folder: Path, kind: str) -> Any:
    path = folder / "0" / "_metadata" / "schema"
    return key_columns(kind, path.read_bytes()) if path.is_file() else None


def _sources(logs: SparkLogs) -> list[SourceInfo]:
    """By the newest barrier: a line each, with the source's name before it where Spark keeps names."""
    names = logs.source_names(logs.planned())
    return [SourceInfo(number, None, name, name is not None) for number, name in enumerate(names)]
