"""Before the start: do the topics exist, may we write to them, and do the brokers give us transactions?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onceward.connections.kafka import driver
from onceward.errors import TargetRefused, TargetUnavailable
from onceward.identity import SinkName, digest
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.kafka.client import Client, claim_transactional_id, log
from onceward.sinks.kafka.cluster import BY_DEFAULT, Cluster, Described
from onceward.sinks.kafka.columns import Columns
from onceward.sinks.kafka.compatibility import refuse_topic
from onceward.sinks.kafka.errors import KafkaFailed, classify
from onceward.sinks.kafka.options import Options
from onceward.sinks.kafka.settings import Settings

_PERMISSIONS = 'the page "Kafka", "Security", lists what the sink needs'


@contextmanager
def failures_as_refusals(settings: Settings) -> Iterator[None]:
    """What the brokers do not let us see keeps the job from starting."""
    try:
        yield
    except KafkaFailed as failed:
        raise _explained(
            failed,
            f"cannot use the brokers at {settings.servers}: {failed}",
            hint="check the address, the security settings in config, and that the brokers run",
        ) from None


def _explained(failed: KafkaFailed, what: str, *, hint: str) -> TargetUnavailable | TargetRefused:
    """Whether another start may help: brokers that are away, or do not answer in time, may be back."""
    is_away = classify(failed) is ErrorClass.RETRY and not failed.authentication_failed
    return TargetUnavailable(what, hint=hint) if is_away else TargetRefused(what, hint=hint)


def check(options: Options, columns: Columns, *, sink: SinkName) -> None:
    """Raise `TargetRefused` when something is missing; make what the options let us make."""
    settings, topic, receipts_topic = options.settings, options.choice.topic, options.receipts_topic
    with failures_as_refusals(settings):
        cluster = Cluster(settings)
        try:
            found = cluster.describe(options.topics)
            if topic is not None and topic not in found:
                _make_topic(cluster, topic, options.create_partitions)
                found[topic] = cluster.describe_new(topic)
            if receipts_topic not in found:
                cluster.create_for_receipts(receipts_topic, found.get(topic or ""))
                found[receipts_topic] = cluster.describe_new(receipts_topic)
        finally:
            cluster.close()
    _refuse_unless_allowed(found, topic, receipts_topic)
    _refuse_bad_receipts(found.get(receipts_topic), receipts_topic)
    if topic is not None:
        refuse_topic(found[topic].topic, columns)
    _refuse_unless_transactional(settings, sink, receipts_topic)


def _make_topic(cluster: Cluster, topic: str, partitions: int | None) -> None:
    if partitions is None:
        raise TargetRefused(
            f"there is no topic {topic!r}",
            hint="create it, or say create_partitions=N to have it made with so many partitions",
        )
    log.warning("making the topic %r with %d partitions: it was not there", topic, partitions)
    cluster.create(topic, partitions=partitions, replicas=BY_DEFAULT, config={})


def _refuse_unless_allowed(found: dict[str, Described], topic: str | None, receipts_topic: str) -> None:
    for name, wanted in ((topic, {"WRITE"}), (receipts_topic, {"READ", "WRITE"})):
        described = found.get(name) if name is not None else None
        if described is not None and described.topic.closed:
            raise TargetRefused(f"rows cannot go there: {described.topic.closed}", hint="name a topic of your own")
        # Brokers that do not tell are asked by the first publish.
        if described is not None and described.may and not wanted <= described.may:
            missing = ", ".join(sorted(wanted - described.may))
            raise TargetRefused(f"this user lacks {missing} on topic {name!r}", hint=_PERMISSIONS)


def _refuse_bad_receipts(receipts: Described | None, name: str) -> None:
    if receipts is None:
        return
    policy = receipts.config.get("cleanup.policy")
    if policy is None:
        raise TargetRefused(
            f"this user lacks DESCRIBE_CONFIGS on topic {name!r}: nobody knows whether it keeps its receipts",
            hint=_PERMISSIONS,
        )
    if policy != "compact":
        raise TargetRefused(
            f"topic {name!r} has cleanup.policy={policy}: receipts would be deleted, and rows could be sent again",
            hint="set cleanup.policy=compact, or name another receipts_topic",
        )


def _refuse_unless_transactional(settings: Settings, sink: SinkName, receipts_topic: str) -> None:
    """Take an id that is used for nothing else: it meets every obstacle that the first publish would."""
    kafka = driver()
    client = Client(settings, "taking a transactional id")
    try:
        producer = client.make_producer(f"{settings.id_prefix}-check-{digest(sink, 16)}")
        with client.raising_kafka_failed():
            claim_transactional_id(producer, receipts_topic, settings.timeout_s)
    except KafkaFailed as failed:
        if failed.code == kafka.KafkaError.INVALID_TRANSACTION_TIMEOUT:
            raise TargetRefused(
                f"transaction_timeout_s ({settings.transaction_timeout_s:g} s) is above what the brokers allow",
                hint="lower it, or raise transaction.max.timeout.ms of the brokers",
            ) from None
        raise _explained(
            failed,
            f"the brokers at {settings.servers} give no transactions: {failed}",
            hint="they need enough brokers for transaction.state.log.replication.factor, and the user needs WRITE on "
            f"transactional ids that begin with {settings.id_prefix}-",
        ) from None
    finally:
        client.close()
