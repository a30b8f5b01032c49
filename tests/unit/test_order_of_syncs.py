"""What is forced to the disk, and in which order: content before its name, names before anyone relies on them.

A power loss forgets what was not synced. These tests note the calls; they do not need a power loss to fail.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceward.committers import FileCheckpointCommitter
from onceward.contracts import AlreadyCommitted, Log, SlotContext
from onceward.errors import StorageFailed
from onceward.identity import Fingerprint, Generation, JobIdentity, JobName, RunId, SinkName
from onceward.sinks import FileSink
from onceward.spark import checkpoint
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage
from onceward.wal import SegmentStore, SegmentWriter

JOB = JobIdentity(JobName("page views"), Generation("aaaaaaaa"))
ROWS = pa.record_batch({"id": pa.array([1, 2, 3, 4], pa.int64()), "app": ["a", "b", "a", "b"]})


class Disk:
    """Notes what is synced, named and removed below a folder: `sync x`, `name x`, `remove x`."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.events: list[str] = []
        self.synced_bytes: dict[str, int] = {}
        fsync = os.fsync

        def sync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self._note("sync", path)
            self.synced_bytes[self._short(path)] = os.fstat(descriptor).st_size
            fsync(descriptor)

        patch.setattr(os, "fsync", sync)
        for name in ("link", "rename", "replace"):
            patch.setattr(os, name, self._watched("name", getattr(os, name), which=1))
        patch.setattr(os, "unlink", self._watched("remove", os.unlink, which=0))

    def _watched(self, verb: str, call: Callable[..., Any], *, which: int) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            result = call(*args, **options)
            self._note(verb, args[which])
            return result

        return watched

    def _short(self, path: Any) -> str:
        name = os.path.relpath(path, self.root)
        return "unfinished" if ".unfinished-" in name else name

    def _note(self, verb: str, path: Any) -> None:
        self.events.append(f"{verb} {self._short(path)}")

    def when(self, event: str, *, after: str | None = None) -> int:
        """The place of an event, the first one after another if that is given."""
        start = self.when(after) + 1 if after is not None else 0
        assert event in self.events[start:], f"no {event!r} after {after!r} in {self.events}"
        return self.events.index(event, start)

    def all_of(self, verb: str) -> list[int]:
        """The places of all events of a kind."""
        return [index for index, event in enumerate(self.events) if event.startswith(f"{verb} ")]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def context(sink: SinkName, slot: int = 0) -> SlotContext:
    return SlotContext(
        job=JOB,
        sink=sink,
        epoch=7,
        takeover=0,
        slot=slot,
        attempt=1,
        run=RunId("rrrrrr"),
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        fingerprint=Fingerprint("ffffffffffffffff"),
    )


# --- the checkpoint -------------------------------------------------------------------------------


def test_a_created_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_the_creator_is_told(
    disk: Disk,
) -> None:
    storage = LocalStorage(disk.root)
    assert storage.create("manifests/0.0.json", b"all of it")
    assert disk.when("sync unfinished") < disk.when("name manifests/0.0.json")
    assert disk.synced_bytes["unfinished"] == len(b"all of it")
    disk.when("sync manifests", after="name manifests/0.0.json")


def test_who_loses_a_create_makes_sure_that_what_stands_will_stay(disk: Disk) -> None:
    """The winner may have died between the name and its sync, and the loser acts on what it finds."""
    LocalStorage(disk.root).create("manifests/0.0.json", b"first")
    disk.events.clear()
    assert not LocalStorage(disk.root).create("manifests/0.0.json", b"second")
    disk.when("sync manifests")


def test_a_file_that_is_being_created_is_listed_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    link, listed = os.link, []

    def look(*args: Any, **options: Any) -> None:
        listed.append(storage.names("manifests"))
        link(*args, **options)

    monkeypatch.setattr(os, "link", look)
    assert storage.create("manifests/0.0.json", b"x")
    assert listed == [[]]


def test_folders_that_were_made_for_a_file_are_on_the_disk_with_it(disk: Disk) -> None:
    LocalStorage(disk.root / "new").create("manifests/0.0.json", b"x")
    named = disk.when("name new/manifests/0.0.json")
    assert max(disk.when("sync ."), disk.when("sync new")) < named


