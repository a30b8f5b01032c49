"""What an examination before the start finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Grade(Enum):
    """How bad it is. Only what is wrong keeps a job from starting."""

    FINE = "fine"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `mend` is the statement, setting or command that puts it right."""

    about: str
    grade: Grade
    says: str
    mend: str | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job will ask of a sink: slots in an epoch, and epochs that may wait for their publication."""

    slots: int
    unpublished_epochs: int
