"""Whether the server can be trusted with receipts and lets us write: looked at before every start."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any

from onceward.connections.redis import Way, hash_slot
from onceward.errors import TargetRefused
from onceward.sinks.redis.layout import Layout
from onceward.sinks.redis.packing import packed_array, packed_texts
from onceward.sinks.redis.scripts import TRY

log = logging.getLogger("onceward")

OLDEST_SERVER = (6, 2)
_COMMANDS: dict[str, list[list[str]]] = {
    "string": [["SET", "1"], ["MSET", "1"], ["UNLINK"], ["TYPE"]],
    "hash": [["TYPE"], ["HSET", "f", "1"], ["HDEL", "f"], ["UNLINK"]],
    "field": [["TYPE"], ["HSET", "f", "1"], ["HDEL", "f"]],
    "zset": [["TYPE"], ["ZADD", "1", "m"], ["ZREM", "m"]],
    "incr": [["TYPE"], ["GET"], ["INCRBY", "1"], ["INCRBYFLOAT", "1"]],
    "hincr": [["TYPE"], ["HGET", "f"], ["HINCRBY", "f", "1"], ["HINCRBYFLOAT", "f", "1"]],
}
_OF_RECEIPTS = [["UNLINK"], ["HSET", "f", "1"], ["HGET", "f"], ["HMGET", "f"], ["HKEYS"], ["HSCAN", "0"], ["HDEL", "f"]]


def refuse_unless_able(way: Way, layout: Layout, *, database: int, scratch: str) -> None:
    """Raise `TargetRefused` when the server could lose receipts, or does not let us write."""
    info: Mapping[str, Any] = way.seed.info()
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if version < OLDEST_SERVER:
        raise TargetRefused(f"the server is Redis {info['redis_version']}", hint="Redis 6.2 or newer is needed")
    if info.get("role") not in ("master", None) and not way.is_cluster:
        raise TargetRefused("the server is a replica", hint="give the URL of the primary")
    if way.is_cluster and database:
        raise TargetRefused(f"a cluster has no database {database}", hint="leave the number out of the URL")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        raise TargetRefused(
            f"the server may evict any key when memory is short (maxmemory-policy {policy}), receipts too",
            hint="set maxmemory-policy to noeviction or to one of volatile-*: receipts never expire",
        )
    if not info.get("aof_enabled"):
        log.warning(
            "Redis keeps no append-only file: rows and receipts since its last snapshot are lost together when it stops"
        )
    _refuse_commands(way, layout, scratch)
    _refuse_key(way, layout)


def _refuse_commands(way: Way, layout: Layout, scratch: str) -> None:
    commands = [*_COMMANDS[layout.kind], *([["PEXPIRE", "1000"]] if layout.ttl_ms is not None else [])]
    for lines in (_OF_RECEIPTS, commands):
        key = f"{scratch}:{secrets.token_hex(8)}"
        lists = [packed_texts(line) for line in lines]
        refused = way.run(way.client(key), TRY, key, packed_array(len(lists), b"".join(lists)))
        if refused:
            raise TargetRefused(
                f"the server does not let this user write: {refused[0].decode(errors='replace')}",
                hint="docs/targets/redis.md lists the commands and keys that the sink needs",
            )


def _refuse_key(way: Way, layout: Layout) -> None:
    """The key itself where there is only one; else one that begins as all of them do."""
    literal = layout.key.literal
    key = literal if literal is not None else layout.key.prefix
    if not key:
        return
    client = way.client_of(hash_slot(key)) if way.is_cluster else way.seed
    found: Any = client.type(key)
    expected = {"string": b"string", "incr": b"string", "zset": b"zset"}.get(layout.kind, b"hash")
    if literal is not None and layout.kind != "string" and found not in (b"none", expected):
        raise TargetRefused(
            f"the key {layout.key.text!r} holds a {found.decode()}, not a {expected.decode()}",
            hint="name another key, or remove this one",
        )
