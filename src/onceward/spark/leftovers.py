"""What a driver leaves that dies, or loses its power, while Spark begins: with it Spark itself would not start again.

Spark 4.1 and newer refuse to begin a query whose `offsets/` or `state/` is not empty, and count their own unfinished
file. A file `metadata` that is torn ends every start. With no barrier at all nothing was planned, so nothing can be
lost by removing them.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from onceward.spark.checkpoint import SparkLogs

_UNFINISHED = re.compile(r"\.?\.0\.[0-9a-f-]{36}\.tmp(\.crc)?")


def remove_leftovers(checkpoint: Path) -> list[str]:
    """The names of what was removed; usually nothing."""
    unusable = _torn_metadata(checkpoint)
    logs = SparkLogs(checkpoint)
    if logs.planned() < 0 and logs.decided() < 0:
        offsets = checkpoint / "offsets"
        unfinished = offsets.iterdir() if offsets.is_dir() else ()
        unusable += [path for path in unfinished if _UNFINISHED.fullmatch(path.name)]
        unusable += [path for path in (checkpoint / "state",) if path.is_dir()]
    for path in unusable:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return [path.relative_to(checkpoint).as_posix() for path in unusable]


def _torn_metadata(checkpoint: Path) -> list[Path]:
    """It holds nothing but the query's id, which onceward's identity has as well."""
    path = checkpoint / "metadata"
    try:
        json.loads(path.read_text())
    except FileNotFoundError:
        return []
    except ValueError:
        return [path, checkpoint / ".metadata.crc"]
    return []
