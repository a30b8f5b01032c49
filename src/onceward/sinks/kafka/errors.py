"""What an error of the brokers or of the client library means for the epoch that is being published.

The names are librdkafka's: one that begins with `_` is the client's own, the others are the brokers'. The page
docs/targets/kafka.md shows the same table.
"""

from __future__ import annotations

from collections.abc import Mapping

from onceward.connections.kafka import driver
from onceward.contracts import RejectedRow, TryAgain
from onceward.errors import RowsRejected, TargetChanged
from onceward.sinks.error_class import ErrorClass

UNKNOWN_TOPICS = ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
"""Also said for a moment by a broker that does not know of a topic yet: it is looked for before the job stops."""

_NAMES: Mapping[ErrorClass, tuple[str, ...]] = {
    ErrorClass.RETRY: (
        # Brokers that are away, start, or pass on what they lead.
        "_ALL_BROKERS_DOWN",
        "_TRANSPORT",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "_WAIT_COORD",
        "_WAIT_CACHE",
        "_RETRY",
        "_DESTROY_BROKER",
        "_NOENT",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_CONTROLLER",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "THROTTLING_QUOTA_EXCEEDED",
        # Too few copies, or a disk: for as long as the brokers need.
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "KAFKA_STORAGE_ERROR",
        # Another driver has taken the transactional id, or the brokers have ended the transaction.
        "_FENCED",
        "_STATE",
        "_INCONSISTENT",
        "_CONFLICT",
        "_PREV_IN_PROGRESS",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
        "_GAPLESS_GUARANTEE",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "UNKNOWN_PRODUCER_ID",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "DUPLICATE_SEQUENCE_NUMBER",
        "CONCURRENT_TRANSACTIONS",
        "TRANSACTION_COORDINATOR_FENCED",
        "TRANSACTION_ABORTABLE",
    ),
    ErrorClass.ROW: (
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_MSG_SIZE",
        "INVALID_MSG",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "TOPIC_EXCEPTION",
        "_INVALID_DIFFERENT_RECORD",
        "_QUEUE_FULL",
    ),
    ErrorClass.TARGET: (
        *UNKNOWN_TOPICS,
        "INCONSISTENT_TOPIC_ID",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
        "INVALID_TRANSACTION_TIMEOUT",
        "INVALID_REQUIRED_ACKS",
        "UNSUPPORTED_VERSION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "_UNSUPPORTED_FEATURE",
    ),
}
CLASSES: Mapping[str, ErrorClass] = {name: kind for kind, names in _NAMES.items() for name in names}


class KafkaFailed(Exception):
    """The brokers did not do what they were asked, or nobody knows whether they did. `code` is the driver's.

    It only tells of a time that ran out when `authentication_failed`: a password or a certificate is wrong.
    """

    def __init__(
        self, message: str, code: int | None = None, *, topic: str | None = None, authentication_failed: bool = False
    ) -> None:
        super().__init__(message)
        self.code, self.topic, self.authentication_failed = code, topic, authentication_failed


class Passing(KafkaFailed, TryAgain):
    """It is known to pass, and no row is to blame."""


def name_of(code: int) -> str:
    """As librdkafka calls it."""
    return str(driver().KafkaError(code).name())


def classify(failed: KafkaFailed) -> ErrorClass:
    """By its code. None is ours: an answer that did not come in time."""
    return ErrorClass.RETRY if failed.code is None else CLASSES.get(name_of(failed.code), ErrorClass.UNKNOWN)


def translated(failed: KafkaFailed) -> Exception:
    """What the error means while an epoch is being published: see `CLASSES`."""
    kind = classify(failed)
    # Whether the topic is gone, or a broker does not know of it yet, is seen when the next session opens.
    is_unknown_topic = failed.code is not None and name_of(failed.code) in UNKNOWN_TOPICS
    if kind is ErrorClass.RETRY or is_unknown_topic:
        return Passing(str(failed), failed.code, topic=failed.topic)
    if kind is ErrorClass.TARGET:
        return TargetChanged(
            f"the brokers no longer let us publish: {failed}",
            hint='give back what was taken (the page "Kafka", "Security", lists what the sink needs), then start '
            "again; what is staged stays staged",
        )
    return failed


def row_rejected(row: RejectedRow) -> RowsRejected:
    """One row is enough to stop; `find_rejected` names them all."""
    return RowsRejected(
        f"row {row.row} of slot {row.slot} cannot be sent: {row.why}", hint=RowsRejected.hint_for("the topic")
    )
