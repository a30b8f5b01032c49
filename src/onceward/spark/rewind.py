"""Running an epoch again: take Spark's logs back to just before its decision.

Removing `commits/N` alone is not enough once `offsets/N+1` exists: Spark would go on with N+1 and skip N. What is
staged from N on is aborted by the takeover at the next start. Commits go first, then the barriers from the top: after a
crash in between the epoch still counts as decided, so nothing is skipped and the command can be given again.
"""

from __future__ import annotations

from pathlib import Path

from onceward.contracts import Receipt
from onceward.errors import CheckpointRefused, ConfigurationError
from onceward.manifest import IdentityFile, SettledLog
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage


def rewind(checkpoint: Path, epoch: int, *, receipts: tuple[Receipt, ...] = ()) -> list[str]:
    """Make Spark run `epoch` and all after it again; the log entries that were removed."""
    storage, logs = LocalStorage(checkpoint / "onceward"), SparkLogs(checkpoint)
    record = IdentityFile(storage).read()
    if record is None:
        raise ConfigurationError(f"{checkpoint} is not a checkpoint of an onceward job", hint="check the path")
    if not 0 <= epoch <= logs.planned() or not (checkpoint / "offsets" / str(epoch)).exists():
        raise ConfigurationError(
            f"Spark has no barrier of epoch {epoch}", hint=f"the newest epoch with one is {logs.planned()}"
        )
    published = [r.epoch for r in receipts if r.generation == record.generation and r.epoch >= epoch]
    reached = max([record.adopted, SettledLog(storage).watermark(), *published])
    if reached >= epoch:
        raise CheckpointRefused(
            f"epoch {reached} is published already; running it again would deliver its rows twice",
            epoch=epoch,
            hint=f"only epochs above {reached} can be rewound",
        )
    removed = [f"commits/{n}" for n in _numbers(checkpoint / "commits") if n >= epoch]
    removed += [f"offsets/{n}" for n in _numbers(checkpoint / "offsets") if n > epoch]
    for entry in removed:
        log, _, number = entry.partition("/")
        (checkpoint / entry).unlink(missing_ok=True)
        (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)
    return removed


def _numbers(log: Path) -> list[int]:
    """The entries of a log, the newest first."""
    if not log.is_dir():
        return []
    return sorted((int(path.name) for path in log.iterdir() if path.name.isdigit()), reverse=True)