def test_a_segment_and_its_name_are_on_the_disk_when_its_handle_is_given_out(disk: Disk) -> None:
    storage = LocalStorage(disk.root)
    path = SegmentStore(storage).path(context(SinkName("sink")))
    writer = SegmentWriter(storage, path, ROWS.schema)
    writer.write(ROWS)
    handle = writer.finish()
    assert disk.synced_bytes[path] == handle["bytes"] == (disk.root / path).stat().st_size
    disk.when("sync wal/7", after=f"sync {path}")


# --- Spark's logs ---------------------------------------------------------------------------------


def spark_logs(root: Path) -> SparkLogs:
    """Two planned epochs, one of them decided, and a file source with a list of its own."""
    for name in ("offsets/0", "offsets/1", "commits/0", "sources/0/0", "sources/0/1", "metadata"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("v1\n{}\n-")
    return SparkLogs(root)


def test_a_barrier_is_forced_to_the_disk_with_all_that_it_refers_to(disk: Disk) -> None:
    spark_logs(disk.root).sync_barrier(1)
    for entry in ("offsets/1", "commits/0", "sources/0/1", "metadata"):
        folder = os.path.dirname(entry) or "."
        assert disk.when(f"sync {entry}") < disk.when(f"sync {folder}"), "the names after what they name"


def test_what_was_forced_to_the_disk_ahead_is_not_waited_for_again(disk: Disk) -> None:
    logs = spark_logs(disk.root)
    logs.sync_ahead(1)
    for entry in ("offsets/1", "commits/0", "sources/0/1", "metadata"):
        assert disk.when(f"sync {entry}") < disk.when(f"sync {os.path.dirname(entry) or '.'}")
    done = len(disk.events)
    logs.sync_barrier(1)
    assert len(disk.events) == done
    logs.sync_barrier(0)
    assert len(disk.events) > done, "another epoch"


@pytest.mark.parametrize("entry", ["offsets/1", "commits/0", "sources/0/1", "metadata"])
def test_what_was_written_again_since_is_forced_to_the_disk_again(disk: Disk, entry: str) -> None:
    """By a second driver: the same text in another file."""
    logs = spark_logs(disk.root)
    logs.sync_ahead(1)
    again = disk.root / "again"
    again.write_text((disk.root / entry).read_text())
    times = (disk.root / entry).stat()
    os.utime(again, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(again, disk.root / entry)
    done = len(disk.events)
    logs.sync_barrier(1)
    assert f"sync {entry}" in disk.events[done:]


@pytest.mark.parametrize("state", [False, True], ids=["without state", "with the first state"])
def test_what_fails_ahead_is_told_to_whoever_rests_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: bool
) -> None:
    """The system tells of a failed write once."""

    def fails(path: Path) -> None:
        raise OSError(5, "Input/output error")

    logs = spark_logs(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "sync_file", fails)
        logs.sync_ahead(1)
    if state:
        (tmp_path / "state").mkdir()
    with pytest.raises(StorageFailed, match="Input/output error"):
        logs.sync_barrier(1)
    logs.sync_barrier(1)


def test_state_is_not_forced_to_the_disk_before_it_is_written(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "sync_file_system", None)
    logs = spark_logs(disk.root)
    (disk.root / "state").mkdir()
    done = len(disk.events)
    logs.sync_ahead(1)
    assert len(disk.events) == done


def test_where_there_is_state_the_whole_file_system_is_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(checkpoint, "sync_file_system", synced.append)
    logs = spark_logs(tmp_path)
    logs.sync_barrier(1)
    assert synced == []
    (tmp_path / "state").mkdir()
    logs.sync_barrier(1)
    assert synced == [tmp_path]


def test_a_decision_is_forced_to_the_disk_with_its_name(disk: Disk) -> None:
    spark_logs(disk.root).sync_decision(0)
    assert disk.when("sync commits/0") < disk.when("sync commits")


def test_an_entry_that_is_put_back_is_whole_before_it_has_its_name(disk: Disk) -> None:
    spark_logs(disk.root).put_back(Log.OFFSETS, 1, "v1\n{}\nanother")
    (unfinished,) = [path for path in disk.synced_bytes if path.endswith(".tmp")]
    assert disk.synced_bytes[unfinished] == len("v1\n{}\nanother")
    assert disk.when(f"sync {unfinished}") < disk.when("name offsets/1")
    disk.when("sync offsets", after="name offsets/1")


# --- files ----------------------------------------------------------------------------------------


def staged(sink: FileSink, slot: int = 0) -> dict[str, Any]:
    transaction = sink.begin_transaction(context(sink.name, slot))
    sink.invoke(transaction, ROWS)
    return dict(sink.pre_commit(transaction))


def test_staged_files_and_their_names_are_on_the_disk_when_their_slot_is_pre_committed(disk: Disk) -> None:
    handle = staged(FileSink(disk.root, max_rows_per_file=2))
    assert len(handle["files"]) == 2
    for file in handle["files"]:
        place = f".onceward/{file['staged']}"
        assert disk.synced_bytes[place] == file["bytes"] == (disk.root / place).stat().st_size
        disk.when("sync .onceward", after=f"sync {place}")


def test_what_spark_has_written_is_on_the_disk_when_its_slot_is_pre_committed(disk: Disk) -> None:
    sink = FileSink(disk.root)
    where = context(sink.name)
    target = sink.engine_target(where, ROWS.schema)
    assert target is not None
    folder = Path(target.folder.removeprefix("file://"))
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([ROWS]), folder / "part-00000.snappy.parquet")
    disk.events.clear()
    (file,) = sink.engine_pre_commit(where)["files"]
    written = os.path.relpath(folder / "part-00000.snappy.parquet", disk.root)
    assert disk.synced_bytes[written] == file["bytes"]
    name = f"name .onceward/{file['staged']}"
    assert disk.when(f"sync {written}") < disk.when(name)
    disk.when("sync .onceward", after=name)


