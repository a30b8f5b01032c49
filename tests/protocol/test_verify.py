"""Looking at a checkpoint, judged by what a start then does: the real protocol over logs on disk, without Spark."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import NOW, STATES, Place, decided_and_unpublished, harm, settled
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.contracts import Severity
from onceward.epoch import PublishLimits
from onceward.errors import ConfigurationError, DamagedFile, StorageFailed
from onceward.journal import Resolutions, Retention
from onceward.testing import CrashAt, Crashed, DirectoryLogs, Failed, Finished, ManualClock
from onceward.testing.engine import COMMITS_ENTRY, offsets_entry
from onceward.verify import look, verify
from onceward.verify import look as look_once
from onceward.verify.files import Files


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_what_is_called_resumable_starts_and_what_is_not_does_not(tmp_path: Path, state: object, how: str) -> None:
    """Every file in turn. The start itself is the judge, in both directions."""
    place = Place.at(tmp_path / "checkpoint")
    state(place)
    place.keep()
    fatal = []
    for path in place.files():
        place.put_back()
        harm(place.root / path, how)
        report = look(place.root, targets=place.asked)
        ending = place.job.life()
        if path == "metadata" or (path.startswith(("offsets/", "commits/")) and how == "remove"):
            # Only Spark reads the first, and the barrier before the newest one: tests/spark has it as the judge.
            continue
        assert report.is_resumable is isinstance(ending, Finished), (path, report, ending)
        if not report.is_resumable:
            fatal.append(path)
            assert all(one.fix for one in report.findings)
    assert fatal, "no damage was fatal: the test tests nothing"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # A dead driver closes no file.
def test_a_checkpoint_is_whole_wherever_its_driver_dies(tmp_path: Path) -> None:
    died = 0
    for point in range(0, 400, 7):
        place = Place.at(tmp_path / str(point) / "checkpoint")
        if not isinstance(place.job.life(CrashAt(point)), Crashed):
            break
        died += 1
        for quick in (False, True):
            report = look(place.root, quick=quick)
            assert report.is_resumable, (point, report)
    assert died > 5


def test_kept_segments_are_looked_at_and_stop_nothing(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint", limits=PublishLimits(deadline_s=2.0, keep_published=Retention(epochs=9)))
    settled(place)
    segment = next(place.root.glob("onceward/wal/1/*.arrow"))
    harm(segment, "flip")
    found = look(place.root)
    assert found.is_resumable
    assert [one.about for one in found.findings] == [segment.relative_to(place.root).as_posix()]
    assert look(place.root, quick=True).findings == ()


class Purging(ManualClock):
    """While the verifier waits between two looks, the job goes on."""

    def __init__(self, steps: Iterator[object]) -> None:
        super().__init__()
        self.steps = steps

    def pause(self, seconds: float) -> None:
        next(self.steps, None)


def test_what_vanished_by_a_purge_is_looked_for_again(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    settled(place)
    logs = DirectoryLogs(place.root)
    (place.root / "offsets" / "0").unlink()
    assert not look_once(place.root).is_resumable

    def goes_on() -> Iterator[None]:
        for epoch in (2, 3):
            logs.plan(epoch, offsets_entry(4 * epoch + 4, at=NOW))
            logs.commit(epoch, COMMITS_ENTRY)
        shutil.rmtree(place.root / "onceward")
        yield

    assert verify(place.root, clock=Purging(goes_on())).is_resumable
    (place.root / "offsets" / "2").unlink()
    assert not verify(place.root, clock=Purging(iter(()))).is_resumable


def test_a_checkpoint_that_never_stands_still_is_not_judged(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    logs = DirectoryLogs(place.root)

    def races() -> Iterator[None]:
        for epoch in range(0, 1000, 2):
            logs.plan(epoch, offsets_entry(epoch, at=NOW))
            yield

    clock = Purging(races())
    clock.pause(0)
    clock.pause(0)
    with pytest.raises(StorageFailed, match="changes faster"):
        verify(place.root, clock=clock)


def test_a_quick_look_reads_the_newest_entries_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place.at(tmp_path / "checkpoint")
    for log, text in (("offsets", offsets_entry(4, at=NOW)), ("commits", COMMITS_ENTRY)):
        (place.root / log).mkdir(exist_ok=True)
        (place.root / log / "0").write_text(text)
        for epoch in range(1, 2_000):
            os.link(place.root / log / "0", place.root / log / str(epoch))
    (place.root / "offsets" / "17").unlink()
    (place.root / "offsets" / "17").write_text("torn")
    read: list[str] = []

    def counted(files: Files, path: str) -> bytes | None:
        read.append(path)
        return reads(files, path)

    reads = Files.read
    monkeypatch.setattr(Files, "read", counted)
    report = look(place.root, quick=True)
    quickly = len(read)
    assert report.is_resumable
    assert report.decided == 1999
    assert not [one for one in report.findings if "17" in one.about], "an old entry was read"
    assert quickly < 500  # 100 of each log, with their checksums
    assert [one.about for one in look(place.root).findings if "17" in one.about] == ["offsets/17"]


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigurationError, match="no checkpoint"):
        look(tmp_path)


def test_the_command_says_in_a_table_what_is_wrong_and_ends_with_one(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    place.job.life(until=2)
    command = ["checkpoints", "verify", str(place.root)]
    sound = CliRunner().invoke(app, command)
    assert (sound.exit_code, sound.output) == (0, "this checkpoint can be resumed after epoch 2\n")
    harm(place.root / "offsets" / "1", "remove")
    damaged = CliRunner().invoke(app, command)
    assert damaged.exit_code == 1
    assert "error   offsets/1: " in damaged.output, "whole, to be copied, however narrow the terminal is"
    assert "fix: " in damaged.output
    assert "--epoch 0 --accept rollback` takes it back to epoch 0: epochs 1 to 2 are published" in damaged.output
    document = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert (document["resumable"], document["decided"], document["restore_to"]) == (False, 2, 0)


def test_a_resolution_that_cannot_be_read_stops_a_start_and_is_found(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    settled(place)
    folder = place.root / "onceward" / "resolutions"
    folder.mkdir()
    (folder / "0.json").write_text("torn")
    with pytest.raises(DamagedFile):
        Resolutions(place.job.storage).read()
    report = look(place.root)
    assert [one.severity for one in report.findings] == [Severity.ERROR]
    assert isinstance(place.job.life(), Failed)


def test_random_bytes_in_place_of_any_file_never_raise(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    place = Place.at(tmp_path / "checkpoint")
    decided_and_unpublished(place)
    place.keep()
    for path in place.files():
        place.put_back()
        (place.root / path).write_bytes(chance.randbytes(chance.randrange(200)))
        assert json.dumps(look(place.root).verdict), f"seed {seed}"
