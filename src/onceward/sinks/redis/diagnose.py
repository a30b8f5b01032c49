"""What the server's settings mean for a job: shown by `onceward doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onceward.connections.redis import RedisConnection, driver
from onceward.contracts import Finding, Severity
from onceward.sinks.redis.facts import JOURNAL, POLICY, TargetFacts

_SETTINGS = ("appendfsync", "min-replicas-to-write")


def diagnose(connection: RedisConnection, *, expires: bool) -> Iterator[Finding]:
    """All that was looked at, fine or not. `expires`: the sink's keys have a time to live."""
    what = "cluster of Redis" if connection.is_cluster else "Redis"
    yield Finding(
        "server", Severity.OK, f"{what} {connection.info.get('redis_version')}, role {connection.info.get('role')}"
    )
    facts = TargetFacts.take(connection)
    yield _eviction(facts, limit=int(connection.info.get("maxmemory") or 0), expires=expires)
    yield _journal(facts)
    settings = _settings(connection)
    if settings is None:
        detail = f"CONFIG GET is not allowed, so nobody can say how {' and '.join(_SETTINGS)} are set"
        yield Finding(
            "settings", Severity.WARNING, detail, "ACL SETUSER <user> +config|get, or ask whoever runs the server"
        )
        return
    if facts.keeps_journal:
        yield _forced(str(settings.get("appendfsync", "")))
    yield _replicas(connection.info, int(settings.get("min-replicas-to-write") or 0))


def _settings(connection: RedisConnection) -> Mapping[str, Any] | None:
    try:
        found: Any = connection.seed.config_get(*_SETTINGS)
    except driver().ResponseError:
        return None
    return {str(name): value for name, value in found.items()}


def _eviction(facts: TargetFacts, *, limit: int, expires: bool) -> Finding:
    policy = facts.facts()[POLICY]
    if any(one.startswith("allkeys") for one in facts.policies):
        detail = f"{policy}: the server may evict any key when memory is short, receipts too, and rows go in twice then"
        return Finding(POLICY, Severity.ERROR, detail, "CONFIG SET maxmemory-policy noeviction; and in redis.conf")
    if policy == "noeviction":
        return Finding(POLICY, Severity.OK, "noeviction: a server without memory refuses writes, and is waited for")
    if not expires:
        return Finding(POLICY, Severity.OK, f"{policy}: only keys with a time to live are evicted, and ours have none")
    detail = f"{policy}: keys of this sink have a time to live (ttl_s), and may go before it ends when memory is short"
    detail += f" (maxmemory {limit})" if limit else " (maxmemory is not set)"
    return Finding(POLICY, Severity.WARNING, detail, "CONFIG SET maxmemory-policy noeviction; and in redis.conf")


def _journal(facts: TargetFacts) -> Finding:
    if facts.keeps_journal:
        return Finding(JOURNAL, Severity.OK, "on")
    detail = (
        "off: a server that stops forgets what it has confirmed since its last snapshot, and nothing brings it back"
    )
    return Finding(JOURNAL, Severity.WARNING, detail, "CONFIG SET appendonly yes; and in redis.conf")


def _forced(appendfsync: str) -> Finding:
    if appendfsync == "always":
        return Finding("appendfsync", Severity.OK, "always: what the server confirms is on its disk")
    detail = f"{appendfsync}: with the machine's power about a second of what was confirmed may be lost"
    return Finding("appendfsync", Severity.WARNING, detail, "CONFIG SET appendfsync always; and in redis.conf")


def _replicas(info: Mapping[str, Any], required: int) -> Finding:
    connected = int(info.get("connected_slaves") or 0)
    if not connected:
        return Finding("replicas", Severity.OK, "none: no fail-over can lose what was confirmed")
    if required:
        detail = (
            f"{connected}, and no write without {required}: a fail-over loses at most what min-replicas-max-lag allows"
        )
        return Finding("replicas", Severity.OK, detail)
    detail = (
        f"{connected}, and writes are confirmed without them: a fail-over loses what the new primary had not received"
    )
    return Finding("replicas", Severity.WARNING, detail, "CONFIG SET min-replicas-to-write 1; and in redis.conf")