def test_visible_names_are_on_the_disk_before_the_staged_ones_go(disk: Disk) -> None:
    """Every folder from the root to the file: the partition's own folder may be new."""
    sink = FileSink(disk.root, partition_by=["app"], max_rows_per_file=1)
    handles = [staged(sink, slot) for slot in range(2)]
    disk.events.clear()
    sink.commit_all(handles)
    named = [f"name {file['final']}" for handle in handles for file in handle["files"]]
    assert len(named) == 8
    last_name = max(disk.when(event) for event in named)
    first_removal = min(disk.all_of("remove"))
    assert last_name < first_removal, "all names are given before the first staged one goes"
    for folder in (".", "app=a", "app=b"):
        synced = [index for index, event in enumerate(disk.events) if event == f"sync {folder}"]
        assert any(last_name < index < first_removal for index in synced), f"{folder} in {disk.events}"


def test_a_slot_that_another_publisher_finishes_between_two_looks_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the visible name, then removes the staged one: so the staged one is looked for first."""
    sink = FileSink(tmp_path)
    handle = staged(sink)
    exists, looks = Path.exists, iter([lambda: sink.commit(handle)])

    def look(path: Path, **options: Any) -> bool:
        found = exists(path, **options)
        next(looks, lambda: None)()
        return found

    monkeypatch.setattr(Path, "exists", look)
    assert sink.commit(handle) == AlreadyCommitted()


# --- committers -----------------------------------------------------------------------------------


def test_a_committers_file_is_on_the_disk_before_its_name_and_its_name_before_the_slot_counts_as_sent(
    disk: Disk,
) -> None:
    committer = FileCheckpointCommitter(disk.root)
    committer.open(JOB, SinkName("stdout"))
    disk.events.clear()
    committer.commit_checkpoint(0, 7)
    (name,) = [event for event in disk.events if event.startswith("name ")]
    folder = name.removeprefix("name ").rpartition("/")[0]
    written = [path for path in disk.synced_bytes if path.startswith(f"{folder}/.")]
    assert len(written) == 1
    assert disk.synced_bytes[written[0]] > 0
    assert disk.when(f"sync {written[0]}") < disk.when(name)
    disk.when(f"sync {folder}", after=name)
