"""The state of an operator that has none yet, at the version from which Spark goes on: its description, and for each
partition a snapshot with nothing in it. Spark makes such a state only in a query's first epoch.

A snapshot of the memory provider is a list of pairs that ends with the length -1, packed in LZ4 blocks. One of RocksDB
is an archive that names its table files; with none, RocksDB begins with an empty database. Both tried with Spark 4.3,
state formats 1 and 2, with and without changelogs.
"""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceward.errors import PipelineChanged
from onceward.operators.topology import Operator
from onceward.verify.lz4_blocks import packed
from onceward.verify.stores import Provider, provider_of

_STATE: Final = "spark.sql.streaming.stateStore"
_JOIN_FORMAT: Final = "spark.sql.streaming.join.stateFormatVersion"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_NO_PAIRS: Final = (-1).to_bytes(4, "big", signed=True)
_NO_TABLES: Final = (
    'v1\n{"sstFiles":[],"numKeys":0,"numInternalKeys":0,"columnFamilyMapping":{},"columnFamilyTypeMap":{},'
    '"maxColumnFamilyId":0}'
)
_DEFAULT: Final = "default"
_STORES: Final[Mapping[str, tuple[str, ...]]] = {
    "symmetricHashJoin": (
        "left-keyToNumValues",
        "left-keyWithIndexToValue",
        "right-keyToNumValues",
        "right-keyWithIndexToValue",
    ),
    **dict.fromkeys(
        (
            "stateStoreSave",
            "dedupe",
            "dedupeWithinWatermark",
            "sessionWindowStateStoreSaveExec",
            "globalLimit",
            "flatMapGroupsWithState",
            "applyInPandasWithState",
        ),
        (_DEFAULT,),
    ),
}
_SINGLE: Final = frozenset({"globalLimit"})


@dataclass(frozen=True, slots=True)
class Emptiness:
    """How the checkpoint keeps its state, and at which version it goes on."""

    version: int
    provider: Provider | None
    codec: str
    join_format: str
    partitions: int

    @classmethod
    def of(cls, pinned: Mapping[str, str], version: int) -> Emptiness:
        """By the settings of its newest epoch."""
        return cls(
            version,
            provider_of(pinned.get(f"{_STATE}.providerClass", "")),
            pinned.get(f"{_STATE}.compression.codec", "lz4"),
            pinned.get(_JOIN_FORMAT, "2"),
            int(pinned.get(_PARTITIONS, "0")),
        )

    def refuse(self, operator: Operator) -> None:
        """`PipelineChanged` for an operator of which we do not know how its first state looks."""
        why = None
        if operator.kind not in _STORES:
            why = f"nobody knows how the state of a new {operator.kind} looks"
        elif self.provider is None or self.partitions < 1:
            why = "its state store is not one of Spark's own"
        elif self.provider is Provider.HDFS and self.codec != "lz4":
            why = f"its state is packed by {self.codec}"
        elif operator.kind == "symmetricHashJoin" and self.join_format != "2":
            why = f"the state of joins is kept in format {self.join_format}"
        if why is not None:
            raise PipelineChanged(
                f"the pipeline has a new operator, {operator}, and it cannot be given an empty state: {why}",
                hint="leave it out, or begin a new checkpoint with it",
            )


def put_empty_state(folder: Path, operator: Operator, how: Emptiness, *, with_ids: bool) -> list[list[str]]:
    """Into the state folder of an operator; the ids of its files, by partition and store, under state format 2."""
    stores = _STORES[operator.kind]
    is_single = operator.kind in _SINGLE or (operator.kind == "stateStoreSave" and operator.keys == ())
    count = 1 if is_single else how.partitions
    prefix = len(operator.keys or ()) if operator.kind.startswith("session") else 0
    info = [{"storeName": store, "numColsPrefixKey": prefix, "numPartitions": count} for store in stores]
    document = {
        "operatorInfo": {"operatorId": operator.number, "operatorName": operator.kind},
        "stateStoreInfo": info,
    }
    (folder / "_metadata").mkdir(parents=True)
    (folder / "_metadata" / "metadata").write_text(f"v1\n{json.dumps(document, separators=(',', ':'))}")
    ids = [[str(uuid.uuid4()) for _ in stores] for _ in range(count)] if with_ids else []
    for partition in range(count):
        for index, store in enumerate(stores):
            inside = folder / str(partition) / ("" if store == _DEFAULT else store)
            inside.mkdir(parents=True, exist_ok=True)
            name = f"{how.version}_{ids[partition][index]}" if with_ids else str(how.version)
            _put_snapshot(inside, name, how.provider)
    return ids


def _put_snapshot(folder: Path, name: str, provider: Provider | None) -> None:
    match provider:
        case Provider.HDFS:
            (folder / f"{name}.snapshot").write_bytes(packed(_NO_PAIRS))
        case Provider.ROCKSDB:
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w") as zipped:
                zipped.writestr("metadata", _NO_TABLES)
            (folder / f"{name}.zip").write_bytes(archive.getvalue())
        case None:
            raise AssertionError("refused before")
