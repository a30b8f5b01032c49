"""Taking a checkpoint back to an earlier epoch: nothing comes twice, and a crash anywhere is finished."""

import os
import shutil
from pathlib import Path

import pytest
from places import NOW, Place, decided_and_unpublished, harm, settled
from town import A, B
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.contracts import Receipt
from onceward.errors import CheckpointRefused, ConfigurationError, DamagedFile
from onceward.identity import Fingerprint, SinkName
from onceward.journal import IdentityFile
from onceward.verify import look, plan_restore, restore


def restored(place: Place, epoch: int, **more: object) -> None:
    plan = plan_restore(place.root, epoch, now=NOW, **more)
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
        rename(source, target)

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
