"""Take, restore and dispose, killed before every step that changes the disk. Run as a process of its own: it forks.

`python savepoint_kills.py FOLDER OPERATION FIRST STEP` prints how many kills it went through: every kill, each followed
by a second one before every STEP-th step from FIRST on (0: by none), and then by nobody. What is wrong ends it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from places import Place

from onceward.journal import IdentityFile
from onceward.savepoints import dispose, list_savepoints, restore_savepoint, take, verify_savepoint
from onceward.savepoints.place import is_savepoint
from onceward.storage import LocalStorage
from onceward.testing import ManualClock
from onceward.verify import look

KILLED = 9
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}


def killed_at(act: Callable[[], object], point: int) -> bool:
    """Do it in a process that dies before its `point`-th change of the disk, as by SIGKILL; False: it came through."""
    child = os.fork()
    if child == 0:
        left = point

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
            if writes or event in _CHANGES:
                if left == 0:
                    os._exit(KILLED)
                left -= 1

        sys.addaudithook(hook)
        try:
            act()
        except BaseException as error:
            print(f"{error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED), f"it failed at point {point}"
    return status == KILLED


class Take:
    """Into a folder that has one savepoint already."""

    def __init__(self, world: Path) -> None:
        self.root, self.folder = world / "checkpoint", world / "saved"

    def act(self) -> None:
        take(self.root, self.folder, clock=ManualClock(), spark="4.3.0")

    def check(self, *, is_done: bool) -> None:
        found = list_savepoints(self.folder)
        assert all(verify_savepoint(one.path)[1] == [] for one in found), "one is not whole"
        assert len(found) >= (2 if is_done else 1)
        assert look(self.root).is_resumable
        if is_done:
            assert sorted(os.listdir(self.folder)) == sorted(one.path.name for one in found), "something is left"


class Restore:
    """Into a directory that is not there."""

    def __init__(self, world: Path) -> None:
        self.target, self.folder = world / "new" / "checkpoint", world / "saved"

    def act(self) -> None:
        # After a kill just behind the rename it is there, whole: nobody would give the command again.
        if not self.target.exists():
            restore_savepoint(list_savepoints(self.folder)[0].path, self.target)

    def check(self, *, is_done: bool) -> None:
        assert verify_savepoint(list_savepoints(self.folder)[0].path)[1] == []
        if self.target.exists():
            record = IdentityFile(LocalStorage(self.target / "onceward")).read()
            assert record is not None
            assert record.restored is not None
            report = look(self.target)
            assert report.is_resumable, report.findings
            assert report.decided == report.published == 1
        if is_done:
            assert os.listdir(self.target.parent) == ["checkpoint"], "something is left"


class Dispose:
    """Of one of two."""

    def __init__(self, world: Path) -> None:
        self.folder = world / "saved"
        self.other, self.path = (one.path for one in list_savepoints(world / "saved"))

    def act(self) -> None:
        # Once it is gone for good the command says so, by an error.
        if self.path.exists() or any(name.startswith(".") for name in os.listdir(self.folder)):
            dispose(self.path)

    def check(self, *, is_done: bool) -> None:
        assert verify_savepoint(self.other)[1] == []
        if is_savepoint(self.path):
            assert verify_savepoint(self.path)[1] == []
        assert not any(
            (self.folder / name / "savepoint.json").exists() and is_savepoint(self.folder / name)
            for name in os.listdir(self.folder)
            if name.startswith(".")
        ), "a hidden one looks whole"
        if is_done:
            assert os.listdir(self.folder) == [self.other.name], "something is left"


OPERATIONS = {"take": Take, "restore": Restore, "dispose": Dispose}


def main(folder: Path, operation: str, first: int, step: int) -> int:
    pristine, world = folder / "pristine", folder / "world"
    place = Place.at(pristine / "checkpoint")
    place.job.life(until=1)
    for _ in range(2 if operation == "dispose" else 1):
        take(place.root, pristine / "saved", clock=ManualClock(), spark="4.3.0")
    kills = 0

    def again(points: tuple[int, ...]) -> bool:
        """From the beginning, with a kill at each of these points in turn, then to the end; False: one was never
        reached."""
        nonlocal kills
        shutil.rmtree(world, ignore_errors=True)
        shutil.copytree(pristine, world)
        subject = OPERATIONS[operation](world)
        for point in points:
            if not killed_at(subject.act, point):
                return False
            kills += 1
            subject.check(is_done=False)
        subject.act()
        subject.check(is_done=True)
        return True

    point = 0
    while again((point,)):
        later = first
        while step and again((point, later)):
            later += step
        point += 1
    assert point > 4, "hardly a step of it was seen"
    return kills


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
