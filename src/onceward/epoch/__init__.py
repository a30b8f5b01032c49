"""The protocol of an epoch: *stage → decide → publish → settle*, without Spark.

`stage` runs on executors, everything else on the driver. The engine (Spark, or the harness in `onceward.testing`) calls
`stage_epoch`, in which it runs `stage_slot` for every partition and calls `Coordinator.finish`, and writes its commit
log; the `Publisher` sees that and publishes.
"""

from onceward.epoch.attempts import stage_epoch
from onceward.epoch.coordinator import Coordinator
from onceward.epoch.decided import EpochSurvey, Publish, ReportLost, Settle, decided_step, survey_epoch
from onceward.epoch.deliver import DeliveryEnded, Outage, SinkDelivery, slot_values
from onceward.epoch.exits import contradiction, exits
from onceward.epoch.in_doubt import InDoubtSummary, InDoubtTracker, age_of, since_of
from onceward.epoch.limits import PublishLimits
from onceward.epoch.look_back import (
    Missing,
    as_ranges,
    came_back,
    delivery_of,
    missing,
    newest_markers,
    rolled_back_target,
    survivors,
    torn,
)
from onceward.epoch.publish import Publisher
from onceward.epoch.publisher_thread import PublisherThread
from onceward.epoch.reap import (
    PendingTransaction,
    abort_all,
    abort_transactions,
    manifest_that_counts,
    named_by_marker,
    orphans,
    pending_transactions,
    transactions_of,
)
from onceward.epoch.rollback_detector import RollbackDetector
from onceward.epoch.run_context import RunContext
from onceward.epoch.run_status import RunStatus
from onceward.epoch.stage import EpochAssignment, SinkAck, SlotAck, stage_slot
from onceward.epoch.takeover import settle_fates, take_over
from onceward.epoch.watchdog import Watchdog, no_longer_than
from onceward.epoch.watchdog_proxy import with_watchdog

__all__ = [
    "Coordinator",
    "DeliveryEnded",
    "EpochAssignment",
    "EpochSurvey",
    "InDoubtSummary",
    "InDoubtTracker",
    "Missing",
    "Outage",
    "PendingTransaction",
    "Publish",
    "PublishLimits",
    "Publisher",
    "PublisherThread",
    "ReportLost",
    "RollbackDetector",
    "RunContext",
    "RunStatus",
    "Settle",
    "SinkAck",
    "SinkDelivery",
    "SlotAck",
    "Watchdog",
    "abort_all",
    "abort_transactions",
    "age_of",
    "as_ranges",
    "came_back",
    "contradiction",
    "decided_step",
    "delivery_of",
    "exits",
    "manifest_that_counts",
    "missing",
    "named_by_marker",
    "newest_markers",
    "no_longer_than",
    "orphans",
    "pending_transactions",
    "rolled_back_target",
    "settle_fates",
    "since_of",
    "slot_values",
    "stage_epoch",
    "stage_slot",
    "survey_epoch",
    "survivors",
    "take_over",
    "torn",
    "transactions_of",
    "with_watchdog",
]
