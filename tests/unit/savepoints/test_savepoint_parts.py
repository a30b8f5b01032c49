"""The parts of a savepoint, each by itself: Hadoop's sums, which files are needed, paths in descriptions."""

import ctypes
import errno
import importlib
import io
import json
import os
import random
import struct
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from onceward.savepoints.choose import Unready, files_at
from onceward.savepoints.copying import FULL_SPEED, Pace, copy_file, of_each, opened
from onceward.savepoints.document import SavedFile
from onceward.savepoints.hadoop_sums import whole_crc
from onceward.savepoints.place import remove_left, unfinished
from onceward.savepoints.schema_paths import is_description, made_absolute, made_relative
from onceward.storage import durable
from onceward.verify.files import Files
from onceward.verify.logs import read_logs

take_module = importlib.import_module("onceward.savepoints.take")
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def sums_of(data: bytes, chunk: int) -> bytes:
    return b"".join(struct.pack(">I", zlib.crc32(data[at : at + chunk])) for at in range(0, len(data), chunk))


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1024, 1025, 3584, 4099, 100_003])
@pytest.mark.parametrize("chunk", [512, 100, 1])
def test_hadoops_sums_fold_to_the_crc_of_the_whole(size: int, chunk: int) -> None:
    data = random.Random(size).randbytes(size)
    sums = sums_of(data, chunk)
    assert whole_crc(sums, chunk, size) == zlib.crc32(data)
    assert whole_crc(sums + b"1234", chunk, size) is None
    if size:
        flipped = bytes([sums[0] ^ 1]) + sums[1:]
        assert whole_crc(flipped, chunk, size) != zlib.crc32(data)


def put(root: Path, name: str, data: bytes = b"x") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def logged(root: Path, *epochs: int, source: str = "{}", provider: str = ROCKSDB, codec: str = "lz4") -> Files:
    store = "spark.sql.streaming.stateStore"
    settings = {"spark.sql.shuffle.partitions": "1", f"{store}.providerClass": provider}
    settings[f"{store}.compression.codec"] = codec
    for epoch in epochs:
        put(root, f"offsets/{epoch}", f"v1\n{json.dumps({'conf': settings})}\n{source}".encode())
        put(root, f"commits/{epoch}", b"v1\n{}")
    return Files(root)


def chosen(root: Path, epoch: int) -> list[str]:
    files = Files(root)
    return files_at(files, read_logs(files, quick=True), epoch)


def snapshot(*tables: str) -> bytes:
    packed = io.BytesIO()
    named = [{"localFileName": one, "dfsSstFileName": one, "sizeBytes": 1} for one in tables]
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": named, "logFiles": []}))
    return packed.getvalue()


def test_of_a_file_source_only_what_a_start_reads_up_to_the_epoch_is_taken(tmp_path: Path) -> None:
    logged(tmp_path, 6, 7, source='{"logOffset":7}')
    for name in ("0", "1", "2.compact", "3", "4", "5.compact", "6", "7", "8", "8.compact", ".7.crc"):
        put(tmp_path, f"sources/0/{name}", b'v1\n{"path":"file:///in/a"}')
    names = [name for name in chosen(tmp_path, 7) if name.startswith("sources")]
    assert names == ["sources/0/2.compact", "sources/0/5.compact", "sources/0/6", "sources/0/7"]


def test_of_another_source_everything_is_taken(tmp_path: Path) -> None:
    logged(tmp_path, 6, 7, source='{"topic":{"0":7}}')
    put(tmp_path, "sources/0/0", b"\0v1\n{}")
    put(tmp_path, "sources/0/.0.crc")
    assert [name for name in chosen(tmp_path, 7) if name.startswith("sources")] == ["sources/0/0"]


def test_of_a_store_the_newest_snapshot_with_its_tables_and_the_changes_after_it_are_taken(tmp_path: Path) -> None:
    logged(tmp_path, 6, 7)
    store = "state/0/0"
    described = {
        "operatorInfo": {"operatorName": "dedupe"},
        "stateStoreInfo": [{"storeName": "default", "numPartitions": 1}],
    }
    put(tmp_path, "state/0/_metadata/metadata", b"v1\n" + json.dumps(described).encode())
    put(tmp_path, f"{store}/_metadata/schema")
    put(tmp_path, f"{store}/3.zip", snapshot("old.sst"))
    put(tmp_path, f"{store}/6.zip", snapshot("a.sst", "b.sst"))
    put(tmp_path, f"{store}/9.zip", snapshot("late.sst"))
    for version in range(1, 10):
        put(tmp_path, f"{store}/{version}.changelog")
    for name in ("old.sst", "a.sst", "b.sst", "late.sst", "stray.sst"):
        put(tmp_path, f"{store}/SSTs/{name}")
    put(tmp_path, f"{store}/8.changelog.crc", b"{}")
    assert sorted(name for name in chosen(tmp_path, 7) if name.startswith("state")) == [
        f"{store}/6.zip",
        f"{store}/7.changelog",
        f"{store}/8.changelog",
        f"{store}/8.changelog.crc",
        f"{store}/SSTs/a.sst",
        f"{store}/SSTs/b.sst",
        f"{store}/_metadata/schema",
        "state/0/_metadata/metadata",
    ]
    (tmp_path / store / "6.zip").write_bytes(b"torn")
    with pytest.raises(Unready):
        chosen(tmp_path, 7)


