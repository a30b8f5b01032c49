"""What the parts promise each other: values and protocols, no behaviour.

Sink authors need only this package; everything from *stage* to *recover* is written against it.
"""

from onceward.contracts.clock import Clock
from onceward.contracts.committer import CheckpointCommitter
from onceward.contracts.context import Handle, Json, Receipt, RejectedRow, SlotContext, SlotValues
from onceward.contracts.decisions import Barrier, DecisionLog, Log
from onceward.contracts.engine import EngineTarget, EngineWritten
from onceward.contracts.facts import refuse_change, what_changed
from onceward.contracts.finding import Finding, Severity, Workload
from onceward.contracts.guarantee import Guarantee
from onceward.contracts.hooks import Hooks
from onceward.contracts.outcome import AlreadyCommitted, Committed, Lost, Outcome, RetryLater, TryAgain
from onceward.contracts.repeated import Repeated
from onceward.contracts.rows import RowWise
from onceward.contracts.sink import (
    AnySink,
    Sink,
    TemplateChoice,
    TransactionalWriteAheadSink,
    TwoPhaseCommitSink,
    WriteAheadSink,
)
from onceward.contracts.storage import Storage

__all__ = [
    "AlreadyCommitted",
    "AnySink",
    "Barrier",
    "CheckpointCommitter",
    "Clock",
    "Committed",
    "DecisionLog",
    "EngineTarget",
    "EngineWritten",
    "Finding",
    "Guarantee",
    "Handle",
    "Hooks",
    "Json",
    "Log",
    "Lost",
    "Outcome",
    "Receipt",
    "RejectedRow",
    "Repeated",
    "RetryLater",
    "RowWise",
    "Severity",
    "Sink",
    "SlotContext",
    "SlotValues",
    "Storage",
    "TemplateChoice",
    "TransactionalWriteAheadSink",
    "TryAgain",
    "TwoPhaseCommitSink",
    "Workload",
    "WriteAheadSink",
    "refuse_change",
    "what_changed",
]
