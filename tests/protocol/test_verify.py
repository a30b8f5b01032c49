"""Looking at a checkpoint, judged by what a start then does: the real protocol over logs on disk, without Spark."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from town import DECIDED, A, B, Town
from typer.testing import CliRunner

from onceward.cli.main import app
from onceward.contracts import Receipt, Severity
from onceward.epoch import PublishLimits
from onceward.errors import CheckpointRefused, ConfigurationError, DamagedFile, StorageFailed
from onceward.identity import Fingerprint, SinkName
from onceward.journal import IdentityFile, Resolutions, Retention
from onceward.recovery import Plan, inspect_checkpoint
from onceward.storage import LocalStorage
from onceward.testing import CrashAt, Crashed, DiesAt, DirectoryLogs, Failed, Finished, Harness, ManualClock
from onceward.testing.engine import COMMITS_ENTRY, offsets_entry
from onceward.verify import look, plan_restore, restore, verify
from onceward.verify import look as look_once
from onceward.verify.files import Files

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@dataclass
class Place:
    """A checkpoint on disk with two targets in memory, and a copy of all of it."""

    root: Path
    town: Town
    job: Harness

    @classmethod
    def at(cls, root: Path, **options: object) -> "Place":
        town = Town()
        root.mkdir(parents=True)
        (root / "metadata").write_text('{"id":"0d3b4f5e-9a3d-4f39-a5bd-6b3b0c3a9a11"}')
        job = town.job(storage=LocalStorage(root / "onceward"), logs=DirectoryLogs(root), **options)
        return cls(root, town, job)

    def keep(self) -> None:
        shutil.copytree(self.root, self.root.with_name("kept"))
        self.targets = {name: target.backup() for name, target in self.town.targets.items()}

    def put_back(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.root.with_name("kept"), self.root)
        for name, target in self.town.targets.items():
            target.restore(self.targets[name])

    def asked(self) -> Plan:
        job = self.job
        return inspect_checkpoint(
            sinks=job.sinks, storage=job.storage, decisions=job.logs, directory_id=job.directory_id, clock=job.clock
        )

    def files(self) -> list[str]:
        return sorted(p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file())


def decided_and_unpublished(place: Place) -> None:
    place.job.life(until=1)
    place.job.life(DiesAt("log commit 2", after=True))


def taken_over_and_decided(place: Place) -> None:
    place.job.life(until=0)
    place.job.life(DiesAt(DECIDED))
    place.job.life(DiesAt(DECIDED, after=True))


def undecided(place: Place) -> None:
    place.job.life(until=1)
    place.job.life(DiesAt("log commit 2"))


def settled(place: Place) -> None:
    place.job.life(until=1)


def decision_forgotten(place: Place) -> None:
    place.job.life(until=1)
    place.job.logs.forget_commit(1)


STATES = [decided_and_unpublished, taken_over_and_decided, undecided, settled, decision_forgotten]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_what_is_called_resumable_starts_and_what_is_not_does_not(tmp_path: Path, state: object, how: str) -> None:
    """Every file in turn. The start itself is the judge, in both directions."""
    place = Place.at(tmp_path / "checkpoint")
    state(place)  # type: ignore[operator]
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


def harm(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    match how:
        case "remove":
            path.unlink()
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "flip":
            data[-2] ^= 1
            path.write_bytes(data)


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


def restored(place: Place, epoch: int, **more: object) -> None:
    plan = plan_restore(place.root, epoch, now=NOW, **more)  # type: ignore[arg-type]
    restore(place.root, plan, by="ann@host", at=NOW, because="a disk went bad")


def test_restoring_above_the_watermark_delivers_every_row_once(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    decided_and_unpublished(place)
    restored(place, 1)
    assert look(place.root).is_resumable
    place.town.drained(place.job)
    assert place.town.ids(A) == place.town.ids(B) == list(range(12))


def test_restoring_to_just_before_the_watermark_delivers_every_row_once(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    settled(place)
    restored(place, 0)
    assert look(place.root).is_resumable
    place.town.drained(place.job)
    assert place.town.ids(A) == place.town.ids(B) == list(range(12))


def test_restoring_below_the_watermark_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    place.job.life(until=2)
    before = place.files()
    with pytest.raises(CheckpointRefused, match="epochs 1 to 2 are published already"):
        restored(place, 0)
    assert place.files() == before


def test_receipts_count_where_no_marker_tells_yet(tmp_path: Path) -> None:
    """Epoch 2 is decided and in a target, and not settled; the one before it is what the watermark says."""
    place = Place.at(tmp_path / "checkpoint")
    decided_and_unpublished(place)
    record = IdentityFile(place.job.storage).read()
    assert record is not None
    barrier = place.job.logs.barrier(2)
    assert barrier is not None

    def receipt(fingerprint: Fingerprint) -> Receipt:
        return Receipt(record.job, record.generation, SinkName("a"), 2, 0, fingerprint)

    with pytest.raises(CheckpointRefused, match="epochs 1 to 2"):
        plan_restore(place.root, 0, now=NOW, receipts=(receipt(barrier.fingerprint),))
    with pytest.raises(CheckpointRefused, match="epoch 2 is"):
        plan_restore(place.root, 1, now=NOW, receipts=(receipt(Fingerprint("other")),))
    assert plan_restore(place.root, 1, now=NOW, receipts=(receipt(barrier.fingerprint),)).repeated is None


def test_a_restore_that_dies_anywhere_is_finished_by_giving_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.at(tmp_path / "checkpoint")
    decided_and_unpublished(place)
    for number in (1, 2, 3, 4):
        folder = place.root / "state" / "0" / "0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.delta").write_bytes(b"LZ4Block\x15" + bytes(12))
        (folder / f".{number}.delta.crc").write_bytes(b"none")
    place.keep()
    plan = plan_restore(place.root, 0, now=NOW, accepts_rollback=True)
    assert [path.split("/")[0] for path in plan.moves] == [*["state"] * 6, "commits", "commits", "offsets"]
    assert [path for path in plan.moves if "/." not in path] == [
        *(f"state/0/0/{version}.delta" for version in (4, 3, 2)),
        *("commits/2", "commits/1", "offsets/2"),
    ], "not from the top"
    rename, left = os.rename, 0

    def dies(source: object, target: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        rename(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", dies)
    ended: list[list[str]] = []
    for crash in range(20):
        place.put_back()
        left = crash
        try:
            restored(place, 0, accepts_rollback=True)
            is_done = True
        except KeyboardInterrupt:
            left, is_done = 1000, False
            assert "restore to epoch 0 was begun" in str(look(place.root).findings)
            with pytest.raises(ConfigurationError, match="not finished"):
                restored(place, 1)
            restored(place, 0)
        ended.append([path for path in place.files() if "removed-" not in path])
        assert (place.root / "onceward").exists()
        if is_done:
            break
    assert len(ended) > 5
    assert all(one == ended[0] for one in ended), "a crash left something else behind"
    assert not [path for path in ended[0] if path.startswith(("state/0/0/2", "state/0/0/3", "commits/1", "offsets/2"))]
    aside = next(place.root.glob("onceward/removed-*/"))
    shutil.copytree(aside, place.root, dirs_exist_ok=True)
    kept = place.root.with_name("kept")
    assert {p for p in place.files() if "removed-" not in p} == {
        path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()
    }, "what was moved aside is not the way back"


def test_the_command_says_in_a_table_what_is_wrong_and_ends_with_one(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    place.job.life(until=2)
    command = ["checkpoints", "verify", str(place.root)]
    sound = CliRunner().invoke(app, command)
    assert (sound.exit_code, sound.output) == (0, "this checkpoint can be resumed after epoch 2\n")
    harm(place.root / "offsets" / "1", "remove")
    damaged = CliRunner().invoke(app, command)
    assert damaged.exit_code == 1
    assert "offsets/1" in damaged.output
    assert "--epoch 0 --accept rollback` takes it back to epoch 0: epochs 1 to 2 are published" in damaged.output
    document = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert (document["resumable"], document["decided"], document["restore_to"]) == (False, 2, 0)


def test_nothing_is_restored_without_a_yes_and_a_reason(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    settled(place)
    before = place.files()
    command = ["checkpoints", "restore", str(place.root), "--epoch", "0"]
    assert CliRunner().invoke(app, command, input="n\n").exit_code == 1
    assert isinstance(CliRunner().invoke(app, [*command, "--yes"]).exception, ConfigurationError)
    assert isinstance(CliRunner().invoke(app, [*command, "--accept", "copy"]).exception, ConfigurationError)
    assert place.files() == before
    assert CliRunner().invoke(app, [*command, "--yes", "--because", "a disk"]).exit_code == 0
    assert place.files() != before


def test_a_restore_is_refused_where_the_epoch_is_not_whole(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    place.job.life(until=2)
    harm(place.root / "commits" / "1", "remove")
    with pytest.raises(DamagedFile, match="commits/1"):
        plan_restore(place.root, 1, now=NOW, accepts_rollback=True)
    with pytest.raises(ConfigurationError, match="not before the newest"):
        plan_restore(place.root, 2, now=NOW)


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
