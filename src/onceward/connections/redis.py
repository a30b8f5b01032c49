"""How a Redis server or cluster is reached. No message ever holds the URL's password."""

from __future__ import annotations

import hashlib
from binascii import crc_hqx
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from onceward.errors import ConfigurationError

if TYPE_CHECKING:
    import redis

HASH_SLOTS = 16384
_SCHEMES = ("redis", "rediss", "unix")
_TRIES_TO_LOAD = 3


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


class NoServer(ConnectionError):
    """The cluster has no server for a hash slot at present."""


Call: TypeAlias = "tuple[redis.Redis, str | bytes, Sequence[str | int | bytes]]"
"""A script's call: the server, the key and the arguments."""


@dataclass
class RedisConnection:
    """Open connections to the server that the URL names and, in a cluster, to the others."""

    seed: redis.Redis
    is_cluster: bool
    info: Mapping[str, Any]
    """What the server that the URL names says of itself."""
    _open_node: Any
    _nodes: dict[tuple[str, int], redis.Redis] = field(default_factory=dict)
    _places: list[tuple[int, int, tuple[str, int]]] = field(default_factory=list)
    _loaded: set[tuple[int, str]] = field(default_factory=set)

    def client(self, key: str) -> redis.Redis:
        """The connection to the server that has this key."""
        return self.client_of(hash_slot(key.encode())) if self.is_cluster else self.seed

    def client_of(self, slot: int) -> redis.Redis:
        """The connection to the server that has this hash slot."""
        for first, last, place in self._known_places():
            if first <= slot <= last:
                if place not in self._nodes:
                    self._nodes[place] = self._open_node(place)
                return self._nodes[place]
        raise NoServer(f"the cluster has no server for hash slot {slot} at present")

    def primaries(self) -> list[redis.Redis]:
        """A connection to every server that takes writes."""
        if not self.is_cluster:
            return [self.seed]
        return list({id(one): one for one in (self.client_of(first) for first, _, _ in self._known_places())}.values())

    def run(self, client: redis.Redis, source: str, key: str | bytes, *arguments: str | int | bytes) -> Any:
        """Run the script for a key that this server has. It is sent once a connection, for the server may be new.

        One that was started anew in between (the driver connects again by itself), took over from another or was told
        to flush its scripts does not know it. It has run nothing then: asking it once more repeats nothing.
        """
        if (id(client), source) not in self._loaded:
            client.script_load(source)
            self._loaded.add((id(client), source))
        no_script = driver().exceptions.NoScriptError
        for _ in range(_TRIES_TO_LOAD):
            try:
                return client.evalsha(sha_of(source), 1, key, *arguments)
            except no_script:
                client.script_load(source)
        return client.evalsha(sha_of(source), 1, key, *arguments)

    def run_all(self, source: str, calls: Sequence[Call]) -> list[Any]:
        """Run the script for each call; those for one server go in one go, in their order. The answers, in order."""
        pipelines: dict[int, tuple[redis.client.Pipeline, list[int]]] = {}
        for index, (client, key, arguments) in enumerate(calls):
            if id(client) not in pipelines:
                pipelines[id(client)] = client.pipeline(transaction=False), []
                pipelines[id(client)][0].script_load(source)
            pipeline, indexes = pipelines[id(client)]
            pipeline.evalsha(sha_of(source), 1, key, *arguments)
            indexes.append(index)
        answers: dict[int, Any] = {}
        for pipeline, indexes in pipelines.values():
            answers.update(zip(indexes, pipeline.execute(raise_on_error=False)[1:], strict=True))
        for index, (client, key, arguments) in enumerate(calls):
            if isinstance(answers[index], driver().exceptions.NoScriptError):
                # Its scripts were flushed in the middle of the pipeline.
                answers[index] = self.run(client, source, key, *arguments)
            if isinstance(answers[index], Exception):
                raise answers[index]
        return [answers[index] for index in range(len(calls))]

    def _known_places(self) -> list[tuple[int, int, tuple[str, int]]]:
        if not self._places:
            self._places = _places(self.seed)
        return self._places


@lru_cache(maxsize=16)
def sha_of(source: str) -> str:
    """The name under which servers know a script."""
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


@contextmanager
def opened(url: str, timeout_s: float) -> Iterator[RedisConnection]:
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
        info: Mapping[str, Any] = seed.info()
        yield RedisConnection(seed, bool(info.get("cluster_enabled")), info, connect)


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


@lru_cache(maxsize=1)
def tags() -> tuple[str, ...]:
    """For each hash slot the smallest number that, as text in braces, puts a key there."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < HASH_SLOTS:
        found.setdefault(hash_slot(str(number).encode()), str(number))
        number += 1
    return tuple(found[slot] for slot in range(HASH_SLOTS))


@contextmanager
def patient_client(url: str, timeout_s: float) -> Iterator[redis.Redis]:
    """The driver's own client, which repeats commands and follows keys that move: for what may be done twice."""
    redis = driver()
    options = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    with redis.Redis.from_url(url, **options) as client:
        if not client.info("cluster").get("cluster_enabled"):
            yield client
            return
    with redis.RedisCluster.from_url(url, **options) as cluster:
        yield cluster
