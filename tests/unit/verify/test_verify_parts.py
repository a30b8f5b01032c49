"""The parts of the verifier: checksums, blocks, which files make a version, which lists a source reads."""

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from onceward.contracts import Severity
from onceward.verify.files import Files
from onceward.verify.lists import list_findings, source_lists
from onceward.verify.lz4_blocks import TornBlocksError, check_blocks, first_bytes, xxh32
from onceward.verify.state import Wanted, state_findings
from onceward.verify.store_files import Store, store_findings
from onceward.verify.stores import Provider, chain, version_in

SEED = 0x9747B28C


def crc(data: bytes) -> bytes:
    """As Hadoop writes it."""
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, len(data), 512)]
    return b"crc\0" + struct.pack(f">i{len(sums)}I", 512, *sums)


def put(root: Path, path: str, data: bytes, *, vouched: bool = True) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    if vouched:
        (file.parent / f".{file.name}.crc").write_bytes(crc(data))


def blocks(*plain: bytes) -> bytes:
    """As Spark packs a delta; every second block is not worth packing."""
    packed = b""
    for number, block in enumerate(plain):
        raw = bool(number % 2)
        data = block if raw else pa.Codec("lz4_raw").compress(block, asbytes=True)
        hashed = xxh32(block) & 0x0FFFFFFF
        packed += b"LZ4Block" + struct.pack("<BiiI", 0x15 if raw else 0x25, len(data), len(block), hashed) + data
    return packed + b"LZ4Block" + struct.pack("<BiiI", 0x15, 0, 0, 0)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1024, 3 << 20])