def test_a_damaged_snapshot_that_spark_passes_over_is_named_with_what_to_move(tmp_path: Path) -> None:
    """It is not left out by itself: then nobody would know of the damage."""
    logged(tmp_path, 6, 7, provider=HDFS, codec="zstd")
    store = "state/0/0"
    put(tmp_path, f"{store}/_metadata/schema")
    for name in ("3.snapshot", "6.snapshot", *(f"{version}.delta" for version in range(4, 9))):
        put(tmp_path, f"{store}/{name}")
    put(tmp_path, f"{store}/.6.snapshot.crc", b"crc\0" + struct.pack(">i", 512) + sums_of(b"as it was", 512))
    assert f"{store}/6.snapshot" in chosen(tmp_path, 7)
    told = take_module._lost(tmp_path, Unready(f"{store}/6.snapshot", "its content does not match"))
    moved = "move 6.snapshot, with .crc files, out of the folder: 3.snapshot and the changes since make the same state"
    assert told.hint == f"{moved}; then take it again"
    (tmp_path / store / "5.delta").unlink()
    told = take_module._lost(tmp_path, Unready(f"{store}/6.snapshot", "its content does not match"))
    assert "onceward checkpoints verify" in str(told.hint)


def test_descriptions_of_later_starts_are_left_out(tmp_path: Path) -> None:
    logged(tmp_path, 6, 7)
    described = b'v2\n{"stateStoreInfo":[]}'
    for start in (0, 7, 8):
        put(tmp_path, f"state/0/_metadata/v2/{start}", described)
        put(tmp_path, f"state/0/_stateSchema/default/{start}_abc")
    put(tmp_path, "state/0/0/8.changelog")
    names = [name for name in chosen(tmp_path, 7) if name.startswith("state")]
    assert sorted(name.rpartition("/")[2] for name in names) == ["0", "0_abc", "7", "7_abc"]


def test_paths_of_schemas_are_relative_in_a_savepoint_and_full_in_a_checkpoint(tmp_path: Path) -> None:
    name = "state/3/_metadata/v2/7"
    assert is_description(name)
    assert not is_description("state/3/_metadata/metadata")

    def description(path: str) -> bytes:
        return f'v2\n{{"stateStoreInfo":[{{"stateSchemaFilePaths":["{path}"],"é":1}}]}}'.encode()

    full = description("file:/old place/state/3/_stateSchema/default/0_x")
    relative = description("state/3/_stateSchema/default/0_x")
    assert made_relative(name, full) == made_relative(name, relative) == relative
    there = description(f"file:{tmp_path}/state/3/_stateSchema/default/0_x")
    assert made_absolute(name, relative, tmp_path) == there
    for hostile in ("/etc/passwd", "state/3/_stateSchema/../../x", "state/4/_stateSchema/x", "s3://x"):
        with pytest.raises(ValueError, match="is not below"):
            made_absolute(name, description(hostile), tmp_path)
    with pytest.raises(ValueError, match="is not below"):
        made_relative(name, description("/elsewhere/0_x"))


def test_what_another_process_works_in_is_not_taken_for_left_behind(tmp_path: Path) -> None:
    left = tmp_path / ".unfinished-a"
    left.mkdir()
    (tmp_path / ".unfinished-link").symlink_to(tmp_path)
    with unfinished(tmp_path, "b") as held:
        assert not left.exists()
        # A lock belongs to an opening of the folder, so that this very process is another one to it.
        assert remove_left(tmp_path) == []
        assert held.path.is_dir()
    assert os.listdir(tmp_path) == [".unfinished-link"]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_failure_ends_all_copying(workers: int) -> None:
    def work(number: int) -> int:
        if number == 3:
            raise OSError("full")
        return number * 2

    assert of_each(work, [0, 1, 2], workers) == [0, 2, 4]
    with pytest.raises(OSError, match="full"):
        of_each(work, list(range(100)), workers)


def copied(source: Path, target: Path, pace: Pace) -> SavedFile:
    with opened(source.parent, source.name) as file:
        return copy_file(file, target, lambda count: None, pace)


def test_a_copy_beside_a_job_rests_for_most_of_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two megabytes takes a second by this clock, and so does the end, so each is followed by four of rest."""
    seconds, rests = iter(range(100)), list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(time, "sleep", rests.append)
    data = random.Random(1).randbytes((2 << 20) + 5)
    (tmp_path / "state").write_bytes(data)
    assert copied(tmp_path / "state", tmp_path / "copy", Pace(1, 0.2)) == SavedFile(len(data), zlib.crc32(data))
    assert rests == pytest.approx([4.0, 4.0, 4.0])
    assert (tmp_path / "copy").read_bytes() == data
    rests.clear()
    copied(tmp_path / "state", tmp_path / "again", FULL_SPEED)
    assert rests == []


def test_a_write_that_failed_while_it_was_spread_fails_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may tell it only once; on a file system without the call there is nothing to tell."""
    (tmp_path / "state").write_bytes(b"rows")
    monkeypatch.setattr(
        durable, "_libc", SimpleNamespace(sync_file_range=lambda *arguments: ctypes.set_errno(code) or -1)
    )
    code = errno.ENOSYS
    assert copied(tmp_path / "state", tmp_path / "copy", Pace(1, 0.9)).size == 4
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        copied(tmp_path / "state", tmp_path / "again", Pace(1, 0.9))
    monkeypatch.setattr(durable, "_libc", SimpleNamespace())
    assert copied(tmp_path / "state", tmp_path / "third", Pace(1, 0.9)).size == 4


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux only")
def test_threads_that_copy_give_way_and_the_caller_does_not() -> None:
    def priority(item: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = priority(0)
    assert of_each(priority, [0, 1], 2) == [19, 19]
    assert of_each(priority, [0], 1) == [before]
    assert priority(0) == before
