"""The coordinator's two logs, as the protocol reads them. It never writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from onceward.identity import Fingerprint


@dataclass(frozen=True, slots=True)
class Barrier:
    """One entry of the offset log: where the epoch ends in every source, and when it was planned."""

    epoch: int
    fingerprint: Fingerprint
    timestamp: datetime


class DecisionLog(Protocol):
    """Spark's offset and commit logs. Every call looks at the storage; nothing is remembered between calls."""

    def decided(self) -> int:
        """The highest decided epoch, -1 when there is none."""
        ...

    def planned(self) -> int:
        """The highest epoch that has a barrier, -1 when there is none."""
        ...

    def barrier(self, epoch: int) -> Barrier | None:
        """The epoch's barrier, or None when it is not planned yet or was purged."""
        ...

    def is_engine_made(self, epoch: int) -> bool:
        """Whether the engine made this epoch without calling any sink (offline state repartitioning does)."""
        ...
