"""Whether the server can be trusted with receipts and lets us write: looked at before every start."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from onceward.connections.redis import NoServer, RedisConnection, driver, hash_slot, tags
from onceward.errors import TargetRefused, TargetUnavailable
from onceward.identity import SinkName
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.redis import commands
from onceward.sinks.redis.compatibility import adds_fractions
from onceward.sinks.redis.errors import classify
from onceward.sinks.redis.facts import TargetFacts
from onceward.sinks.redis.options import HOLDS, Layout, Options
from onceward.sinks.redis.receipts import key_of
from onceward.sinks.redis.scripts import LOOK, TRY

OLDEST_SERVER = (6, 2)
_BAD_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"


@contextmanager
def failures_as_refusals(address: str) -> Iterator[None]:
    """What the server does not let us see keeps the job from starting; whether another start may help is said."""
    try:
        yield
    except (driver().RedisError, NoServer) as error:
        what = f"cannot use the Redis server at {address}: {type(error).__name__}: {error}"
        if classify(error) is ErrorClass.RETRY and _BAD_CERTIFICATE not in str(error):
            hint = "check host and port, and that the server runs and takes writes"
            raise TargetUnavailable(what, hint=hint) from error
        raise TargetRefused(what, hint="check user, password and certificates") from error


def check(connection: RedisConnection, options: Options, schema: pa.Schema, *, sink: SinkName) -> TargetFacts:
    """What the server's promises rest on; raises `TargetRefused` when it could lose receipts, or refuses writes."""
    info = connection.info
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if version < OLDEST_SERVER:
        raise TargetRefused(f"the server is Redis {info['redis_version']}", hint="Redis 6.2 or newer is needed")
    if info.get("role") not in ("master", None) and not connection.is_cluster:
        raise TargetRefused("the server is a replica", hint="give the URL of the primary")
    if connection.is_cluster and options.database:
        raise TargetRefused(f"a cluster has no database {options.database}", hint="leave the number out of the URL")
    facts = TargetFacts.take(connection)
    for policy in facts.policies:
        if policy.startswith("allkeys"):
            raise TargetRefused(
                f"the server may evict any key when memory is short (maxmemory-policy {policy}), receipts too",
                hint="CONFIG SET maxmemory-policy noeviction, and in redis.conf; volatile-* will do as well: receipts "
                "never expire",
            )
    layout, fractions = options.layout, adds_fractions(options.layout, schema)
    scratch = f"{key_of(options.receipts_prefix, '', sink)}check"
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
