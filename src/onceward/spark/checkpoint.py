"""Spark's own checkpoint directory, read only: the barriers in `offsets/`, the decisions in `commits/`.

No pyspark is needed to read it, so the command line works beside a running job.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onceward.contracts import Barrier
from onceward.errors import DamagedFile
from onceward.identity import fingerprint_of

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class SparkLogs:
    """`DecisionLog` over a checkpoint directory.

    An epoch is decided when `commits/` has reached it. It is decided as well when `offsets/` has gone past it: Spark
    plans N+1 only after it committed N, and on a restart it resumes at its newest barrier without a look at the commits
    before it. So when a power loss forgets `commits/N` but not `offsets/N+1`, epoch N never runs again; whoever took it
    for undecided would throw its rows away. Async progress tracking, which breaks this order, is refused.
    """

    root: Path

    def decided(self) -> int:
        """See `DecisionLog.decided`."""
        committed = self._highest("commits")
        if committed >= 0:
            self._entry("commits", committed)
        return max(committed, self.planned() - 1)

    def planned(self) -> int:
        """See `DecisionLog.planned`."""
        return self._highest("offsets")

    def barrier(self, epoch: int) -> Barrier | None:
        """See `DecisionLog.barrier`."""
        lines = self._entry("offsets", epoch)
        if lines is None:
            return None
        metadata = self._metadata(epoch, lines)
        milliseconds = metadata.get("batchTimestampMs", 0)
        timestamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return Barrier(epoch, fingerprint_of("\n".join(lines).encode()), timestamp)

    def sources(self, epoch: int) -> list[str]:
        """Where the epoch ends in each source, one line each, as the source wrote it; none without an entry."""
        lines = self._entry("offsets", epoch) if epoch >= 0 else None
        return [] if lines is None else lines[2:]

    def is_engine_made(self, epoch: int) -> bool:
        """Same source positions as the epoch before, but another number of state partitions.

        Only offline repartitioning does that: a running query takes the number from its checkpoint and keeps it.
        """
        lines, before = self._entry("offsets", epoch), self._entry("offsets", epoch - 1)
        if lines is None or before is None or lines[2:] != before[2:]:
            return False
        partitions, partitions_before = (
            self._metadata(number, entry).get("conf", {}).get(_SHUFFLE_PARTITIONS)
            for number, entry in ((epoch, lines), (epoch - 1, before))
        )
        return bool(partitions != partitions_before)

    def _highest(self, log: str) -> int:
        try:
            return max((int(p.name) for p in (self.root / log).iterdir() if p.name.isdigit()), default=-1)
        except FileNotFoundError:
            return -1

    def _entry(self, log: str, epoch: int) -> list[str] | None:
        """The lines of an entry; None when there is none; `DamagedFile` when it is cut short."""
        path = self.root / log / str(epoch)
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            text = ""
        lines = text.split("\n")
        if not lines[0].startswith("v") or len(lines) < 2:
            raise DamagedFile(
                f"Spark's log entry {log}/{epoch} is empty or torn",
                epoch=epoch,
                hint=f"Spark cannot start from it either; restore it, or remove {log}/{epoch} and its .crc so that "
                "the epoch runs again (onceward knows whether it was published)",
            )
        return lines

    def _metadata(self, epoch: int, lines: list[str]) -> dict[str, Any]:
        try:
            document = json.loads(lines[1])
        except ValueError:
            raise DamagedFile(f"the metadata line of Spark's offsets/{epoch} is torn", epoch=epoch) from None
        return document if isinstance(document, dict) else {}
