"""Ten thousand ways to change a savepoint's files: each is refused, and nothing of it is ever restored."""

import os
import random
import shutil
from pathlib import Path

import pytest
from places import Place

from onceward.errors import OncewardError
from onceward.savepoints import Taken, restore_savepoint, take, verify_savepoint
from onceward.testing import ManualClock

ALL, SAMPLE = 10_000, 150
SEED = 20261117


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    root = tmp_path_factory.mktemp("mutations")
    place = Place.at(root / "checkpoint")
    place.job.life(until=1)
    # What no fake engine makes: a source with a list, and a file of state that is larger than one piece.
    (place.root / "sources" / "0").mkdir(parents=True)
    (place.root / "sources" / "0" / "0").write_bytes(b"v1\n" + os.urandom(300))
    return take(place.root, root / "saved", clock=ManualClock(), spark="4.3.0")


def mutated(path: Path, chance: random.Random) -> str:
    """Change one thing; what it was."""
    files = sorted(one for one in path.rglob("*") if one.is_file())
    victim, how = chance.choice(files), chance.choice(MUTATIONS)
    data = bytearray(victim.read_bytes())
    place, other = chance.randrange(len(data)), chance.choice(files)
    match how:
        case "flip":
            data[place] ^= 1 << chance.randrange(8)
        case "byte":
            data[place] = (data[place] + chance.randrange(1, 256)) % 256
        case "cut":
            del data[place:]
        case "zeros":
            data[place:] = bytes(len(data) - place) if any(data[place:]) else b"\1"
        case "longer":
            data += bytes(chance.randrange(1, 600))
        case "insert":
            data[place:place] = chance.randbytes(chance.randrange(1, 9))
        case "lose":
            del data[place : place + chance.randrange(1, 9)]
        case "exchange":
            content = other.read_bytes()
            data = bytearray(content if content != bytes(data) else content + b"\n")
    victim.write_bytes(data)
    match how:
        case "remove":
            victim.unlink()
        case "rename":
            victim.rename(victim.with_name(f"{victim.name}0"))
        case "link":
            victim.rename(path.parent / "elsewhere")
            victim.symlink_to(path.parent / "elsewhere")
        case "add":
            (victim.parent / "9").write_bytes(b"v1\n{}")
    return f"{how} {victim.relative_to(path)} at {place}"


MUTATIONS = (
    *("flip", "byte", "cut", "zeros", "longer", "insert", "lose", "exchange"),
    *("remove", "rename", "link", "add"),
)


def refused(saved: Taken, folder: Path, seed: int) -> None:
    copy, new = folder / "copy", folder / "new" / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved.path, copy)
    what = mutated(copy, random.Random(seed))
    try:
        restore_savepoint(copy, new)
    except OncewardError:
        pass
    else:
        pytest.fail(f"seed {seed}: restored after {what}")
    left = os.listdir(new.parent) if new.parent.exists() else []
    assert left == [], f"seed {seed}: {what} left {left}"
    try:
        found = verify_savepoint(copy)[1]
    except OncewardError:
        return
    assert found, f"seed {seed}: verify finds nothing after {what}"


def test_what_was_not_changed_is_restored(saved: Taken, tmp_path: Path) -> None:
    assert verify_savepoint(saved.path)[1] == []
    restore_savepoint(saved.path, tmp_path / "new")


def test_a_savepoint_that_was_changed_is_refused_and_never_half_restored(saved: Taken, workshop: Path) -> None:
    for number in range(SAMPLE):
        refused(saved, workshop / "one", SEED + number)


@pytest.mark.soak
def test_ten_thousand_changed_savepoints_are_refused(saved: Taken, workshop: Path) -> None:
    for number in range(ALL):
        refused(saved, workshop / "one", SEED + number)
