"""Savepoints over the real protocol without Spark: taken, restored, forked, refused, and nothing comes by halves."""

import importlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from places import Place, decided_and_unpublished, harm
from town import A, B

from onceward.errors import (
    CheckpointReplaced,
    CheckpointRolledBack,
    ConfigurationError,
    DamagedFile,
    NewerFormat,
    OncewardError,
    StorageFailed,
)
from onceward.identity import JobName
from onceward.journal import IdentityFile, seal
from onceward.recovery import Accept
from onceward.savepoints import (
    Savepoint,
    Taken,
    dispose,
    list_savepoints,
    read_savepoint,
    restore_savepoint,
    take,
    verify_savepoint,
)
from onceward.savepoints.copying import Pace
from onceward.savepoints.document import CONTENT, FILE, KIND
from onceward.storage import LocalStorage, directory_id_of
from onceward.testing import Behaviour, DirectoryLogs, Failed, Finished, Harness, ManualClock

ENDS = (4, 8, 12, 16, 20)
take_module = importlib.import_module("onceward.savepoints.take")


def begun(tmp_path: Path, *, until: int = 1) -> Place:
    place = Place.at(tmp_path / "checkpoint", ends=ENDS)
    place.job.life(until=until)
    return place


def taken(place: Place, folder: Path) -> Taken:
    return take(place.root, folder, clock=ManualClock(), spark="4.3.0", pace=Pace(1))


def restored(place: Place, path: Path, root: Path, **more: str) -> Harness:
    """A job on the restored checkpoint, with the targets of the first one."""
    restore_savepoint(path, root, **more)
    name = more.get("name", "job")
    place_id = directory_id_of(root / "onceward")
    return place.town.job(
        ends=ENDS, storage=LocalStorage(root / "onceward"), logs=DirectoryLogs(root), directory_id=place_id, name=name
    )


