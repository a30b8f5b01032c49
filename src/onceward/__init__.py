"""Exactly-once delivery from PySpark Structured Streaming to systems outside Spark.

What needs PySpark, or much else, is imported when it is first asked for: commands that only read files need not wait.
"""

from typing import TYPE_CHECKING

from onceward.contracts import (
    AlreadyCommitted,
    CheckpointCommitter,
    Committed,
    Guarantee,
    Handle,
    Hooks,
    Lost,
    Outcome,
    Receipt,
    RetryLater,
    RowWise,
    Sink,
    SlotContext,
    SlotValues,
    TransactionalWriteAheadSink,
    TryAgain,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.errors import OncewardError
from onceward.identity import Fingerprint, Generation, JobIdentity, TransactionName
from onceward.lazy import __getattr__ as __getattr__
from onceward.spark.checkpoint_config import CheckpointConfig
from onceward.version import __version__

if TYPE_CHECKING:
    from onceward.job import Job, foreach_batch
    from onceward.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart
    from onceward.sinks.receipts import slots_to_send
    from onceward.spark.run import Run

__all__ = [
    "AlreadyCommitted",
    "CheckpointCommitter",
    "CheckpointConfig",
    "Committed",
    "ExponentialDelay",
    "FailureRate",
    "Fingerprint",
    "FixedDelay",
    "Generation",
    "Guarantee",
    "Handle",
    "Hooks",
    "Job",
    "JobIdentity",
    "Lost",
    "NoRestart",
    "OncewardError",
    "Outcome",
    "Receipt",
    "RetryLater",
    "RowWise",
    "Run",
    "Sink",
    "SlotContext",
    "SlotValues",
    "TransactionName",
    "TransactionalWriteAheadSink",
    "TryAgain",
    "TwoPhaseCommitSink",
    "WriteAheadSink",
    "__version__",
    "foreach_batch",
    "slots_to_send",
]
