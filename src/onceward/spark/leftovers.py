"""What a driver leaves that dies while Spark writes its very first barrier.

Spark 4.1 and newer refuse to begin a query whose `offsets/` is not empty, and count their own unfinished file: the job
could never start again. With no barrier at all nothing was planned, so nothing can be lost by removing it.
"""

from __future__ import annotations

import re
from pathlib import Path

from onceward.spark.checkpoint import SparkLogs

_UNFINISHED = re.compile(r"\.?\.0\.[0-9a-f-]{36}\.tmp(\.crc)?")


def remove_unfinished_first_barrier(checkpoint: Path) -> list[str]:
    """The names of the files that were removed; usually none."""
    offsets = checkpoint / "offsets"
    if not offsets.is_dir() or SparkLogs(checkpoint).planned() >= 0:
        return []
    unfinished = [path for path in offsets.iterdir() if _UNFINISHED.fullmatch(path.name)]
    for path in unfinished:
        path.unlink(missing_ok=True)
    return [path.name for path in unfinished]