def tree(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def resealed(path: Path, **changed: object) -> None:
    """As someone hostile would: with a checksum that is right."""
    document = json.loads((path / FILE).read_bytes().split(b"\n", 1)[1])
    (path / FILE).write_bytes(seal(KIND, {**document, **changed}))


def test_a_restored_checkpoint_goes_on_where_the_first_one_stopped(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    shutil.rmtree(place.root)
    job = restored(place, one.path, tmp_path / "elsewhere" / "new")
    assert isinstance(job.life(), Finished)
    assert place.town.ids(A) == place.town.ids(B) == list(range(20))


def test_a_savepoint_says_where_it_comes_from_and_is_found_in_its_folder(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one, two = taken(place, tmp_path / "saved"), taken(place, tmp_path / "saved")
    record = IdentityFile(place.job.storage).read()
    assert record is not None
    assert re.fullmatch(r"savepoint-job-1-[a-z2-7]{8}", one.path.name)
    assert (one.savepoint.job, one.savepoint.epoch, one.savepoint.generation) == ("job", 1, record.generation)
    assert read_savepoint(one.path) == one.savepoint
    assert set(one.savepoint.sinks) == {A, B}
    assert sorted(one.savepoint.files) == ["commits/1", "offsets/0", "offsets/1"]
    assert {listed.path for listed in list_savepoints(tmp_path / "saved")} == {one.path, two.path}
    assert verify_savepoint(one.path)[1] == []


def test_what_is_decided_and_not_published_is_not_in_a_savepoint(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    decided_and_unpublished(place)
    assert taken(place, tmp_path / "saved").savepoint.epoch == 1


def test_nothing_published_yet_and_no_checkpoint_of_ours_are_refused(tmp_path: Path) -> None:
    place = Place.at(tmp_path / "checkpoint")
    (place.root / "onceward").mkdir()
    with pytest.raises(ConfigurationError, match="never run"):
        taken(place, tmp_path / "saved")
    place.job.life(until=0)
    with pytest.raises(ConfigurationError, match="inside the checkpoint"):
        taken(place, place.root / "saved")
    one = taken(place, tmp_path / "saved")
    with pytest.raises(ConfigurationError, match="is a savepoint"):
        taken(place, one.path)


def test_targets_with_later_epochs_are_refused_by_name_until_accepted_and_then_come_twice_as_was_said(
    tmp_path: Path,
) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    place.job.life(until=3)
    job = restored(place, one.path, tmp_path / "new")
    ended = job.life()
    assert isinstance(ended, Failed)
    assert isinstance(ended.error, CheckpointRolledBack)
    assert "savepoint of epoch 1" in ended.error.message
    assert "sink 'a' has epochs 2 to 3 (8 rows)" in ended.error.message
    assert "--accept rollback" in str(ended.error.hint)
    assert place.town.ids(A) == list(range(16)), "a refused start delivered something"
    assert isinstance(job.life(behaviour=Behaviour(accepted=frozenset({Accept.ROLLBACK}))), Finished)
    assert place.town.ids(A) == place.town.ids(B) == sorted([*range(20), *range(8, 16)])
    assert isinstance(job.life(), Finished), "what was accepted once is asked again"


def test_of_a_generation_that_the_savepoint_does_not_know_later_epochs_are_told_too(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    first = restored(place, one.path, tmp_path / "first")
    first.life(until=2)
    shutil.rmtree(tmp_path / "first")
    ended = restored(place, one.path, tmp_path / "second").life()
    assert isinstance(ended, Failed)
    assert isinstance(ended.error, CheckpointRolledBack)
    assert "sink 'b' has epoch 2" in ended.error.message


def test_an_unknown_generation_without_later_epochs_is_still_another_checkpoints(tmp_path: Path) -> None:
    place = begun(tmp_path, until=0)
    old = taken(place, tmp_path / "saved")
    place.job.life(until=2)
    late = taken(place, tmp_path / "saved")
    fork = restored(place, old.path, tmp_path / "fork")
    fork.life(until=1, behaviour=Behaviour(accepted=frozenset({Accept.ROLLBACK})))
    ended = restored(place, late.path, tmp_path / "new").life()
    assert isinstance(ended, Failed)
    assert isinstance(ended.error, CheckpointReplaced)


def test_a_fork_under_another_name_lives_beside_its_parent_and_neither_sees_the_other(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    fork = restored(place, one.path, tmp_path / "fork", name="fork")
    for until in (2, 3, 4):
        assert not isinstance(place.job.life(until=until), Failed)
        assert not isinstance(fork.life(until=until), Failed)
    assert place.town.ids(A) == sorted([*range(20), *range(8, 20)])
    records = [IdentityFile(LocalStorage(root / "onceward")).read() for root in (place.root, tmp_path / "fork")]
    mine, forks = (record for record in records if record is not None)
    assert mine.generation != forks.generation
    assert mine.query != forks.query
    assert mine.generation in forks.known
    sink = place.job.sinks[1]
    assert {r.generation for r in sink.receipts(mine.identity)} == {mine.generation}
    assert {r.generation for r in sink.receipts(forks.identity)} == {forks.generation}


def test_a_savepoint_of_a_restored_checkpoint_names_its_parent(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    job = restored(place, one.path, tmp_path / "new")
    again = take(tmp_path / "new", tmp_path / "saved", clock=ManualClock(), spark="4.3.0")
    assert again.savepoint.parent is not None
    assert (again.savepoint.parent.savepoint, again.savepoint.parent.epoch) == (one.savepoint.id, 1)
    assert again.savepoint.epoch == 1
    job.life(until=3)
    later = take(tmp_path / "new", tmp_path / "saved", clock=ManualClock(), spark="4.3.0")
    assert (later.savepoint.epoch, later.savepoint.parent) == (3, again.savepoint.parent)


def test_a_directory_that_has_anything_in_it_is_never_restored_into(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one = taken(place, tmp_path / "saved")
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    before = tree(tmp_path)
    for target in (full, full / "mine", place.root, one.path, one.path / "in", tmp_path):
        with pytest.raises(ConfigurationError):
            restore_savepoint(one.path, target)
    assert tree(tmp_path) == before
    (tmp_path / "empty").mkdir()
    restore_savepoint(one.path, tmp_path / "empty")
    assert (tmp_path / "empty" / "onceward" / "identity.json").is_file()


@pytest.mark.parametrize("how", ["remove", "cut", "flip"])
def test_a_damaged_file_is_found_by_verify_and_nothing_of_it_is_restored(tmp_path: Path, how: str) -> None:
    one = taken(begun(tmp_path), tmp_path / "saved")
    kept = tmp_path / "kept"
    shutil.copytree(one.path, kept)
    for name in sorted(tree(one.path)):
        shutil.rmtree(one.path)
        shutil.copytree(kept, one.path)
        harm(one.path / name, how)
        with pytest.raises((DamagedFile, ConfigurationError)):
            restore_savepoint(one.path, tmp_path / "new")
        assert not (tmp_path / "new").exists()
        try:
            _, wrong = verify_savepoint(one.path)
            assert [finding.about for finding in wrong] == [name]
        except (DamagedFile, ConfigurationError):
            assert name == FILE
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_s72_a_hostile_savepoint_leads_nowhere(tmp_path: Path) -> None:
    """Its checksums are right; its names lead out of it, or to things that are no files."""
    one = taken(begun(tmp_path), tmp_path / "saved")
    secret = tmp_path / "secret"
    secret.write_text("x")
    files = json.loads((one.path / FILE).read_bytes().split(b"\n", 1)[1])["files"]
    names = ["../../secret", str(secret), "state/../../secret", "state/0/../../x", "onceward/identity.json", "metadata"]
    names += ["state/.hidden", "state//x", "state/a\\b", "state/a\0b", "offsets/7", "state", "", "state/0/\n", ".."]
    sizes = ([-1, "00000000"], [1 << 60, "00000000"], [1, "0"], [True, "00000000"], "x", 3, [1])
    listings: list[object] = [{}, [], {"offsets/1": [1, "00000000"]}]
    listings += [{**files, name: [1, "00000000"]} for name in names]
    listings += [{**files, "state/x": size} for size in sizes]
    for wrong in listings:
        resealed(one.path, files=wrong)
        with pytest.raises(DamagedFile):
            restore_savepoint(one.path, tmp_path / "new")
    for outside in ("../../secret", str(secret), "state/../../secret", "onceward/identity.json", "state//x"):
        resealed(one.path, files={**files, outside: [1, "00000000"]})
        with pytest.raises(DamagedFile):
            read_savepoint(one.path)
    resealed(one.path, files={**files, "state/a": [0, "00000000"], "state/a/b": [0, "00000000"]})
    with pytest.raises(DamagedFile, match="as a file and as a folder"):
        restore_savepoint(one.path, tmp_path / "new")
    deep = "[" * 100_000 + "]" * 100_000
    (one.path / FILE).write_bytes(seal(KIND, {}).split(b"\n")[0] + b"\n" + deep.encode())
    with pytest.raises(DamagedFile):
        restore_savepoint(one.path, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert secret.read_text() == "x"


@pytest.mark.parametrize("kind", ["link", "folder link", "pipe", "folder", "unlisted", "unlisted link"])
def test_s72_links_pipes_and_strangers_in_a_savepoint_are_refused(tmp_path: Path, kind: str) -> None:
    one = taken(begun(tmp_path), tmp_path / "saved")
    victim, outside = one.path / CONTENT / "offsets" / "1", tmp_path / "outside"
    shutil.copytree(one.path / CONTENT / "offsets", outside)
    match kind:
        case "link":
            victim.unlink()
            victim.symlink_to(outside / "1")
        case "folder link":
            shutil.rmtree(victim.parent)
            victim.parent.symlink_to(outside)
        case "pipe":
            victim.unlink()
            os.mkfifo(victim)
        case "folder":
            victim.unlink()
            victim.mkdir()
        case "unlisted":
            (one.path / "mine").write_text("x")
        case "unlisted link":
            (one.path / "mine").symlink_to(outside)
    with pytest.raises(OncewardError):
        restore_savepoint(one.path, tmp_path / "new")
    assert verify_savepoint(one.path)[1] != []
    if "unlisted" in kind or "folder link" in kind:
        with pytest.raises(ConfigurationError, match="no part of the savepoint"):
            dispose(one.path)
    else:
        dispose(one.path)
    assert sorted(path.name for path in outside.iterdir()) == ["0", "1"], "a link was followed"
    assert not (tmp_path / "new").exists()


def test_dispose_removes_a_savepoint_and_nothing_else(tmp_path: Path) -> None:
    place = begun(tmp_path)
    one, two = taken(place, tmp_path / "saved"), taken(place, tmp_path / "saved")
    assert dispose(one.path) == one.savepoint
    assert [path.name for path in (tmp_path / "saved").iterdir()] == [two.path.name]
    for path in (one.path, place.root, tmp_path / "saved", tmp_path / "nowhere" / "x"):
        with pytest.raises(ConfigurationError):
            dispose(path)
    link = tmp_path / "link"
    link.symlink_to(two.path)
    with pytest.raises(ConfigurationError):
        dispose(link)
    assert verify_savepoint(two.path)[1] == []


def test_a_newer_format_is_named_as_such(tmp_path: Path) -> None:
    one = taken(begun(tmp_path), tmp_path / "saved")
    data = (one.path / FILE).read_bytes().replace(b"onceward savepoint 1 ", b"onceward savepoint 2 ", 1)
    (one.path / FILE).write_bytes(data)
    with pytest.raises(NewerFormat):
        read_savepoint(one.path)
    assert [listed.savepoint for listed in list_savepoints(tmp_path / "saved")] == [None]


def test_what_is_purged_while_it_is_copied_makes_the_take_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job goes on meanwhile, and Spark lets go of the epoch that is being copied."""
    place = begun(tmp_path)
    copy, left = take_module.copy_file, [3, 4]

    def goes_on(*arguments: object) -> object:
        if left:
            place.job.life(until=left.pop(0))
            place.job.logs.purge(place.job.logs.planned() - 1)
        return copy(*arguments)

    monkeypatch.setattr(take_module, "copy_file", goes_on)
    one = taken(place, tmp_path / "saved")
    assert one.savepoint.epoch == 3, "not the epoch that was still there at the second attempt"
    assert verify_savepoint(one.path)[1] == []
    assert list((tmp_path / "saved").iterdir()) == [one.path], "an attempt left something behind"


def test_an_epoch_that_is_gone_once_all_of_it_is_copied_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state may have been half gone before its barrier: the take begins again."""
    place = begun(tmp_path)
    copied, left = take_module._Taker._copied, [3]

    def purges(*arguments: object) -> object:
        found = copied(*arguments)
        if left:
            place.job.life(until=left.pop())
            place.job.logs.purge(place.job.logs.planned() - 1)
        return found

    monkeypatch.setattr(take_module._Taker, "_copied", purges)
    assert taken(place, tmp_path / "saved").savepoint.epoch == 3


def test_a_job_that_is_faster_than_the_copy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before the copy was as fast as it can be."""
    place = begun(tmp_path)
    number, shares = iter(range(1000)), list[float]()

    def vanishes(source: int, target: Path, count: object, pace: Pace) -> object:
        shares.append(pace.share)
        raise FileNotFoundError(2, "gone", str(next(number)))

    monkeypatch.setattr(take_module, "copy_file", vanishes)
    with pytest.raises(StorageFailed, match="faster than it can be copied"):
        take(place.root, tmp_path / "saved", clock=ManualClock(), spark="4.3.0", pace=Pace(1, 0.2))
    assert shares[:5] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert list((tmp_path / "saved").iterdir()) == []


def test_a_name_with_odd_letters_makes_a_plain_directory(tmp_path: Path) -> None:
    place = begun(tmp_path)
    record = IdentityFile(place.job.storage).read()
    assert record is not None
    odd = JobName("a b é: ..\u202e*" + "x" * 150)
    IdentityFile(place.job.storage).create(replace(record, number=1, job=odd))
    one = taken(place, tmp_path / "saved")
    assert re.fullmatch(r"savepoint-[A-Za-z0-9._-]{80}-1-[a-z2-7]{8}", one.path.name)
    assert isinstance(read_savepoint(one.path), Savepoint)
    assert read_savepoint(one.path).job == odd
