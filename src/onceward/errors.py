"""Everything that can go wrong, as one tree; each error says what happened and what to do next.

::

    OncewardError
    ├── ConfigurationError      an option, or the target, is wrong; a start changes nothing    exit 2
    │   ├── GuaranteeUnavailable    a sink cannot give what the job asks for
    │   ├── PipelineChanged         its operators or sources are not those of its checkpoint
    │   ├── NotShared               a folder is not the same one on driver and executors
    │   └── TargetRefused           table, path or columns do not fit the stream
    ├── DamagedFile             a stored file is torn or flipped                        exit 1
    │   └── NewerFormat             a newer release has written it
    ├── CheckpointRefused       this checkpoint is not the one the target knows         exit 1
    │   ├── CheckpointUnknown       Spark has begun on it, and it has no identity of ours
    │   ├── CheckpointReplaced      deleted and made again under the same job name
    │   ├── CheckpointCopied        a copy of a checkpoint that may still be running
    │   └── CheckpointRolledBack    older than what the target has already received
    ├── StagedRowsMissing       the driver does not find all that was staged; aborted   exit 1
    ├── EpochLost               decided, but nobody can say what was staged             exit 1
    ├── RowsRejected            the target does not take a row of a decided epoch        exit 1
    ├── SourceDataLost          the source no longer has what is to be read next        exit 1
    ├── OutputLost              decided, but the target no longer has what was staged   exit 1
    ├── TargetRolledBack        the target no longer has what was published            exit 1
    ├── TargetChanged           the target is not as it was at the start                exit 1
    ├── ReceiptsMoved           receipts of unsettled epochs stand elsewhere            exit 1
    ├── SinkMissing             pending work names a sink that the job does not have    exit 1
    ├── PublishFailed           the target did not take a decided epoch in time         exit 3
    ├── TargetUnavailable       the target cannot be asked what it holds                exit 3
    ├── SourceUnavailable       the source cannot be asked what it has                  exit 3
    ├── EpochTimedOut           an epoch took longer than it may; it was aborted        exit 3
    ├── StorageFailed           the checkpoint's storage refused an operation           exit 3
    ├── JvmEnded                Spark's JVM has died under its driver                   exit 3
    ├── RestartsExhausted       the job's restart strategy gave up                      exit 3
    └── Fenced                  another driver owns this checkpoint now                 exit 4
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class OncewardError(Exception):
    """The root. `hint` is the next thing to do; `exit_code` is what the command ends with."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str | None = None, epoch: int | None = None, sink: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.epoch = epoch
        self.sink = sink

    def __str__(self) -> str:
        """The message, where it happened, and the hint, each on its own line."""
        where = [f"epoch {self.epoch}"] if self.epoch is not None else []
        where += [f"sink {self.sink!r}"] if self.sink is not None else []
        text = f"{self.message} ({', '.join(where)})" if where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


@contextmanager
def attributed(*, sink: str, epoch: int | None = None, when_rejected: str | None = None) -> Iterator[None]:
    """Let what is refused inside say which sink it was, in which epoch; rejected rows also how to go on."""
    try:
        yield
    except OncewardError as error:
        error.sink = error.sink or sink
        error.epoch = error.epoch if error.epoch is not None else epoch
        if isinstance(error, RowsRejected):
            error.hint = error.hint or when_rejected
        raise


class ConfigurationError(OncewardError):
    """An option is wrong. Nothing has been read, staged or written."""

    exit_code = 2


class GuaranteeUnavailable(ConfigurationError):
    """The job asks for a guarantee that one of its sinks cannot give."""


class NotShared(ConfigurationError):
    """A folder that driver and executors must share is another one on some host. No row has been staged."""


class PipelineChanged(ConfigurationError):
    """The operators or sources of a pipeline do not fit its checkpoint: state would go to another than its own."""


class TargetRefused(ConfigurationError):
    """The target does not exist, may not be written, or its columns do not fit the stream."""


class DamagedFile(OncewardError):
    """A stored file failed its checksum, is cut short, or has a version this release does not know."""


class NewerFormat(DamagedFile):
    """A stored file is whole, but of a version that only a newer release knows."""


class CheckpointRefused(OncewardError):
    """The checkpoint and the target disagree about what has happened; going on could lose or duplicate."""

    accept: ClassVar[str] = ""


class CheckpointUnknown(CheckpointRefused):
    """Spark has begun epochs on this checkpoint, and it has no identity of ours: never used by onceward, or lost."""

    accept = "adopt"


class CheckpointReplaced(CheckpointRefused):
    """The target has output of this job from a checkpoint that is not this one."""

    accept = "fresh-start"


class CheckpointCopied(CheckpointRefused):
    """This directory is a copy; the original may still be running."""

    accept = "copy"


class CheckpointRolledBack(CheckpointRefused):
    """The target has epochs that this checkpoint has not reached yet, or has reached differently."""

    accept = "rollback"


class StagedRowsMissing(OncewardError):
    """Before the decision: the driver does not find all that was staged, or fewer rows than Spark counted.

    What there is of it was aborted; nothing is decided and nothing is visible.
    """


class EpochLost(OncewardError):
    """Spark decided the epoch, but no valid manifest says what was staged for it."""


class RowsRejected(OncewardError):
    """The epoch is decided, and the target refuses one of its rows for good. It and all later ones stay staged."""

    @staticmethod
    def hint_for(what: str) -> str:
        """The two ways on: `what` is fixed (the table, the topic), or the rows are taken out."""
        return (
            f"fix {what} and start again, or see the rows with `onceward poison show FILE` and take them out with "
            "`onceward poison divert FILE --to FOLDER`; the epoch stays staged"
        )


class SourceDataLost(OncewardError):
    """Records that the job has not read yet are gone from its source; the message names them."""


class OutputLost(OncewardError):
    """The epoch is decided, but the target no longer holds what was staged and has no receipt for it."""


class TargetRolledBack(OncewardError):
    """Settled epochs have no receipts in the target any more: it was restored, or a lagging standby took its place."""


class TargetChanged(OncewardError):
    """What a sink relies on in its target (an engine, a unique index, a policy) changed while the job ran."""


class ReceiptsMoved(OncewardError):
    """A sink now keeps its receipts elsewhere than where those of an unsettled epoch stand, or may stand."""


class SinkMissing(OncewardError):
    """A decided epoch waits for a sink that is no longer part of the job."""


class PublishFailed(OncewardError):
    """A decided epoch could not be published before the deadline. It stays staged, in order."""

    exit_code = 3


class TargetUnavailable(OncewardError):
    """The target is away, or did not say what it holds of ours, so recovery cannot plan."""

    exit_code = 3


class SourceUnavailable(OncewardError):
    """The source did not say what it still has, so nobody knows whether the job can go on from where it was."""

    exit_code = 3


class EpochTimedOut(OncewardError):
    """The epoch ran longer than the `timeout` of its checkpoints. It was cancelled and what it staged was aborted."""

    exit_code = 3


class StorageFailed(OncewardError):
    """The storage under the checkpoint refused an operation (full, read-only, gone)."""

    exit_code = 3


class JvmEnded(OncewardError):
    """The JVM of this driver was killed, or has run out of memory. What is decided is published at the next start."""

    exit_code = 3


class RestartsExhausted(OncewardError):
    """The job failed more often than its restart strategy allows. Nothing is lost: the next start goes on."""

    exit_code = 3


class Fenced(OncewardError):
    """Another driver has taken over; this one must not write any more."""

    exit_code = 4
