"""The coordinator's two logs, as the protocol reads them, makes them durable and, after a power loss, repairs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from onceward.identity import Fingerprint


@dataclass(frozen=True, slots=True)
class Barrier:
    """One entry of the offset log: where the epoch ends in every source, when it was planned, and its very text."""

    epoch: int
    fingerprint: Fingerprint
    timestamp: datetime
    text: str = ""


class Log(Enum):
    """The two logs."""

    OFFSETS = "offsets"
    COMMITS = "commits"


class DecisionLog(Protocol):
    """Spark's offset and commit logs. Every call looks at the storage; nothing is remembered between calls.

    Spark forces none of it to the disk. So the protocol does: the barrier before it relies on a manifest, the decision
    before it publishes anything.
    """

    def decided(self) -> int:
        """The highest decided epoch, -1 when there is none."""
        ...

    def planned(self) -> int:
        """The highest epoch that has a barrier, -1 when there is none."""
        ...

    def barrier(self, epoch: int) -> Barrier | None:
        """The epoch's barrier, or None when it is not planned yet or was purged."""
        ...

    def decision(self, epoch: int) -> str | None:
        """The text of the epoch's commit entry, None without one: an epoch may be decided by a later barrier alone."""
        ...

    def is_engine_made(self, epoch: int) -> bool:
        """Whether the engine made this epoch without calling any sink (offline state repartitioning does)."""
        ...

    def sync_barrier(self, epoch: int) -> None:
        """Force all that the engine has written for the epoch to the disk: its barrier, the decision before it, and
        what else it needs to run the epoch again or to go on after it. `StorageFailed` when that cannot be done."""
        ...

    def sync_decision(self, epoch: int) -> None:
        """Force the epoch's decision to the disk."""
        ...

    def entries(self, log: Log) -> Mapping[int, str | None]:
        """Every entry of a log by its epoch; None for one that is empty or torn."""
        ...

    def put_back(self, log: Log, epoch: int, text: str) -> None:
        """Write an entry that was lost or torn, durably. Only recovery does, and only what the engine itself wrote."""
        ...

    def drop(self, log: Log, epoch: int, seen: str | None) -> None:
        """Remove an entry, durably, if it still is what was seen: None for a torn one."""
        ...

    def torn_lists(self) -> Mapping[str, bool]:
        """Lists that the engine's sources keep beside the logs (which files an epoch reads), and that are torn; True
        for one that no barrier refers to yet."""
        ...

    def drop_list(self, path: str) -> None:
        """Remove such a list, durably: its source makes it anew."""
        ...
