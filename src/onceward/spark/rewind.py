"""Running an epoch again: take Spark's logs back to just before its decision.

Removing `commits/N` alone is not enough once `offsets/N+1` exists: Spark would go on with N+1 and skip N. What is
staged from N on is aborted by the takeover at the next start. Settled markers go first, then state, then commits, then
the barriers from the top: after a crash in between the epoch still counts as decided, so nothing is skipped and the
command can be given again. Each removal is durable before the next.

The state that N and later epochs have written goes as well. Spark writes the same versions again, but a snapshot of the
former computation would stay, and a later start would take it for that of the new one.
"""

from __future__ import annotations

from pathlib import Path

from onceward.contracts import Log, Receipt
from onceward.errors import CheckpointRefused, ConfigurationError
from onceward.identity import Generation
from onceward.journal import IdentityFile, Resolutions, SettledLog, forget_settled
from onceward.spark.checkpoint import SparkLogs
from onceward.storage import LocalStorage, sync_file_system
from onceward.verify.restore import later_state


def rewind(checkpoint: Path, epoch: int, *, receipts: tuple[Receipt, ...] = (), went_back: bool = False) -> list[str]:
    """Make Spark run `epoch` and all after it again; the log entries that were removed.

    `receipts` are what the job's targets have. With `went_back` settled epochs run again too, as far as those targets
    have nothing from `epoch` on.
    """
    storage, logs = LocalStorage(checkpoint / "onceward"), SparkLogs(checkpoint)
    record = IdentityFile(storage).read()
    if record is None:
        raise ConfigurationError(f"{checkpoint} is not a checkpoint of an onceward job", hint="check the path")
    if not 0 <= epoch <= logs.planned() or not (checkpoint / "offsets" / str(epoch)).exists():
        raise ConfigurationError(
            f"Spark has no barrier of epoch {epoch}", hint=f"the newest epoch with one is {logs.planned()}"
        )
    settled = SettledLog(storage)
    markers = [marker for n in settled.epochs() if n >= epoch and (marker := settled.legible(n)) is not None]
    ours = {record.generation, *(marker.manifest.job.generation for marker in markers if marker.manifest is not None)}
    published = [r.epoch for r in receipts if r.generation in ours and r.epoch >= epoch]
    reached = max([record.adopted, -1 if went_back else settled.watermark(), *published])
    if reached >= epoch:
        raise CheckpointRefused(
            f"epoch {reached} is published already; running it again would deliver its rows twice",
            epoch=epoch,
            hint=f"only epochs above {reached} can be rewound",
        )
    if went_back:
        _refuse_resolved(storage, logs, epoch, record.generation)
    kept = settled.epochs()
    if kept and kept[0] >= epoch and record.adopted < epoch - 1:
        raise CheckpointRefused(
            f"nothing would tell any more that the epochs before {epoch} are settled: their markers are pruned",
            epoch=epoch,
            hint=f"rewind to {epoch + 1} or later",
        )
    forget_settled(storage, epoch)
    _drop_later_state(checkpoint, epoch)
    removed = [(Log.COMMITS, n) for n in _newest_first(logs, Log.COMMITS) if n >= epoch]
    removed += [(Log.OFFSETS, n) for n in _newest_first(logs, Log.OFFSETS) if n > epoch]
    for log, number in removed:
        logs.drop(log, number, logs.entries(log)[number])
    return [f"{log.value}/{number}" for log, number in removed]


def _refuse_resolved(storage: LocalStorage, logs: SparkLogs, epoch: int, generation: Generation) -> None:
    """That an epoch is published, as a person said, would hold for its repetition too: it would not be staged."""
    resolved = Resolutions(storage).read()
    for number in range(epoch, logs.planned() + 1):
        barrier = logs.barrier(number)
        is_published, sinks = resolved.published(generation, number, barrier.fingerprint if barrier else None)
        if is_published or sinks:
            raise CheckpointRefused(
                f"it was said by hand that epoch {number} is published: when it runs again, that would hold for it too",
                epoch=number,
                hint="`onceward status` lists what was said; withdraw it first: `onceward resolve withdraw FILE K`",
            )


def _drop_later_state(checkpoint: Path, version: int) -> None:
    """Epoch N reads version N of the state. In between Spark cannot start, which is loud."""
    for path in (later := later_state(checkpoint, version)):
        path.unlink(missing_ok=True)
    if later:
        sync_file_system(checkpoint)


def _newest_first(logs: SparkLogs, log: Log) -> list[int]:
    return sorted(logs.entries(log), reverse=True)
