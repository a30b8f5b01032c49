"""A checkpoint's topology is read from its files alone, and goes through JSON unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceward.errors import DamagedFile
from onceward.operators import Column, Operator, SourceInfo, Topology, TopologyLog, read_topology
from onceward.operators.schema import key_columns, spelled
from onceward.storage import LocalStorage

WHOLE = Topology(
    (
        Operator(1, "dedupe", "first", (Column("id", "long"),), 2, ("default",)),
        Operator(0, "symmetricHashJoin", None, None, 2, ("left-keyToNumValues", "left-keyWithIndexToValue")),
    ),
    (SourceInfo(0, "FileSource", "views"), SourceInfo(1, None, "clicks", is_named_by_spark=True)),
    ("files", "pv"),
)


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def schema_file(*fields: tuple[str, object], version: str = "v2") -> bytes:
    """As Spark 4.3 wrote it (tried); version 2 cuts long schemas into parts, here into two."""
    document = json.dumps({"type": "struct", "fields": [{"name": n, "type": t, "nullable": True} for n, t in fields]})
    if version == "v1":
        return text("v1") + text(document) + text("{}")
    half = len(document) // 2
    parts = (2).to_bytes(4, "big") + text(document[:half]) + text(document[half:])
    return text(version) + parts + (1).to_bytes(4, "big") + text("{}")


def describe(
    root: Path, number: int, kind: str, *, stores: tuple[str, ...] = ("default",), partitions: int = 2
) -> Path:
    """The state folder of an operator, as far as a topology looks at it."""
    folder = root / "state" / str(number)
    for partition in range(partitions):
        (folder / str(partition) / "_metadata").mkdir(parents=True)
    (folder / "_metadata").mkdir()
    info = [{"storeName": store, "numColsPrefixKey": 0, "numPartitions": partitions} for store in stores]
    document = {"operatorInfo": {"operatorId": number, "operatorName": kind}, "stateStoreInfo": info}
    (folder / "_metadata" / "metadata").write_text(f"v1\n{json.dumps(document)}")
    return folder


def plan(root: Path, epoch: int, *lines: str, version: str = "v1", partitions: int = 2) -> None:
    (root / "offsets").mkdir(parents=True, exist_ok=True)
    settings = {"conf": {"spark.sql.shuffle.partitions": str(partitions)}}
    (root / "offsets" / str(epoch)).write_text("\n".join([version, json.dumps(settings), *lines]))


def test_a_topology_goes_through_json_unchanged() -> None:
    assert Topology.from_json(json.loads(json.dumps(WHOLE.as_json()))) == WHOLE


def test_a_checkpoint_without_our_record_is_read_in_the_reverse_of_sparks_numbers(tmp_path: Path) -> None:
    (describe(tmp_path, 0, "stateStoreSave") / "0" / "_metadata" / "schema").write_bytes(
        schema_file(
            ("app", "string"), ("window", {"type": "struct", "fields": [{"name": "start", "type": "timestamp"}]})
        )
    )
    describe(tmp_path, 1, "symmetricHashJoin", stores=("left", "right"))
    plan(tmp_path, 4, '{"logOffset":1}', '{"logOffset":7}')
    assert read_topology(tmp_path) == Topology(
        (
            Operator(1, "symmetricHashJoin", None, None, 2, ("left", "right")),
            Operator(
                0,
                "stateStoreSave",
                None,
                (Column("app", "string"), Column("window", "struct<start:timestamp>")),
                2,
                ("default",),
            ),
        ),
        (SourceInfo(0), SourceInfo(1)),
    )


def test_our_record_gives_names_keys_and_order_and_spark_the_rest(tmp_path: Path) -> None:
    describe(tmp_path, 0, "symmetricHashJoin", stores=("left",))
    describe(tmp_path, 1, "dedupf")  # flipped: the record is sealed, so it is believed
    recorded = Topology(
        (Operator(1, "dedupe", "first", (Column("id", "long"),)), Operator(0, "symmetricHashJoin", "both")),
        (SourceInfo(0, "kafka", "views"),),
        ("pv",),
    )
    TopologyLog(LocalStorage(tmp_path / "onceward")).write(recorded, since=0)
    found = read_topology(tmp_path)
    assert [(one.number, one.name, one.partitions, one.stores) for one in found.operators] == [
        (1, "first", 2, ("default",)),
        (0, "both", 2, ("left",)),
    ]
    assert (found.operators[0].kind, found.operators[0].keys) == ("dedupe", (Column("id", "long"),))
    assert (found.sources, found.sinks) == (recorded.sources, recorded.sinks)


def test_partitions_are_those_of_the_newest_barrier_but_for_an_operator_that_has_one(tmp_path: Path) -> None:
    """Spark does not describe an operator again when its state is repartitioned."""
    describe(tmp_path, 0, "stateStoreSave", partitions=1)
    describe(tmp_path, 1, "dedupe", partitions=2)
    plan(tmp_path, 3, "-", partitions=4)
    assert [(one.number, one.partitions) for one in read_topology(tmp_path).operators] == [(1, 4), (0, 1)]


def test_sources_that_spark_names_are_told_by_name(tmp_path: Path) -> None:
    plan(tmp_path, 0, 'views:{"logOffset":0}', "clicks:-", version="v2")
    assert read_topology(tmp_path).sources == (
        SourceInfo(0, None, "views", is_named_by_spark=True),
        SourceInfo(1, None, "clicks", is_named_by_spark=True),
    )


def test_of_many_descriptions_the_newest_counts(tmp_path: Path) -> None:
    folder = describe(tmp_path, 0, "old")
    (folder / "_metadata" / "metadata").unlink()
    for start, kind in ((0, "older"), (12, "transformWithStateExec"), (3, "old")):
        document = {"operatorInfo": {"operatorId": 0, "operatorName": kind}, "stateStoreInfo": []}
        (folder / "_metadata" / "v2").mkdir(exist_ok=True)
        (folder / "_metadata" / "v2" / str(start)).write_text(f"v2\n{json.dumps(document)}")
    assert [one.kind for one in read_topology(tmp_path).operators] == ["transformWithStateExec"]


def test_nothing_at_all_is_an_empty_topology(tmp_path: Path) -> None:
    assert read_topology(tmp_path) == Topology()


@pytest.mark.parametrize("content", [None, "", "v1\n", "v1\n[]", 'v1\n{"operatorInfo":{}}', "v1\nnull"])
def test_a_description_that_says_nothing_leaves_what_we_have_recorded(tmp_path: Path, content: str | None) -> None:
    """Spark goes on without it, so a start must not be refused for it."""
    path = describe(tmp_path, 0, "dedupe") / "_metadata" / "metadata"
    path.unlink() if content is None else path.write_text(content)
    assert [(one.number, one.kind) for one in read_topology(tmp_path).operators] == [(0, "")]
    TopologyLog(LocalStorage(tmp_path / "onceward")).write(Topology((Operator(0, "dedupe", "d"),)), since=0)
    assert [(one.kind, one.name) for one in read_topology(tmp_path).operators] == [("dedupe", "d")]


def test_a_record_is_written_only_where_it_differs(tmp_path: Path) -> None:
    log = TopologyLog(LocalStorage(tmp_path))
    assert log.read() is None
    assert [log.write(one, since=since).number for since, one in enumerate([WHOLE, WHOLE, Topology(), WHOLE])] == [
        0,
        0,
        1,
        2,
    ]
    newest = log.read()
    assert newest is not None
    assert (newest.topology, newest.since) == (WHOLE, 3)


def test_a_flipped_record_is_refused(tmp_path: Path) -> None:
    TopologyLog(LocalStorage(tmp_path)).write(WHOLE, since=0)
    path = tmp_path / "topology" / "0.json"
    path.write_bytes(path.read_bytes().replace(b"dedupe", b"dedupf"))
    with pytest.raises(DamagedFile, match="checksum"):
        TopologyLog(LocalStorage(tmp_path)).read()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_key_is_read_from_both_versions_of_the_schema_file(version: str) -> None:
    data = schema_file(("a", "string"), ("b", "decimal(10,2)"), version=version)
    assert key_columns("dedupe", data) == (Column("a", "string"), Column("b", "decimal(10,2)"))


def test_a_session_window_has_the_key_of_its_group() -> None:
    data = schema_file(("a", "string"), ("sessionStartTime", "timestamp"))
    assert key_columns("sessionWindowStateStoreSaveExec", data) == (Column("a", "string"),)


@pytest.mark.parametrize("data", [b"", b"\0", text("v2"), text("v3") + b"\0" * 40, schema_file(("a", "string"))[:20]])
def test_a_schema_file_that_is_cut_or_newer_tells_no_key(data: bytes) -> None:
    assert key_columns("dedupe", data) is None


def test_a_join_tells_no_key_by_its_files() -> None:
    assert key_columns("symmetricHashJoin", schema_file(("field0", "string"))) is None


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("long", "long"),
        ({"type": "array", "elementType": "string", "containsNull": True}, "array<string>"),
        (
            {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": "long"}},
            "map<string,array<long>>",
        ),
        ({"type": "udt", "class": "x"}, "udt"),
    ],
)
def test_a_type_is_spelled_in_one_word(kind: object, word: str) -> None:
    assert spelled(kind) == word
