"""Every checkpoint committer, through the contract, on real files."""

import os
import pickle
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from onceward.committers import (
    FileCheckpointCommitter,
    MySQLCheckpointCommitter,
    PostgresCheckpointCommitter,
    SQLiteCheckpointCommitter,
)
from onceward.contracts import CheckpointCommitter
from onceward.errors import ConfigurationError, OncewardError
from onceward.identity import Generation, JobIdentity, JobName, SinkName

JOB = JobIdentity(JobName("page views"), Generation("aaaaaaaa"))
SINK = SinkName("stdout")

NUMBERS = count(1)
Make = Callable[[], CheckpointCommitter]


ON_SERVERS = [
    pytest.param(name, marks=pytest.mark.cluster)
    for name in ("postgres", "postgres, hostile table", "mysql", "mysql, hostile table")
]


@pytest.fixture(params=["file", "sqlite", "sqlite with a hostile table", *ON_SERVERS])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A new committer over the same memory: what a restart would have."""
    if request.param.startswith("postgres"):
        server = request.getfixturevalue("postgres")
        table = f'{next(NUMBERS)}_x"; DROP TABLE y; --' if "hostile" in request.param else f"c{next(NUMBERS)}"
        return lambda: PostgresCheckpointCommitter(server.url, table)
    if request.param.startswith("mysql"):
        server = request.getfixturevalue("mariadb")
        table = f"{next(NUMBERS)}_x`; DROP TABLE y; -- %s '" if "hostile" in request.param else f"c{next(NUMBERS)}"
        return lambda: MySQLCheckpointCommitter(server.url, table)
    makers: dict[str, Make] = {
        "file": lambda: FileCheckpointCommitter(tmp_path / "new" / "committed"),
        "sqlite": lambda: SQLiteCheckpointCommitter(tmp_path / "committed.db"),
        "sqlite with a hostile table": lambda: SQLiteCheckpointCommitter(
            tmp_path / "committed.db", 'x"; DROP TABLE y; --'
        ),
    }
    return makers[request.param]


def opened(make: Make, job: JobIdentity = JOB, sink: SinkName = SINK) -> CheckpointCommitter:
    committer: CheckpointCommitter = pickle.loads(pickle.dumps(make()))
    committer.open(job, sink)
    return committer


def test_a_committed_slot_is_remembered_by_the_next_run(make: Make) -> None:
    assert not opened(make).is_checkpoint_committed(0, 7)
    opened(make).commit_checkpoint(0, 7)
    assert opened(make).is_checkpoint_committed(0, 7)


def test_a_commit_repeated_changes_nothing(make: Make) -> None:
    committer = opened(make)
    for _ in range(3):
        committer.commit_checkpoint(0, 7)
        committer.open(JOB, SINK)
    assert committer.is_checkpoint_committed(0, 7)


def test_slot_and_epoch_are_told_apart(make: Make) -> None:
    committer = opened(make)
    committer.commit_checkpoint(1, 11)
    asked = [(1, 11), (11, 1), (1, 1), (11, 11), (1, 12), (0, 11)]
    assert [committer.is_checkpoint_committed(*pair) for pair in asked] == [True] + [False] * 5


@pytest.mark.parametrize(
    ("job", "sink"),
    [
        (JobIdentity(JobName("page views 2"), JOB.generation), SINK),
        (JobIdentity(JOB.name, Generation("bbbbbbbb")), SINK),
        (JOB, SinkName("stdout 2")),
    ],
)
def test_other_jobs_generations_and_sinks_do_not_share_a_memory(make: Make, job: JobIdentity, sink: SinkName) -> None:
    opened(make).commit_checkpoint(0, 7)
    other = opened(make, job, sink)
    assert not other.is_checkpoint_committed(0, 7)
    other.commit_checkpoint(0, 3)
    other.forget(100)
    assert opened(make).is_checkpoint_committed(0, 7)


def test_forgetting_goes_up_to_the_epoch_and_no_further(make: Make) -> None:
    committer = opened(make)
    for epoch in (8, 9, 10):
        committer.commit_checkpoint(0, epoch)
    committer.forget(10)
    assert [committer.is_checkpoint_committed(0, epoch) for epoch in (9, 10)] == [False, True]


def test_a_committer_that_is_not_open_says_so(make: Make) -> None:
    with pytest.raises(OncewardError, match="before it was opened"):
        make().commit_checkpoint(0, 7)


def test_a_crash_before_the_file_has_its_name_leaves_the_slot_uncommitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    committer = FileCheckpointCommitter(tmp_path)
    committer.open(JOB, SINK)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", die)
        with pytest.raises(KeyboardInterrupt):
            committer.commit_checkpoint(0, 7)
    assert not committer.is_checkpoint_committed(0, 7)
    committer.commit_checkpoint(0, 7)
    assert committer.is_checkpoint_committed(0, 7)


def test_a_foreign_file_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    committer = FileCheckpointCommitter(tmp_path)
    committer.open(JOB, SINK)
    (folder,) = tmp_path.iterdir()
    (folder / "notes.txt").touch()
    committer.commit_checkpoint(0, 7)
    committer.forget(100)
    assert os.listdir(folder) == ["notes.txt"]


@pytest.mark.parametrize("folder", ["", "s3://bucket/x"])
def test_a_folder_elsewhere_is_refused(folder: str) -> None:
    with pytest.raises(ConfigurationError):
        FileCheckpointCommitter(folder)


@pytest.mark.parametrize(("path", "table"), [(":memory:", "t"), ("", "t"), ("x.db", ""), ("x.db", "sqlite_x")])
def test_a_memory_that_would_not_last_is_refused(path: str, table: str) -> None:
    with pytest.raises(ConfigurationError):
        SQLiteCheckpointCommitter(path, table)
