"""A checkpoint on disk with two targets in memory, in every state that a driver leaves it in, and ways to harm it."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from town import DECIDED, Town

from onceward.recovery import Plan, inspect_checkpoint
from onceward.storage import LocalStorage
from onceward.testing import DiesAt, DirectoryLogs, Harness

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
