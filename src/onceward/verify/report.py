"""What a look at a checkpoint comes to: what is wrong, whether it can be resumed, and if not, from where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onceward.contracts import Finding, Severity

MOVE: Final = "move "
"""How a fix begins by which nothing is lost: the file is not needed, only in the way."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An earlier epoch that the checkpoint can be taken back to. `repeated` are published epochs that would then be
    delivered a second time: from the first to the last of them, None where there are none."""

    epoch: int
    repeated: tuple[int, int] | None

    @property
    def consequence(self) -> str:
        """What taking the checkpoint back to it means, for people."""
        if self.repeated is None:
            return "nothing that is published is delivered twice"
        first, last = self.repeated
        epochs = f"epochs {first} to {last} are" if first < last else f"epoch {first} is"
        return f"{epochs} published already, and the rows since then would be delivered a second time"


@dataclass(frozen=True, slots=True)
class Report:
    """One look, or what two of them agree on. `published` is the highest epoch that is settled, or has receipts."""

    checkpoint: str
    decided: int
    published: int
    findings: tuple[Finding, ...]
    candidate: Candidate | None = None
    is_quick: bool = False
    has_asked_targets: bool = False
    is_ours: bool = True

    @property
    def errors(self) -> frozenset[Finding]:
        """What keeps it from being resumed."""
        return frozenset(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def is_resumable(self) -> bool:
        """Whether a start can go on from here."""
        return not self.errors

    @property
    def verdict(self) -> str:
        """In one line."""
        if self.is_resumable:
            where = f"after epoch {self.decided}" if self.decided >= 0 else "from the beginning"
            return f"this checkpoint can be resumed {where}" + (", as far as its logs tell" if self.is_quick else "")
        damaged = "this checkpoint cannot be resumed as it is"
        if all((one.fix or "").startswith(MOVE) for one in self.errors):
            return f"{damaged}, but after epoch {self.decided} once the files that are named above are moved away"
        if self.candidate is None:
            return (
                f"{damaged}, nor from any earlier epoch that Spark still holds: restore the files above, or the whole"
            )
        if not self.is_ours:
            return f"{damaged}; the newest epoch from which everything is there is {self.candidate.epoch}"
        option = " --accept rollback" if self.candidate.repeated else ""
        return (
            f"{damaged}; `onceward checkpoints restore {self.checkpoint} --epoch {self.candidate.epoch}{option}` takes "
            f"it back to epoch {self.candidate.epoch}: {self.candidate.consequence}"
        )
