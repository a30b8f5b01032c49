"""Scenario 74 on a real ext4: the power is lost before every write of two epochs, and each row still arrives once.

Checkpoint, Spark's logs, files and database all lie in an image that is copied without being unmounted. Un-synced files
are really empty or gone in the copies.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from crash_points import crash_points, install_crash_points
from sink_cases import SMALL, files, sqlite

from onceward.recovery import start
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage
from onceward.testing import DirectoryLogs, Finished, Harness
from onceward.testing.ext4 import MountRefused, PowerLosses, make_image, mounted

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def world(folder: Path) -> Harness:
    return Harness(
        files(folder),
        sqlite(folder),
        source=SMALL,
        storage=LocalStorage(folder / "checkpoint" / "onceward"),
        logs=DirectoryLogs(folder / "checkpoint"),
    )


@pytest.fixture
def disk(workshop: Path, without: Callable[[str], NoReturn]) -> Path:
    """The image, if this machine lets us mount one."""
    try:
        make_image(workshop / "disk.img")
        with mounted(workshop / "disk.img", workshop / "disk"):
            return workshop / "disk.img"
    except MountRefused as refused:
        without(str(refused))


def lose_power_before_every_write(image: Path) -> list[tuple[Path, str]]:
    workshop, copies = image.parent, image.parent / "copies"
    copies.mkdir()
    with mounted(image, workshop / "disk") as folder:
        losses = PowerLosses(image, copies)
        with crash_points(folder, losses):
            assert isinstance(world(folder).life(losses), Finished)
        losses.take("after the end")
    return losses.taken


def what_comes_of(copy: Path, workshop: Path) -> list[str]:
    """Start again on the copy; everything that is wrong then."""
    with mounted(copy, workshop / "again") as folder:
        harness = world(folder)
        ending = harness.life()
        return harness.problems() if isinstance(ending, Finished) else [repr(ending)]


def test_s74_power_lost_before_any_write_on_a_real_ext4(
    disk: Path, monkeypatch: pytest.MonkeyPatch, record_sweep: list[str]
) -> None:
    install_crash_points(monkeypatch, syncs=True)
    taken = lose_power_before_every_write(disk)
    wrong = {when: found for copy, when in taken if (found := what_comes_of(copy, disk.parent))}
    assert not wrong
    record_sweep.append(f"power loss on ext4: {len(taken)} copies of the disk")


def test_s74_without_syncs_and_repair_the_same_power_losses_do_harm(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: this is what was found before."""
    install_crash_points(monkeypatch, syncs=True)
    monkeypatch.setattr(SparkLogs, "sync_barrier", lambda self, epoch: None)
    monkeypatch.setattr(SparkLogs, "sync_decision", lambda self, epoch: None)
    monkeypatch.setattr(start, "repairs_needed", lambda context: [])
    taken = [(copy, when) for copy, when in lose_power_before_every_write(disk) if "wal" in when or "end" in when]
    assert any(what_comes_of(copy, disk.parent) for copy, _ in taken)
