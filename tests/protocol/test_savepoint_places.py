"""What others do meanwhile: what a crash left goes, what somebody works in stays, what is replaced is not mixed."""

import importlib
import os
from pathlib import Path

import pytest
from test_savepoints import begun, taken

from onceward.errors import ConfigurationError, DamagedFile
from onceward.savepoints import place
from onceward.savepoints.place import remove_left, unfinished
from onceward.testing import DiesAt, Finished


def left_by_a_crash(folder: Path, name: str = "x") -> Path:
    """A hidden folder that nobody holds any more."""
    with unfinished(folder, name) as one:
        kept = one.path.rename(folder / "kept")
    return kept.rename(one.path)


@pytest.fixture
def on_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "has_stable_inodes", lambda folder: False)


def test_what_somebody_works_in_stays_and_what_a_crash_left_goes(tmp_path: Path) -> None:
    left = left_by_a_crash(tmp_path)
    with unfinished(tmp_path, "mine") as one:
        assert remove_left(tmp_path) == []
        assert os.listdir(tmp_path) == [one.path.name]
    assert not left.exists()


@pytest.mark.usefixtures("on_a_network")
def test_what_another_host_works_in_on_a_network_file_system_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS has no locks of folders but within one host: it looks there as if nobody held it."""
    there = left_by_a_crash(tmp_path)
    (tmp_path / "another").write_text("another boot")
    monkeypatch.setattr(place, "_BOOT", tmp_path / "another")
    assert remove_left(tmp_path) == []
    assert there.is_dir()
    here = left_by_a_crash(tmp_path)
    assert remove_left(tmp_path) == [here.name]


def test_after_a_power_loss_what_is_left_on_a_disk_goes_though_the_kernel_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = left_by_a_crash(tmp_path)
    monkeypatch.setattr(place, "_BOOT", tmp_path / "cannot be read")
    assert remove_left(tmp_path) == [left.name]


def test_a_checkpoint_that_is_taken_back_and_goes_on_while_it_is_copied_makes_no_savepoint_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State of format 1 has one name for each version: that of the first computation, then that of the second."""
    job = begun(tmp_path)
    module, left = importlib.import_module("onceward.savepoints.take"), [job.root / "offsets" / "1"]
    copy = module.copy_file

    def replaced(*arguments: object) -> object:
        saved = copy(*arguments)
        if left and arguments[1].name == "1":
            barrier = left.pop()
            barrier.write_text(barrier.read_text().replace('"batchTimestampMs":', '"batchTimestampMs":9'))
        return saved

    monkeypatch.setattr(module, "copy_file", replaced)
    with pytest.raises(DamagedFile, match="settled with other source rows"):
        taken(job, tmp_path / "saved")
    assert not left
    assert os.listdir(tmp_path / "saved") == []


@pytest.mark.parametrize("linked", ["offsets", "sources/0"])
def test_a_folder_of_the_checkpoint_that_is_a_link_is_named(tmp_path: Path, linked: str) -> None:
    """Somebody has put the state on a faster disk. No link is followed, and nothing half is left."""
    place = begun(tmp_path)
    (place.root / "sources" / "0").mkdir(parents=True)
    (place.root / "sources" / "0" / "0").write_text("v1\n{}")
    (place.root / linked).rename(tmp_path / "elsewhere")
    (place.root / linked).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match=f"{linked} is a link") as caught:
        taken(place, tmp_path / "saved")
    assert "mount" in str(caught.value.hint)
    assert list((tmp_path / "saved").iterdir()) == []


def test_an_epoch_of_which_spark_has_let_go_while_later_ones_wait_is_no_damage(tmp_path: Path) -> None:
    place = begun(tmp_path)
    place.job.life(DiesAt("log commit 2", after=True))
    place.job.logs.purge(2)
    with pytest.raises(ConfigurationError, match="Spark has let go of epoch 1") as caught:
        taken(place, tmp_path / "saved")
    assert "start the job" in str(caught.value.hint)
    assert isinstance(place.job.life(until=3), Finished)
    assert taken(place, tmp_path / "saved").savepoint.epoch == 3
