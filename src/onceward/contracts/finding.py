"""What an examination before the start finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad it is. Only what is wrong keeps a job from starting."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `fix` is the statement, setting or command that puts it right."""

    about: str
    severity: Severity
    detail: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """What a job will ask of a sink: slots in an epoch, and epochs that may wait for their publication."""

    slots: int
    unpublished_epochs: int
