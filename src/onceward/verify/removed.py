"""What a restore has moved aside, and what it was about to: written down before the first file moves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from onceward.contracts import Storage
from onceward.errors import DamagedFile
from onceward.journal import seal, unseal
from onceward.verify.report import Candidate

PREFIX: Final = "removed-"
_PLAN, _DONE = ".json", ".done"


@dataclass(frozen=True, slots=True)
class Restoration:
    """To which epoch, into which folder under `onceward/`, and every file that goes there, in order."""

    epoch: int
    folder: str
    moves: tuple[str, ...]
    repeated: tuple[int, int] | None = None

    @property
    def consequence(self) -> str:
        """What it means, for people."""
        return Candidate(self.epoch, self.repeated).consequence


def write_down(storage: Storage, plan: Restoration, *, by: str, at: datetime, because: str) -> None:
    """What will be moved, durably; that of a first try stands."""
    document = {"epoch": plan.epoch, "moves": list(plan.moves), "repeated": plan.repeated and list(plan.repeated)}
    said = {"by": by, "at": at.isoformat(), "because": because}
    storage.create(f"{plan.folder}{_PLAN}", seal("restore", {**document, **said}))


def write_done(storage: Storage, plan: Restoration) -> None:
    """That all of it is moved."""
    storage.create(f"{plan.folder}{_DONE}", seal("restored", {"epoch": plan.epoch}))


def unfinished(storage: Storage) -> Restoration | None:
    """A restore that was begun and not finished, if there is one."""
    names = storage.names("")
    begun = (name.removesuffix(_PLAN) for name in sorted(names) if name.startswith(PREFIX) and name.endswith(_PLAN))
    return next((read_down(storage, folder) for folder in begun if f"{folder}{_DONE}" not in names), None)


def read_down(storage: Storage, folder: str) -> Restoration:
    """What was written down of a restore into this folder."""
    name = f"{folder}{_PLAN}"
    document = unseal("restore", storage.read(name) or b"", path=name)
    try:
        moves, repeated = tuple(map(str, document["moves"])), tuple(map(int, document["repeated"] or ()))
        pair = (repeated[0], repeated[1]) if repeated else None
        return Restoration(int(document["epoch"]), folder, moves, pair)
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedFile(f"{name} is not a restore: {error!r}", hint="restore it from a backup") from error
