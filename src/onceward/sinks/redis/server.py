"""How the server is reached, and whether it can be trusted with receipts. No message ever holds the URL's password."""

from __future__ import annotations

import logging
import secrets
from binascii import crc_hqx
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from onceward.errors import ConfigurationError, TargetRefused
from onceward.sinks.redis.layout import Layout
from onceward.sinks.redis.packing import packed_array, packed_texts
from onceward.sinks.redis.scripts import TRY

if TYPE_CHECKING:
    import redis

log = logging.getLogger("onceward")

OLDEST_SERVER = (6, 2)
HASH_SLOTS = 16384
_SCHEMES = ("redis", "rediss", "unix")
_COMMANDS: dict[str, list[list[str]]] = {
    "string": [["SET", "1"], ["MSET", "1"], ["UNLINK"], ["TYPE"]],
    "hash": [["TYPE"], ["HSET", "f", "1"], ["HDEL", "f"], ["UNLINK"]],
    "field": [["TYPE"], ["HSET", "f", "1"], ["HDEL", "f"]],
    "zset": [["TYPE"], ["ZADD", "1", "m"], ["ZREM", "m"]],
    "incr": [["TYPE"], ["GET"], ["INCRBY", "1"], ["INCRBYFLOAT", "1"]],
    "hincr": [["TYPE"], ["HGET", "f"], ["HINCRBY", "f", "1"], ["HINCRBYFLOAT", "f", "1"]],
}
_OF_RECEIPTS = [["UNLINK"], ["HSET", "f", "1"], ["HGET", "f"], ["HMGET", "f"], ["HKEYS"], ["HSCAN", "0"], ["HDEL", "f"]]


def driver() -> Any:
    """The module `redis`, or what to install."""
    try:
        import redis
    except ImportError:
        raise ConfigurationError(
            "the Redis driver is not installed", hint="run: pip install 'onceward[redis]'"
        ) from None
    return redis


def checked_url(url: str) -> str:
    """`url` if a server can be reached by it, else a refusal that does not repeat it: it may hold a password."""
    try:
        parts = urlsplit(url)
        port, query = parts.port, parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigurationError("the URL of the Redis server cannot be read", hint=_URL_HINT) from None
    unknown = [name for name, _ in query if name not in ("db", "client_name") and not name.startswith("ssl_")]
    database = parts.path.strip("/") if parts.scheme != "unix" else ""
    if parts.scheme not in _SCHEMES or port == 0 or (database and not database.isdecimal()):
        raise ConfigurationError("the URL of the Redis server cannot be read", hint=_URL_HINT)
    if unknown:
        raise ConfigurationError(
            f"the URL sets {unknown[0]!r}", hint="only db, client_name and ssl_... may stand after the question mark"
        )
    return url


_URL_HINT = (
    "write redis://user:password@host:6379/0, rediss://... for TLS, or unix:///path/to/socket; "
    "a password with / : @ # or % in it has to be percent-encoded"
)


def address(url: str) -> str:
    """Where that is, for messages: without user and password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


@dataclass
class Way:
    """Open connections to the server that the URL names and, in a cluster, to the others."""

    seed: redis.Redis
    is_cluster: bool
    _open_node: Any
    _nodes: dict[tuple[str, int], redis.Redis] = field(default_factory=dict)
    _places: list[tuple[int, int, tuple[str, int]]] = field(default_factory=list)
    _loaded: dict[tuple[int, str], str] = field(default_factory=dict)

    def client(self, key: str) -> redis.Redis:
        """The connection to the server that has this key."""
        return self.client_of(hash_slot(key.encode())) if self.is_cluster else self.seed

    def client_of(self, slot: int) -> redis.Redis:
        """The connection to the server that has this hash slot."""
        if not self._places:
            self._places = _places(self.seed)
        for first, last, place in self._places:
            if first <= slot <= last:
                if place not in self._nodes:
                    self._nodes[place] = self._open_node(place)
                return self._nodes[place]
        raise ConnectionError(f"the cluster has no server for hash slot {slot} at present")

    def script(self, client: redis.Redis, source: str) -> str:
        """The name under which this server knows the script; sent once a connection, for it may have restarted."""
        known = (id(client), source)
        if known not in self._loaded:
            self._loaded[known] = str(client.script_load(source))
        return self._loaded[known]

    def run(self, client: redis.Redis, source: str, key: str, *arguments: str | int | bytes) -> Any:
        """Run the script for a key that this server has."""
        return client.evalsha(self.script(client, source), 1, key, *arguments)


@contextmanager
def opened(url: str, timeout_s: float) -> Iterator[Way]:
    """Connect, without the driver's own repetitions: who repeats is decided by the receipt."""
    redis = driver()
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    options = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "retry": retry}

    with ExitStack() as stack:

        def connect(place: tuple[str, int] | None = None) -> Any:
            pool = redis.ConnectionPool.from_url(url, **options)
            if place is not None:
                pool.connection_kwargs.update(host=place[0] or pool.connection_kwargs["host"], port=place[1])
            stack.callback(pool.disconnect)
            return redis.Redis(connection_pool=pool)

        seed = connect()
        yield Way(seed, bool(seed.info("cluster").get("cluster_enabled")), connect)


def _places(seed: redis.Redis) -> list[tuple[int, int, tuple[str, int]]]:
    """First and last hash slot of each range, and its primary. Older drivers make a dictionary of the reply."""
    found: Any = seed.cluster("SLOTS")
    if isinstance(found, dict):
        found = [(*bounds, nodes["primary"]) for bounds, nodes in found.items()]
    places = []
    for first, last, (host, port, *_), *_replicas in found:
        places.append((int(first), int(last), (host.decode() if isinstance(host, bytes) else str(host), int(port))))
    return places


def hash_slot(key: bytes) -> int:
    """The hash slot of a key, as every server of a cluster computes it: of the part in braces, if there is one."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % HASH_SLOTS


# --- before the start ---------------------------------------------------------------------------------


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