def test_a_file_is_vouched_for_by_its_checksums_and_no_flip_or_cut_is_missed(tmp_path: Path, size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    put(tmp_path, "a/b", data)
    assert Files(tmp_path).check("a/b").is_vouched_for
    for at in {0, size // 2, size - 1} if size else ():
        flipped = bytearray(data)
        flipped[at] ^= 1
        (tmp_path / "a/b").write_bytes(flipped)
        assert not Files(tmp_path).check("a/b").is_sound, at
    # Where a cut falls between two chunks Hadoop itself sees nothing.
    for cut in {0, 512, size - 1} if size > 512 else ():
        (tmp_path / "a/b").write_bytes(data[:cut])
        assert not Files(tmp_path).check("a/b").is_sound, cut


@pytest.mark.parametrize("head", [b"", b"crc", b"CRC\0\0\0\2\0", b"none at all"])
def test_checksums_that_hadoop_passes_over_say_nothing(tmp_path: Path, head: bytes) -> None:
    put(tmp_path, "b", b"content")
    (tmp_path / ".b.crc").write_bytes(head)
    found = Files(tmp_path).check("b")
    assert (found.is_sound, found.is_vouched_for) == (True, False)


def test_checksums_that_lack_one_or_have_another_chunk_are_damage(tmp_path: Path) -> None:
    put(tmp_path, "b", bytes(2000))
    whole = (tmp_path / ".b.crc").read_bytes()
    for other in (
        whole[:-4],
        whole[:-1],
        whole[:6] + b"\1" + whole[7:],
        whole[:4] + b"\xff" + whole[5:],
        whole + b"1234",
    ):
        (tmp_path / ".b.crc").write_bytes(other)
        assert not Files(tmp_path).check("b").is_sound


def test_another_size_of_chunks_is_as_good_where_it_gives_the_same_checksums(tmp_path: Path) -> None:
    """A flipped bit in a file of one chunk: Hadoop goes on, as was tried."""
    put(tmp_path, "b", b"content")
    whole = (tmp_path / ".b.crc").read_bytes()
    (tmp_path / ".b.crc").write_bytes(whole[:4] + b"\1" + whole[5:])
    assert Files(tmp_path).check("b").is_sound


def test_the_hash_is_the_published_one() -> None:
    assert [xxh32(text, 0) for text in (b"", b"a", b"abc")] == [0x02CC5D05, 0x550D7456, 0x32D153FF]


def test_blocks_are_read_to_their_end_and_no_flip_is_missed() -> None:
    plain = (b"one and one and one and one", b"two", bytes(300))
    whole = blocks(*plain)
    for unpacks in (True, False):
        check_blocks(io.BytesIO(whole), unpacks=unpacks)
    assert first_bytes(io.BytesIO(whole), 40) == b"".join(plain)[:40]
    for at in range(len(whole) - 21):
        # The level of compression is in the lower half of a block's ninth byte, and nobody reads it.
        flipped = bytearray(whole)
        flipped[at] ^= 0x80
        with pytest.raises(TornBlocksError):
            check_blocks(io.BytesIO(flipped), unpacks=True)
    for cut in range(len(whole)):
        with pytest.raises(TornBlocksError):
            check_blocks(io.BytesIO(whole[:cut]), unpacks=False)


@pytest.mark.parametrize(
    ("names", "version", "snapshot", "changes", "missing"),
    [
        ("1.delta 2.delta 3.delta", 3, None, "1 2 3", ""),
        ("1.delta 2.delta 2.snapshot 3.delta", 3, "2.snapshot", "3", ""),
        ("2.snapshot 3.delta", 3, "2.snapshot", "3", ""),
        ("1.snapshot 2.delta 3.delta", 3, "1.snapshot", "2 3", ""),
        ("3.snapshot", 3, "3.snapshot", "", ""),
        ("4.snapshot 4.delta 3.delta 2.snapshot", 3, "2.snapshot", "3", ""),
        ("2.delta 3.delta", 3, None, "1 2 3", "1"),
        ("1.snapshot 3.delta", 3, "1.snapshot", "2 3", "2"),
        ("", 2, None, "1 2", "1 2"),
    ],
)
def test_a_version_is_its_newest_snapshot_and_every_delta_since(
    names: str, version: int, snapshot: str | None, changes: str, missing: str
) -> None:
    found = chain(names.split(), version, Provider.HDFS)
    assert found.snapshot == snapshot
    assert [one.removesuffix(".delta") for one in found.changes] == changes.split()
    assert [one.removesuffix(".delta") for one in found.missing] == missing.split()


def test_under_format_2_only_files_of_the_lineage_count() -> None:
    names = ["2_a.zip", "3_x.zip", "3_b.changelog", "4_c.changelog", "4_y.changelog"]
    found = chain(names, 4, Provider.ROCKSDB, {2: "a", 3: "b", 4: "c"})
    assert (found.snapshot, found.changes, found.missing) == ("2_a.zip", ("3_b.changelog", "4_c.changelog"), ())


def test_files_of_a_version_are_known_with_all_their_checksums() -> None:
    names = ["10.delta", ".10.delta.crc", "10_a-b.zip", "10_a-b.zip.crc", ".10_a-b.zip.crc.crc"]
    assert {version_in(name) for name in names} == {10}
    others = ["10", "schema", "000010-a.sst", ".10.delta.123.tmp", "x10.delta", "10.delta.tmp"]
    assert {version_in(name) for name in others} == {None}


@pytest.mark.parametrize(
    ("names", "end", "wrong"),
    [
        ("0 1 2", 2, ""),
        ("0 1 2.compact 3", 3, ""),
        ("2.compact 3", 3, ""),
        ("0 2", 2, "1"),
        ("1 2", 2, "0"),
        ("0 1 3", 3, "2"),
        ("2.compact 4", 4, "3"),
        ("0 1", 2, "2"),
        ("2.compact 5.compact 6", 6, ""),
        ("2.compact 8.compact 9", 9, "8.compact"),
    ],
)
def test_a_source_needs_its_last_compact_list_and_all_since(tmp_path: Path, names: str, end: int, wrong: str) -> None:
    for name in names.split():
        put(tmp_path, f"sources/0/{name}", b'v1\n{"path":"file:/a","timestamp":1,"batchId":0}')
    files = Files(tmp_path)
    (one,) = source_lists(files)
    assert [found.about.removeprefix("sources/0/") for found in list_findings(files, one, end)] == wrong.split()


def test_a_list_without_a_checksum_is_read_line_by_line(tmp_path: Path) -> None:
    put(tmp_path, "sources/0/0", b'v1\n{"path":"file:/a","batchId":0}\n{"path":"fi', vouched=False)
    files = Files(tmp_path)
    assert [found.detail for found in list_findings(files, *source_lists(files), 0)] == [
        "a line of it is torn or garbled"
    ]


def rocksdb(root: Path, folder: str, version: str, tables: dict[str, bytes]) -> None:
    for name, data in tables.items():
        put(root, f"{folder}/SSTs/{name}", data)
    described = [{"localFileName": n, "dfsSstFileName": n, "sizeBytes": len(data)} for n, data in tables.items()]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("CURRENT", "MANIFEST-000005\n")
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": described, "numKeys": 1}))
    put(root, f"{folder}/{version}.zip", packed.getvalue())


def findings(root: Path, version: int, unique_id: str | None = None) -> list[tuple[str, str, str | None]]:
    store = Store("state/0/0", Provider.ROCKSDB, "lz4")
    return [(one.about, one.detail, one.fix) for one in store_findings(Files(root), store, version, unique_id)]


def test_a_table_file_of_another_size_is_found_though_its_checksum_agrees(tmp_path: Path) -> None:
    rocksdb(tmp_path, "state/0/0", "3", {"000008-a.sst": b"table"})
    assert findings(tmp_path, 3) == []
    put(tmp_path, "state/0/0/SSTs/000008-a.sst", b"tables")
    assert [(about, what) for about, what, _ in findings(tmp_path, 3)] == [
        ("state/0/0/SSTs/000008-a.sst", "it has 6 bytes, and state/0/0/3.zip says 5")
    ]


def fix_of(root: Path, version: int) -> tuple[Severity, str]:
    """How bad the one finding is, and what is to be done."""
    store = Store("state/0/0", Provider.ROCKSDB, "lz4")
    (found,) = store_findings(Files(root), store, version, None)
    return found.severity, found.fix or ""


def test_a_damaged_snapshot_is_passed_over_where_an_older_one_makes_the_same_state(tmp_path: Path) -> None:
    rocksdb(tmp_path, "state/0/0", "2", {"000008-a.sst": b"table"})
    rocksdb(tmp_path, "state/0/0", "4", {"000009-b.sst": b"table"})
    for version in (3, 4):
        put(tmp_path, f"state/0/0/{version}.changelog", blocks(b"changes"))
    (tmp_path / "state/0/0/SSTs/000009-b.sst").unlink()
    ((about, _, _),) = findings(tmp_path, 4)
    assert about.endswith("000009-b.sst")
    severity, fix = fix_of(tmp_path, 4)
    assert severity is Severity.WARNING
    assert "move 4.zip, with .crc files, out of the folder: 2.zip and the changes since make" in fix
    put(tmp_path, "state/0/0/3.changelog", b"LZ4Block", vouched=False)
    severity, fix = fix_of(tmp_path, 4)
    assert severity is Severity.ERROR
    assert fix.startswith("restore the file from a backup")


def test_all_snapshots_may_be_damaged_where_every_change_is_there(tmp_path: Path) -> None:
    """They share their table files, so that one may damage them all."""
    for version in (2, 4):
        rocksdb(tmp_path, "state/0/0", str(version), {"000008-a.sst": b"table"})
    for version in range(1, 5):
        put(tmp_path, f"state/0/0/{version}.changelog", blocks(b"changes"))
    (tmp_path / "state/0/0/SSTs/000008-a.sst").unlink()
    severity, fix = fix_of(tmp_path, 4)
    assert severity is Severity.WARNING
    assert "move 4.zip and 2.zip, with .crc files, out of the folder: the changes since the beginning make" in fix
    (tmp_path / "state/0/0/1.changelog").unlink()
    assert fix_of(tmp_path, 4)[0] is Severity.ERROR


def test_changes_alone_make_no_state_that_has_column_families(tmp_path: Path) -> None:
    """That of `transformWithState`: a snapshot names them."""
    store = Store("state/0/0", Provider.ROCKSDB, "lz4", has_families=True)
    for version in (1, 3):
        rocksdb(tmp_path, "state/0/0", str(version), {"000008-a.sst": b"table"})
    for version in range(1, 5):
        put(tmp_path, f"state/0/0/{version}.changelog", blocks(b"changes"))
    put(tmp_path, "state/0/0/3.zip", b"PK", vouched=False)
    (found,) = store_findings(Files(tmp_path), store, 4, None)
    assert (found.severity, found.about) == (Severity.WARNING, "state/0/0/3.zip")
    (tmp_path / "state/0/0/SSTs/000008-a.sst").unlink()
    (found,) = store_findings(Files(tmp_path), store, 4, None)
    assert (found.severity, found.about) == (Severity.ERROR, "state/0/0/3.zip")
    for version in (1, 3):
        (tmp_path / f"state/0/0/{version}.zip").unlink()
    (found,) = store_findings(Files(tmp_path), store, 4, None)
    assert (found.severity, found.about) == (Severity.ERROR, "state/0/0")


@pytest.mark.parametrize(("changes", "expected"), [(500, Severity.WARNING), (501, Severity.ERROR)])
def test_spark_does_not_replay_any_number_of_changes(tmp_path: Path, changes: int, expected: Severity) -> None:
    rocksdb(tmp_path, "state/0/0", str(changes), {"000008-a.sst": b"table"})
    for version in range(1, changes + 1):
        put(tmp_path, f"state/0/0/{version}.changelog", blocks(b"changes"))
    (tmp_path / "state/0/0/SSTs/000008-a.sst").unlink()
    severity, fix = fix_of(tmp_path, changes)
    assert severity is expected
    assert f"move {changes}.zip" in fix


def changelog(root: Path, version: int, one: str, lineage: dict[int, str]) -> None:
    text = json.dumps([{"version": v, "checkpointUniqueId": i} for v, i in lineage.items()]).encode()
    put(root, f"state/0/0/{version}_{one}.changelog", blocks(b"\0\2v3" + struct.pack(">H", len(text)) + text))


def test_a_lineage_leads_back_beyond_a_snapshot_that_is_damaged_or_gone(tmp_path: Path) -> None:
    rocksdb(tmp_path, "state/0/0", "2_b", {"000008-a.sst": b"table"})
    rocksdb(tmp_path, "state/0/0", "4_d", {"000009-b.sst": b"table"})
    changelog(tmp_path, 1, "a", {})
    changelog(tmp_path, 2, "b", {1: "a"})
    changelog(tmp_path, 3, "c", {2: "b"})
    changelog(tmp_path, 4, "d", {2: "b", 3: "c"})
    changelog(tmp_path, 5, "e", {4: "d"})
    assert findings(tmp_path, 5, "e") == []
    (tmp_path / "state/0/0/SSTs/000009-b.sst").unlink()
    ((about, _, fix),) = findings(tmp_path, 5, "e")
    assert about.endswith("000009-b.sst")
    assert "2_b.zip and the changes since make the same state" in str(fix)
    (tmp_path / "state/0/0/4_d.zip").unlink()
    assert findings(tmp_path, 5, "e") == []
    (tmp_path / "state/0/0/2_b.zip").unlink()
    ((about, what, _),) = findings(tmp_path, 5, "e")
    assert about == "state/0/0"
    assert "no snapshot up to version 5 is there" in what
    (tmp_path / "state/0/0/2_b.changelog").unlink()
    assert [about for about, _, _ in findings(tmp_path, 5, "e")] == [
        "state/0/0/1_?.changelog",
        "state/0/0/2_b.changelog",
        "state/0/0",
    ]


def test_of_changes_that_cannot_be_unpacked_nothing_bad_is_said(tmp_path: Path) -> None:
    put(tmp_path, "state/0/0/1_a.changelog", b"packed by something else")
    store = Store("state/0/0", Provider.ROCKSDB, "zstd")
    (found,) = store_findings(Files(tmp_path), store, 1, "a")
    assert found.severity is Severity.WARNING


def test_a_lineage_leads_back_to_its_snapshot(tmp_path: Path) -> None:
    rocksdb(tmp_path, "state/0/0", "2_a", {"000008-a.sst": b"table"})
    changelog(tmp_path, 3, "b", {2: "a"})
    changelog(tmp_path, 4, "c", {2: "a", 3: "b"})
    assert findings(tmp_path, 4, "c") == []
    assert findings(tmp_path, 2, "a") == []
    (tmp_path / "state/0/0/3_b.changelog").unlink()
    assert [about for about, _, _ in findings(tmp_path, 4, "c")] == ["state/0/0/3_b.changelog"]
    (tmp_path / "state/0/0/2_a.zip").unlink()
    assert "state/0/0/1_?.changelog" in [about for about, _, _ in findings(tmp_path, 4, "c")]


def operator(root: Path, *partitions: int, claimed: int = 3) -> Wanted:
    described = {"operatorInfo": {}, "stateStoreInfo": [{"storeName": "default", "numPartitions": claimed}]}
    put(root, "state/0/_metadata/metadata", f"v1\n{json.dumps(described)}".encode())
    put(root, "state/0/0/_metadata/schema", b"\0\2v2")
    for partition in partitions:
        put(root, f"state/0/{partition}/1.delta", blocks(b"changes"))
    provider = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    settings = {"spark.sql.streaming.stateStore.providerClass": provider, "spark.sql.shuffle.partitions": str(claimed)}
    return Wanted(1, settings, {})


@pytest.mark.parametrize(("partitions", "missing"), [((0, 1, 2), []), ((0, 2), ["state/0/1"]), ((0,), [])])
def test_every_partition_is_looked_at_and_an_aggregate_without_a_key_has_one(
    tmp_path: Path, partitions: tuple[int, ...], missing: list[str]
) -> None:
    """Its description says three all the same."""
    wanted = operator(tmp_path, *partitions)
    assert [one.about for one in state_findings(Files(tmp_path), wanted)] == missing


def test_without_its_description_an_operator_is_known_by_its_folders(tmp_path: Path) -> None:
    wanted = operator(tmp_path, 0, 1, 2)
    (tmp_path / "state/0/_metadata/metadata").unlink()
    (tmp_path / "state/0/1/1.delta").unlink()
    found = {one.about: one.severity.value for one in state_findings(Files(tmp_path), wanted)}
    assert found == {"state/0/_metadata/metadata": "warning", "state/0/1/1.delta": "error"}
