"""Which commands a sink runs on its rows' keys, each with arguments to try it with and without its key.

The scripts ask for each of them whether this user may run it, before the first write; `check` tries them.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceward.sinks.redis.options import Layout
from onceward.sinks.redis.packing import packed_array, packed_texts

Lines = Sequence[Sequence[str]]

OF_RECEIPTS: Lines = [
    *(["UNLINK"], ["HSET", "f", "1"], ["HGET", "f"], ["HMGET", "f"]),
    *(["HKEYS"], ["HSCAN", "0"], ["HDEL", "f"]),
]
_ALWAYS: dict[str, Lines] = {
    "string": [["SET", "1"], ["MSET", "1"]],
    "hash": [["HSET", "f", "1"]],
    "field": [["HSET", "f", "1"]],
    "zset": [["ZADD", "1", "m"]],
    "incr": [["INCRBY", "1"]],
    "hincr": [["HINCRBY", "f", "1"]],
}
_FRACTIONS: dict[str, Lines] = {"incr": [["SET", "1"]], "hincr": [["HSET", "f", "1"]]}
_FOR_NULLS: dict[str, Lines] = {
    "string": [["UNLINK"]],
    "hash": [["HDEL", "f"], ["UNLINK"]],
    "field": [["HDEL", "f"]],
    "zset": [["ZREM", "m"]],
}
_READS: dict[str, Lines] = {"incr": [["GET"]], "hincr": [["HGET", "f"]]}


def writing(layout: Layout, *, fractions: bool, nulls: bool) -> Lines:
    """What writes rows of a counter with `fractions` or without; and with `nulls`, which remove something."""
    return [
        *(_FRACTIONS if fractions else _ALWAYS)[layout.kind],
        *(_FOR_NULLS.get(layout.kind, []) if nulls else []),
        *([["PEXPIRE", "1000"]] if layout.ttl_ms is not None else []),
    ]


def all_of(layout: Layout, *, fractions: bool) -> Lines:
    """Everything, in the order in which it can be tried on one key."""
    return [["TYPE"], *_READS.get(layout.kind, []), *writing(layout, fractions=fractions, nulls=True)]


def packed(lines: Lines) -> bytes:
    """As the scripts read them."""
    return packed_array(len(lines), b"".join(packed_texts(line) for line in lines))
