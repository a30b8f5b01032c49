"""Random truncations and flipped bits in every kind of file we keep: each is refused or harmless, and none is believed.

Scenarios 58, 62 and 63 of docs/scenarios.md. A history is stopped by one or two crashes, one file of its checkpoint is
damaged, and a driver starts. Either it stops with an error of ours, nothing wrong is visible, and all is well once the
file is restored; or it finishes, and the audit is clean.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from sink_cases import fake

from onceward.errors import DamagedFile, OncewardError
from onceward.testing import (
    CrashAt,
    DirectoryLogs,
    Failed,
    FakeTransactionalSink,
    FakeTwoPhaseSink,
    Finished,
    Harness,
    MemoryStorage,
    Source,
)
from onceward.testing.engine import COMMITS_ENTRY

DAMAGES = 1_200
SOURCE = Source(ends=(4, 8), keys=3)


def stopped_history(rng: Random) -> tuple[Harness, MemoryStorage]:
    """A checkpoint in the middle of its life, often with a takeover in it."""
    storage = MemoryStorage()
    harness = Harness(fake(FakeTwoPhaseSink), fake(FakeTransactionalSink), source=SOURCE, storage=storage)
    harness.life(CrashAt(rng.randrange(12, 68)))
    if rng.random() < 0.6:
        harness.life(CrashAt(rng.randrange(2, 50)))
    return harness, storage


def damaged(rng: Random, data: bytes) -> bytes:
    """Cut short, or with one to three bits flipped."""
    if not data or rng.random() < 0.4:
        return data[: rng.randrange(len(data))] if data else data
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def kind_of(path: str) -> str:
    folder = path.partition("/")[0]
    return path.rpartition(".")[2] if folder == "manifests" else folder.partition(".")[0]


def visible_harm(harness: Harness) -> list[str]:
    """What must not be there even in a job that has stopped."""
    audits = harness.audits()
    return [f"{name}: {a}" for name, a in audits.items() if a.duplicate or a.foreign or a.mixed or a.disordered]


@pytest.mark.parametrize("part", range(4))
def test_no_damaged_file_is_believed(part: int, record_sweep: list[str]) -> None:
    counts: Counter[str] = Counter()
    for seed in range(part * DAMAGES // 4, (part + 1) * DAMAGES // 4):
        rng = Random(seed)
        harness, storage = stopped_history(rng)
        kinds = sorted({kind_of(path) for path in storage.files})
        chosen = rng.choice(kinds)
        path = rng.choice(sorted(path for path in storage.files if kind_of(path) == chosen))
        before = storage.files[path]
        after = storage.files[path] = damaged(rng, before)
        ending = harness.life()
        if isinstance(ending, Finished):
            assert not harness.problems(), f"seed {seed}: {path} was damaged and believed: {harness.problems()}"
            counts["harmless"] += 1
        else:
            assert isinstance(ending, Failed), f"seed {seed}, {path}: {ending}"
            assert isinstance(ending.error, OncewardError), f"seed {seed}, {path}: {ending}"
            assert not visible_harm(harness), f"seed {seed}, {path}: {visible_harm(harness)}"
            assert storage.files.get(path, after) == after, f"seed {seed}: {path} was written over"
            storage.files[path] = before
            harness.drain()
            assert not harness.problems(), f"seed {seed}, {path} restored: {harness.problems()}"
            counts["refused"] += 1
        counts[chosen] += 1
    assert {"identity", "wal", "json", "settled", "fate", "reserved", "refused", "harmless"} <= set(counts)
    record_sweep.append("disk faults: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))


@pytest.mark.parametrize("log", ["offsets", "commits"])
@pytest.mark.parametrize("keep", [0, 1, 2])
def test_s58_a_torn_entry_of_sparks_logs_is_put_back(log: str, keep: int, workshop: Path) -> None:
    logs = DirectoryLogs(workshop)
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE, logs=logs)
    harness.life(until=0)
    entry = workshop / log / "0"
    whole = entry.read_text()
    entry.write_text(whole[:keep])
    harness.drain()
    assert entry.read_text() == whole
    assert harness.problems() == []


def test_s58_a_torn_barrier_of_which_nothing_is_known_is_refused(workshop: Path) -> None:
    logs = DirectoryLogs(workshop)
    logs.plan(0, "")
    logs.commit(0, COMMITS_ENTRY)
    with pytest.raises(DamagedFile, match="offsets/0 is empty or torn"):
        logs.barrier(0)


def test_s58_a_gap_in_sparks_logs_changes_nothing(workshop: Path) -> None:
    logs = DirectoryLogs(workshop)
    harness = Harness(fake(FakeTwoPhaseSink), source=Source(ends=(4, 8, 12, 16)), logs=logs)
    harness.life(until=2)
    (workshop / "commits" / "1").unlink()
    (workshop / "offsets" / "0").unlink()
    harness.drain()
    assert harness.problems() == []


def test_s63_a_manifest_of_a_newer_version_is_refused_and_named() -> None:
    storage = MemoryStorage()
    harness = Harness(fake(FakeTwoPhaseSink), source=SOURCE, storage=storage)
    point = next(p for p in range(100) if _crashes_with_manifest(p))
    harness.life(CrashAt(point))
    path = next(path for path in storage.files if path.startswith("manifests/"))
    storage.files[path] = storage.files[path].replace(b"onceward manifest 2", b"onceward manifest 3")
    ending = harness.life()
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, DamagedFile)
    assert "version 3" in str(ending.error)
    assert "upgrade" in str(ending.error)


def _crashes_with_manifest(point: int) -> bool:
    storage = MemoryStorage()
    Harness(fake(FakeTwoPhaseSink), source=SOURCE, storage=storage).life(CrashAt(point))
    return any(path.startswith("manifests/") for path in storage.files)
