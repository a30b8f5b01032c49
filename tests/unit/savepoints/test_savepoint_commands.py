"""`onceward savepoint` and `onceward stop --savepoint` as people and scripts meet them; going back on purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onceward.cli.app import app
from onceward.contracts import Repeated
from onceward.errors import CheckpointRolledBack
from onceward.identity import JobName
from onceward.savepoints import Savepoint, consequences, list_savepoints, read_savepoint, take
from onceward.sinks import FileSink, SQLiteSink, StdoutSink
from onceward.storage import LocalStorage
from onceward.testing import DirectoryLogs, Harness, ManualClock, SinkUnderTest, Source
from onceward.testing.engine import SCHEMA


class World:
    """A job with files and tables, two epochs of which are in a savepoint, and two more delivered since."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkpoint = folder, folder / "checkpoint"
        self.files = FileSink(folder / "out", format="jsonl")
        self.appended = SQLiteSink(folder / "out.db", table="appended")
        self.upserted = SQLiteSink(folder / "out.db", table="upserted", mode="upsert", keys=["key"])
        sinks = (self.files, self.appended, self.upserted)
        for sink in sinks:
            sink.check(SCHEMA, output_mode="update" if sink is self.upserted else "append")
        self.checkpoint.mkdir()
        (self.checkpoint / "metadata").write_text('{"id":"0d3b4f5e-9a3d-4f39-a5bd-6b3b0c3a9a11"}')
        self.job = Harness(
            *(SinkUnderTest(sink, list) for sink in sinks),
            source=Source(ends=(4, 8, 12, 16)),
            storage=LocalStorage(self.checkpoint / "onceward"),
            logs=DirectoryLogs(self.checkpoint),
        )
        self.job.life(until=1)
        self.path = take(self.checkpoint, folder / "saved", clock=ManualClock(), spark="4.3.0").path
        self.job.life()

    @property
    def savepoint(self) -> Savepoint:
        return read_savepoint(self.path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def said(*arguments: str | Path, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["savepoint", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def test_each_sink_says_what_becomes_of_its_later_epochs(world: World) -> None:
    stdout = StdoutSink()
    found = consequences(world.savepoint, [world.files, world.appended, world.upserted, stdout])
    files, appended, upserted, plain = found
    assert (appended.told, appended.repeated) == ("epochs 2 to 3 (8 rows)", Repeated.DUPLICATES)
    assert "duplicates" in appended.line
    assert (upserted.told, upserted.repeated) == ("epochs 2 to 3 (8 rows)", Repeated.OVERWRITTEN)
    assert not plain.is_known
    assert "no receipts" in plain.line
    named = {path.name for pattern in files.patterns for path in (world.folder / "out").glob(pattern)}
    later = {path for path in world.files.receipts(world.job.context().job) if path.epoch > 1}
    assert len(named) == len(later) == 4
    assert len(list((world.folder / "out").glob("part-*"))) == 8


def test_a_fork_under_another_name_is_told_what_the_first_one_has_in_its_targets(world: World, tmp_path: Path) -> None:
    own = FileSink(tmp_path / "own", format="jsonl")
    *shared, apart = consequences(world.savepoint, [world.files, world.appended, own], name=JobName("fork"))
    assert [(one.told, one.beside) for one in shared] == [("epochs 2 to 3 (8 rows)", "job")] * 2
    assert all("'job' delivers there too: while both run, rows come twice" in one.line for one in shared)
    assert len({path for pattern in shared[0].patterns for path in (world.folder / "out").glob(pattern)}) == 4
    assert (apart.told, apart.beside, apart.line[-13:]) == (None, None, "the savepoint")
    newest = take(world.checkpoint, tmp_path / "saved", clock=ManualClock(), spark="4.3.0").savepoint
    (renamed,) = consequences(newest, [world.appended], name=JobName("fork"))
    assert renamed.told is None
    assert "nothing from after the savepoint; 'job' delivers there too" in renamed.line


def test_list_show_and_verify_say_what_it_is(world: World) -> None:
    assert world.path.name in said("list", world.path.parent).stdout.replace("\n", "")
    listed = json.loads(said("list", world.path.parent, "--json").stdout)
    assert [(one["savepoint"]["epoch"], one["problem"]) for one in listed] == [(1, None)]
    shown = said("show", world.path).stdout
    assert "job after epoch 1" in shown
    assert str(world.checkpoint) in shown.replace("\n", "")
    assert json.loads(said("show", world.path, "--json").stdout)["files"] == 3
    assert said("verify", world.path).stdout.startswith("whole: 3 files")
    assert json.loads(said("verify", world.path, "--json").stdout)["whole"] is True


def test_verify_ends_with_1_where_something_is_wrong(world: World, tmp_path: Path) -> None:
    path = take(world.checkpoint, tmp_path, clock=ManualClock(), spark="4.3.0").path
    (path / "files" / "offsets" / "3").write_text("other")
    assert "error files/offsets/3: it has 5 bytes, and" in said("verify", path, code=1).stdout
    assert json.loads(said("verify", path, "--json", code=1).stdout)["findings"][0]["about"] == "files/offsets/3"
    (path / "savepoint.json").write_text("torn")
    assert "is damaged" in said("list", tmp_path).stdout.replace("\n", " ")


def test_restore_makes_a_checkpoint_and_says_what_the_first_start_will_ask(world: World, tmp_path: Path) -> None:
    assert "the first start does" in said("restore", world.path, tmp_path / "new").stdout
    found = json.loads(said("restore", world.path, tmp_path / "fork", "--name", "fork", "--json").stdout)
    assert (found["job"], found["epoch"], found["sinks"]) == ("fork", 1, [])
    done = CliRunner().invoke(app, ["savepoint", "restore", str(world.path), str(tmp_path / "new")])
    assert "is not empty" in str(done.exception)


JOB = """
from onceward import Job
from onceward.sinks import SQLiteSink

job = Job(
    name={name!r},
    checkpoint="unused",
    pipeline=lambda spark: None,
    sinks=[SQLiteSink({database!r}, table="appended")],
)
"""


def test_with_the_job_named_the_targets_are_asked_before_anything_is_written(world: World, tmp_path: Path) -> None:
    file, new = tmp_path / "job.py", tmp_path / "new"
    file.write_text(JOB.format(name="job", database=str(world.folder / "out.db")))
    arguments = ["savepoint", "restore", str(world.path), str(new), "--job", str(file)]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, CheckpointRolledBack)
    assert "'sqlite:appended' has epochs 2 to 3 (8 rows): the rows of these epochs stay" in done.exception.message
    assert not new.exists()
    done = CliRunner().invoke(app, ["savepoint", "restore", str(world.path), str(tmp_path / "x"), "--accept", "copy"])
    assert "says nothing here" in str(done.exception)
    file.write_text(JOB.format(name="another", database=str(world.folder / "out.db")))
    done = CliRunner().invoke(app, [*arguments[:3], str(tmp_path / "y"), *arguments[4:]])
    assert "--name 'another'" in str(getattr(done.exception, "hint", ""))
    done = CliRunner().invoke(app, [*arguments[:3], str(tmp_path / "y"), *arguments[4:], "--name", "another"])
    assert isinstance(done.exception, CheckpointRolledBack), "a fork into the target of the first job"
    assert "'sqlite:appended' has epochs 2 to 3 (8 rows): the rows of these epochs stay" in done.exception.message
    assert "start the job once" not in str(done.exception.hint), "its first start does not ask"
    assert not (tmp_path / "y").exists()


def test_take_and_dispose_by_the_command(world: World, tmp_path: Path) -> None:
    taken = json.loads(said("take", world.checkpoint, tmp_path / "saved", "--json").stdout)
    assert taken["epoch"] == 3
    assert "removed" in said("dispose", taken["path"]).stdout
    assert list_savepoints(tmp_path / "saved") == []
    file = tmp_path / "job.py"
    file.write_text(JOB.format(name="job", database="x.db").replace('"unused"', repr(str(world.checkpoint))))
    assert "after epoch 3" in said("take", file, tmp_path / "saved").stdout
