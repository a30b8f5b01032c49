"""One suite for the real and the fake of each contract: storage, and the engine's logs."""

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from onceward.contracts import Storage
from onceward.errors import StorageFailed
from onceward.storage import LocalStorage
from onceward.testing import DirectoryLogs, MemoryLogs, MemoryStorage
from onceward.testing.engine import COMMITS_ENTRY, ConcurrentUpdate, Engine, EngineLogs, Source, offsets_entry
from onceward.testing.fakes import ManualClock


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, workshop: Path) -> Storage:
    return LocalStorage(workshop / "root") if request.param == "local" else MemoryStorage()


def test_create_is_write_once(storage: Storage) -> None:
    assert storage.create("a/b.json", b"first")
    assert not storage.create("a/b.json", b"second")
    assert storage.read("a/b.json") == b"first"


def test_what_is_absent_reads_as_none_and_lists_as_empty(storage: Storage) -> None:
    assert storage.read("a/b") is None
    assert storage.names("a") == []
    with pytest.raises(FileNotFoundError):
        storage.open("a/b")


def test_names_lists_files_and_folders_of_one_level(storage: Storage) -> None:
    for path in ("top", "a/one", "a/two", "a/b/three", "ab/four"):
        storage.create(path, b"")
    assert sorted(storage.names("")) == ["a", "ab", "top"]
    assert sorted(storage.names("a")) == ["b", "one", "two"]
    assert storage.names("a/b") == ["three"]


def test_a_stream_is_readable_after_close_and_never_overwrites(storage: Storage) -> None:
    file = storage.open_new("wal/0/x")
    file.write(b"one")
    file.write(b"two")
    file.close()
    with storage.open("wal/0/x") as back:
        assert back.read() == b"onetwo"
    with pytest.raises(StorageFailed):
        storage.open_new("wal/0/x")


def test_delete_takes_files_and_folders_and_what_is_gone(storage: Storage) -> None:
    for path in ("a/one", "a/b/two", "ab/three"):
        storage.create(path, b"")
    storage.delete("a")
    storage.delete("a")
    storage.delete("a/one")
    assert storage.names("") in (["ab"], [])[:1]
    assert storage.read("ab/three") == b""
    assert storage.create("a/one", b"again")


def test_a_storage_travels_to_executors(storage: Storage) -> None:
    storage.create("a", b"x")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"x"


def answers(logs: EngineLogs) -> list[object]:
    return [
        logs.decided(),
        logs.planned(),
        [logs.barrier(n) for n in range(6)],
        [(logs.is_planned(n), logs.is_committed(n), logs.is_engine_made(n)) for n in range(6)],
    ]


def random_operation(rng: Random) -> Callable[[EngineLogs], None]:
    epoch, kind, end, partitions = rng.randrange(6), rng.randrange(8), rng.randrange(3), rng.choice((200, 200, 7))
    at = datetime.fromtimestamp(1_700_000_000 + rng.randrange(100_000) / 1000, UTC)
    if kind < 3:
        return lambda logs: logs.plan(epoch, offsets_entry(end, at=at, shuffle_partitions=partitions))
    if kind < 6:
        return lambda logs: logs.commit(epoch, COMMITS_ENTRY)
    if kind == 6:
        return lambda logs: logs.forget_commit(epoch)
    return lambda logs: logs.purge(epoch)


def test_logs_in_memory_answer_as_the_reader_of_sparks_files_does(workshop: Path) -> None:
    for seed in range(40):
        rng = Random(seed)
        memory, directory = MemoryLogs(), DirectoryLogs(workshop / str(seed))
        for _ in range(12):
            operation = random_operation(rng)
            operation(memory)
            operation(directory)
            assert answers(memory) == answers(directory), f"seed {seed}"


@pytest.fixture(params=["directory", "memory"])
def logs(request: pytest.FixtureRequest, workshop: Path) -> EngineLogs:
    return DirectoryLogs(workshop / "checkpoint") if request.param == "directory" else MemoryLogs()


def engine(logs: EngineLogs) -> Engine:
    return Engine(logs, Source(ends=(1, 2, 3, 4)), ManualClock())


def test_the_engine_resumes_as_spark_does(logs: EngineLogs) -> None:
    assert engine(logs).resume() == (0, False)
    engine(logs).run(lambda batch: None, until=1)
    assert engine(logs).resume() == (2, False)
    logs.forget_commit(0)
    assert engine(logs).resume() == (2, False), "a lower entry is not looked at"
    logs.forget_commit(1)
    assert engine(logs).resume() == (1, True), "the newest barrier without a commit runs again"
    logs.plan(2, offsets_entry(3, at=ManualClock().now()))
    assert engine(logs).resume() == (2, True), "epoch 1 never runs again"


def test_a_failed_epoch_runs_again_with_the_same_barrier_and_another_computation(logs: EngineLogs) -> None:
    seen = []

    def fails(batch: object) -> None:
        seen.append(batch)
        raise RuntimeError

    for _ in range(2):
        with pytest.raises(RuntimeError):
            Engine(logs, Source(ends=(3,)), ManualClock(), run_name=f"run{len(seen)}").run(fails)
    first, second = seen
    assert (first.epoch, first.ids) == (second.epoch, second.ids) == (0, range(3))
    assert first.version != second.version


def test_the_loser_of_a_commit_is_told(logs: EngineLogs) -> None:
    with pytest.raises(ConcurrentUpdate):
        engine(logs).run(lambda batch: logs.commit(batch.epoch, COMMITS_ENTRY))
