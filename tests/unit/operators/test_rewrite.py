"""A restored copy made to fit a changed pipeline, looked at file by file; that Spark takes it is in tests/spark."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from onceward.errors import PipelineChanged
from onceward.operators import Column, Operator, SourceInfo, Topology, plan_mapping, read_topology, rewrite
from onceward.verify.lz4_blocks import first_bytes

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KEY = (Column("user", "string"),)


def copy_of(root: Path, kinds: dict[int, str], *, provider: str = HDFS, ids: bool = False, lines: int = 1) -> Path:
    """What a restore has put there: epoch 4 is decided."""
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.streaming.join.stateFormatVersion": "2",
    }
    for epoch in (3, 4):
        positions = [f'{{"logOffset":{epoch}{place}}}' for place in range(lines)]
        put(root / f"offsets/{epoch}", "\n".join(["v1", json.dumps({"conf": settings}), *positions]))
    unique = {str(number): [[f"{number}-{part}"] for part in (0, 1)] for number in kinds} if ids else {}
    put(root / "commits/4", f"v{2 if ids else 1}\n" + json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": unique}))
    for number, kind in kinds.items():
        info = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}
        document = {"operatorInfo": {"operatorId": number, "operatorName": kind}, "stateStoreInfo": [info]}
        put(root / f"state/{number}/_metadata/metadata", f"v1\n{json.dumps(document)}")
        put(root / f"state/{number}/0/5.delta", f"state of {number}")
        put(root / f"state/{number}/1/5.delta", f"state of {number}")
    for place in range(lines):
        put(root / f"sources/{place}/0", f"list of {place}")
    return root


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.with_name(f".{path.name}.crc").write_text("checksum")


def document(path: Path) -> Any:
    return json.loads(path.read_text().partition("\n")[2])


def dedupe(number: int, name: str) -> Operator:
    return Operator(number, "dedupe", name, KEY)


def fit(root: Path, old: Topology, new: Topology, **options: Any) -> None:
    rewrite(root, plan_mapping(old, new, **options))


def test_two_that_change_places_take_state_description_and_ids_with_them(tmp_path: Path) -> None:
    root = copy_of(tmp_path, {0: "dedupe", 1: "dedupe"}, provider=ROCKSDB, ids=True)
    old, new = Topology((dedupe(1, "a"), dedupe(0, "b"))), Topology((dedupe(1, "b"), dedupe(0, "a")))
    fit(root, old, new)
    assert [(root / f"state/{n}/0/5.delta").read_text() for n in (0, 1)] == ["state of 1", "state of 0"]
    for number in (0, 1):
        path = root / f"state/{number}/_metadata/metadata"
        assert document(path)["operatorInfo"]["operatorId"] == number
        assert not path.with_name(".metadata.crc").exists()
    commit = document(root / "commits/4")
    assert commit["stateUniqueIds"] == {"0": [["1-0"], ["1-1"]], "1": [["0-0"], ["0-1"]]}
    assert not (root / "commits/.4.crc").exists()
    assert [one.name for one in read_topology(root).operators] == ["b", "a"]


def test_nothing_is_written_anew_where_nothing_changed(tmp_path: Path) -> None:
    root = copy_of(tmp_path, {0: "dedupe"})
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    fit(
        root, Topology((dedupe(0, "a"),), (SourceInfo(0),)), Topology((dedupe(0, "a"),), (SourceInfo(0, "kafka", "k"),))
    )
    assert before == {path: path.read_bytes() for path in before}
    assert read_topology(root).sources == (SourceInfo(0, "kafka", "k"),)


def test_a_removed_one_leaves_nothing_and_a_moved_schema_is_named_where_it_lies(tmp_path: Path) -> None:
    root = copy_of(tmp_path, {0: "dedupe", 1: "transformWithStateExec"})
    (root / "state/1/_metadata/metadata").unlink()
    info = {"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": ["state/1/_stateSchema/default/0_x"]}
    described = {"operatorInfo": {"operatorId": 1, "operatorName": "transformWithStateExec"}, "stateStoreInfo": [info]}
    put(root / "state/1/_metadata/v2/0", f"v2\n{json.dumps(described)}")
    moved = Operator(0, "transformWithStateExec", "t")
    old = Topology((Operator(1, "transformWithStateExec", "t"), dedupe(0, "d")))
    fit(root, old, Topology((moved,)), allow_non_restored=True)
    assert [path.name for path in (root / "state").iterdir()] == ["0"]
    found = document(root / "state/0/_metadata/v2/0")
    assert found["operatorInfo"]["operatorId"] == 0
    assert found["stateStoreInfo"][0]["stateSchemaFilePaths"] == ["state/0/_stateSchema/default/0_x"]


def test_a_new_one_gets_an_empty_snapshot_in_every_partition_and_store(tmp_path: Path) -> None:
    join = Operator(0, "symmetricHashJoin", "j", (*KEY, *KEY))
    session = Operator(2, "sessionWindowStateStoreSaveExec", "s", KEY)
    for provider, suffix, ids in ((HDFS, "snapshot", False), (ROCKSDB, "zip", False), (ROCKSDB, "zip", True)):
        root = copy_of(tmp_path / f"{suffix}-{ids}", {0: "dedupe"}, provider=provider, ids=ids)
        fit(root, Topology((dedupe(0, "d"),)), Topology((dedupe(1, "d"), session, join)))
        found = document(root / "state/0/_metadata/metadata")
        assert [one["storeName"] for one in found["stateStoreInfo"]] == [
            "left-keyToNumValues",
            "left-keyWithIndexToValue",
            "right-keyToNumValues",
            "right-keyWithIndexToValue",
        ]
        assert document(root / "state/2/_metadata/metadata")["stateStoreInfo"] == [
            {"storeName": "default", "numColsPrefixKey": 1, "numPartitions": 2}
        ]
        snapshots = sorted(root.glob(f"state/0/*/*/*.{suffix}"))
        assert len(snapshots) == 8
        for path in snapshots:
            if provider == HDFS:
                assert first_bytes(io.BytesIO(path.read_bytes()), 100) == b"\xff\xff\xff\xff"
            else:
                assert b'"sstFiles":[]' in zipfile.ZipFile(path).read("metadata")
        named = {path.name.removesuffix(f".{suffix}") for path in snapshots}
        told = document(root / "commits/4")["stateUniqueIds"]
        assert named == ({f"5_{one}" for part in told["0"] for one in part} if ids else {"5"})
        assert told.keys() == ({"0", "1", "2"} if ids else {*()})


def test_an_aggregate_without_a_key_has_one_partition(tmp_path: Path) -> None:
    root = copy_of(tmp_path, {0: "dedupe"})
    total = Operator(0, "stateStoreSave", "t", ())
    fit(root, Topology((dedupe(0, "d"),)), Topology((dedupe(1, "d"), total)))
    assert sorted(path.parent.name for path in root.glob("state/0/*/*.snapshot")) == ["0"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("transformWithStateExec", {}),
        ("dedupe", {"spark.sql.streaming.stateStore.providerClass": "com.example.Own"}),
        ("dedupe", {"spark.sql.streaming.stateStore.compression.codec": "zstd"}),
        ("symmetricHashJoin", {"spark.sql.streaming.join.stateFormatVersion": "3"}),
    ],
)
def test_a_new_one_whose_first_state_is_not_known_is_refused_before_anything_moves(
    tmp_path: Path, kind: str, settings: dict[str, str]
) -> None:
    root = copy_of(tmp_path, {0: "stateStoreSave"})
    version, metadata, *rest = (root / "offsets/4").read_text().split("\n")
    conf = {**json.loads(metadata)["conf"], **settings}
    (root / "offsets/4").write_text("\n".join([version, json.dumps({"conf": conf}), *rest]))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    kept, new = Operator(0, "stateStoreSave", "c"), Operator(0, kind, "n", KEY)
    with pytest.raises(PipelineChanged, match="cannot be given an empty state"):
        fit(root, Topology((kept,)), Topology((Operator(1, "stateStoreSave", "c"), new)))
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_positions_and_lists_of_sources_go_with_them(tmp_path: Path) -> None:
    root = copy_of(tmp_path, {}, lines=2)
    old = Topology(sources=(SourceInfo(0, None, "a"), SourceInfo(1, None, "b")))
    new = Topology(sources=(SourceInfo(0, None, "b"), SourceInfo(1, None, "new"), SourceInfo(2, None, "a")))
    fit(root, old, new)
    assert (root / "offsets/4").read_text().split("\n")[2:] == ['{"logOffset":41}', "-", '{"logOffset":40}']
    assert (root / "offsets/3").read_text().split("\n")[2:] == ['{"logOffset":31}', "-", '{"logOffset":30}']
    assert {path.name: (path / "0").read_text() for path in (root / "sources").iterdir()} == {
        "0": "list of 1",
        "2": "list of 0",
    }
    assert not (root / "offsets/.4.crc").exists()


def test_a_source_that_spark_names_is_renamed_in_barriers_and_folder(tmp_path: Path) -> None:
    root = copy_of(tmp_path, {})
    put(root / "offsets/4", 'v2\n{"conf":{}}\na:{"logOffset":1}\nb:{"x:y":2}\ngone:-')
    for name in ("a", "b", "gone"):
        put(root / f"sources/{name}/0", name)

    def spark(number: int, name: str) -> SourceInfo:
        return SourceInfo(number, None, name, is_named_by_spark=True)

    old = Topology(sources=(spark(0, "a"), spark(1, "b"), spark(2, "gone")))
    new = Topology(sources=(spark(0, "b"), spark(1, "z"), spark(2, "new")))
    fit(root, old, new, renames={"a": "z"}, allow_non_restored=True)
    assert (root / "offsets/4").read_text() == 'v2\n{"conf":{}}\nb:{"x:y":2}\nz:{"logOffset":1}'
    assert {path.name: (path / "0").read_text() for path in (root / "sources").iterdir() if path.name in "bz"} == {
        "b": "b",
        "z": "a",
    }
    assert not (root / "sources/gone").exists()
