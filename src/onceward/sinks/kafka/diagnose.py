"""What the topics' settings mean for a job: shown by `onceward doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onceward.contracts import Finding, Severity
from onceward.sinks.kafka.cluster import SURELY_GONE_S, Cluster, Described
from onceward.sinks.kafka.library import why_unusable
from onceward.sinks.kafka.preflight import failures_as_refusals
from onceward.sinks.kafka.settings import Settings

_INSTALL = "pip install 'confluent-kafka>=2.12,<3'"


def diagnose(settings: Settings, topics: Iterable[str]) -> Iterator[Finding]:
    """The producer, and what the topics' settings mean for what was confirmed. One that the brokers do not know is told
    of, too."""
    names = list(topics)
    if settings.producer_kind is None and (why := why_unusable()):
        yield Finding("producer", Severity.WARNING, f"records go out one by one, which is slower: {why}", _INSTALL)
    with failures_as_refusals(settings):
        cluster = Cluster(settings)
        try:
            found = cluster.describe_patiently(names, SURELY_GONE_S)
        finally:
            cluster.close()
    for name in names:
        if name not in found:
            yield Finding(f"topic {name}", Severity.ERROR, "it is not there", "start the job, or make it")
    for name, described in found.items():
        yield _copies(name, described)
        if described.config.get("unclean.leader.election.enable") == "true":
            yield Finding(
                f"topic {name}",
                Severity.WARNING,
                "a broker that lags behind may become its leader: records and receipts that were confirmed can vanish",
                f"kafka-configs --alter --topic {name} --add-config unclean.leader.election.enable=false",
            )
        if described.topic.max_bytes is None:
            yield Finding(
                f"topic {name}",
                Severity.WARNING,
                "its max.message.bytes may not be seen, so records are taken to be limited to 1,000,000 bytes",
                f"allow DESCRIBE_CONFIGS on topic {name}",
            )


def _copies(name: str, described: Described) -> Finding:
    in_sync = int(described.config.get("min.insync.replicas", "1"))
    detail = f"{described.topic.partitions} partitions, {described.replicas} copies, at least {in_sync} in sync"
    if described.replicas > 1 and in_sync > 1:
        return Finding(f"topic {name}", Severity.OK, detail)
    fix = "3 copies and min.insync.replicas=2 let a broker's disk be lost"
    return Finding(f"topic {name}", Severity.WARNING, f"{detail}: what one broker loses is lost", fix)
