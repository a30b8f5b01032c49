"""Which checkpoints are shown: those that were named, and all in the folders that were."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceward.epoch import PublishLimits, RunContext
from onceward.storage import local_path

if TYPE_CHECKING:
    from onceward.api.served import Served

_DEPTH: Final = 4
_MOST: Final = 500
_AGAIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class JobAccess:
    """What a job's own file gives, beyond its checkpoint: its targets can be asked, and its options are known.

    `context` is made anew for every question, as for a command; it writes nothing.
    """

    file: str
    context: Callable[[], RunContext]
    limits: PublishLimits
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """One checkpoint. `served` is its run, where the dashboard lives in the driver itself."""

    checkpoint: Path
    access: JobAccess | None = None
    served: Served | None = None

    @property
    def id(self) -> str:
        """A short name for addresses, the same as long as the directory has its path."""
        return hashlib.sha256(str(self.checkpoint).encode("utf-8", "surrogateescape")).hexdigest()[:10]


class Places:
    """All that is shown, in a steady order. Folders are looked through again now and then: new jobs appear.

    `savepoints` are folders in which theirs may lie, beside the usual one of each job.
    """

    def __init__(
        self, named: Sequence[Place] = (), folders: Sequence[Path] = (), *, savepoints: Sequence[Path] = ()
    ) -> None:
        self._named = tuple({place.id: place for place in named}.values())
        self._folders = tuple(dict.fromkeys(folders))
        self.savepoints = tuple(dict.fromkeys(savepoints))
        self._found: tuple[Place, ...] = ()
        self._looked_at = float("-inf")
        self._looking = threading.Lock()

    @property
    def is_one(self) -> bool:
        """Whether there is one job, and no folder in which another one may appear."""
        return len(self._named) == 1 and not self._folders

    def all(self) -> tuple[Place, ...]:
        """Those that were named, then those in folders by their path."""
        with self._looking:
            if self._folders and time.monotonic() - self._looked_at > _AGAIN_S:
                named = {place.id for place in self._named}
                found = (Place(path) for folder in self._folders for path in checkpoints_in(folder))
                self._found = tuple({one.id: one for one in found if one.id not in named}.values())
                self._looked_at = time.monotonic()
            return (*self._named, *self._found)

    def get(self, wanted: str) -> Place | None:
        """By its short name."""
        return next((place for place in self.all() if place.id == wanted), None)


def is_checkpoint(folder: Path) -> bool:
    """Whether an onceward job has begun on it."""
    return (folder / "onceward" / "identity.json").is_file()


def checkpoints_in(folder: Path, *, depth: int = _DEPTH) -> list[Path]:
    """Every checkpoint in it, not too deep and not too many. Links are not followed, hidden folders left out."""
    return [path for path, _ in zip(_walk(local_path(folder), depth), range(_MOST), strict=False)]


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if is_checkpoint(folder):
        yield folder
        return
    if not depth:
        return
    try:
        with os.scandir(folder) as entries:
            inside = sorted(
                one.name for one in entries if one.is_dir(follow_symlinks=False) and not one.name.startswith(".")
            )
    except OSError:
        return
    for name in inside:
        yield from _walk(folder / name, depth - 1)
