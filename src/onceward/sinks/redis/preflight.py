"""Whether the server can be trusted with receipts and lets us write: looked at before every start."""

from __future__ import annotations

import secrets

from onceward.connections.redis import RedisConnection, hash_slot, tags
from onceward.errors import TargetRefused
from onceward.sinks.redis import commands
from onceward.sinks.redis.facts import TargetFacts
from onceward.sinks.redis.options import HOLDS, Layout
from onceward.sinks.redis.scripts import LOOK, TRY

OLDEST_SERVER = (6, 2)


def refuse_unless_able(
    connection: RedisConnection, layout: Layout, *, fractions: bool, database: int, scratch: str
) -> TargetFacts:
    """What the server's promises rest on; raises `TargetRefused` when it could lose receipts, or refuses writes."""
    info = connection.info
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if version < OLDEST_SERVER:
        raise TargetRefused(f"the server is Redis {info['redis_version']}", hint="Redis 6.2 or newer is needed")
    if info.get("role") not in ("master", None) and not connection.is_cluster:
        raise TargetRefused("the server is a replica", hint="give the URL of the primary")
    if connection.is_cluster and database:
        raise TargetRefused(f"a cluster has no database {database}", hint="leave the number out of the URL")
    facts = TargetFacts.take(connection)
    for policy in facts.policies:
        if policy.startswith("allkeys"):
            raise TargetRefused(
                f"the server may evict any key when memory is short (maxmemory-policy {policy}), receipts too",
                hint="CONFIG SET maxmemory-policy noeviction, and in redis.conf; volatile-* will do as well: receipts "
                "never expire",
            )
    _refuse_commands(connection, layout, scratch, fractions=fractions)
    _refuse_key(connection, layout, scratch, fractions=fractions)
    return facts


def _refuse_commands(connection: RedisConnection, layout: Layout, scratch: str, *, fractions: bool) -> None:
    for lines in (commands.OF_RECEIPTS, commands.all_of(layout, fractions=fractions)):
        key = f"{scratch}:{secrets.token_hex(8)}"
        refused = connection.run(connection.client(key), TRY, key, commands.packed(lines))
        if refused:
            raise TargetRefused(
                f"the server does not let this user write: {refused[0].decode(errors='replace')}",
                hint='the page "Redis", "Privileges", lists the commands and keys that the sink needs',
            )


def _refuse_key(connection: RedisConnection, layout: Layout, scratch: str, *, fractions: bool) -> None:
    """The key itself where there is only one; else one that begins as all of them do."""
    literal = layout.key.literal
    key = literal if literal is not None else layout.key.prefix
    if not key:
        return
    beside = f"{scratch}:{{{tags()[hash_slot(key)]}}}" if connection.is_cluster else scratch
    needed = commands.packed(commands.all_of(layout, fractions=fractions))
    held, forbidden = (text.decode() for text in connection.run(connection.client(beside), LOOK, beside, key, needed))
    if forbidden:
        raise TargetRefused(
            f"this user may not run {forbidden} on keys such as {layout.key.text!r}",
            hint='the page "Redis", "Privileges", has the ACL line: its pattern must let in every key of this sink',
        )
    expected = HOLDS.get(layout.kind)
    if literal is not None and (held == "receipts" or (expected is not None and held not in ("none", expected))):
        raise TargetRefused(
            f"the key {layout.key.text!r} holds {held if held == 'receipts' else 'a ' + held}, "
            f"not a {expected or 'string'}",
            hint="name another key, or remove this one",
        )
