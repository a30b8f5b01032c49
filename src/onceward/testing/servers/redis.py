"""Redis, alone or as a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Self

from onceward.testing.servers.base import Server, free_port


class RedisServer(Server):
    """A server of its own that forces every write to the disk. Settings are those of redis.conf."""

    package: ClassVar[str] = "redis-server"
    programs: ClassVar[tuple[str, ...]] = ("redis-server", "valkey-server")

    @property
    def url(self) -> str:
        """Where sinks find it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str]:
        """See `Server.command`."""
        settings = {"appendonly": "yes", "appendfsync": "always", "save": "", **self.settings}
        options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        return [
            self.program,
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--daemonize", "no"),
            *options,
        ]

    def answers(self) -> bool:
        """See `Server.answers`."""
        import redis

        with redis.Redis.from_url(self.url) as client:
            return bool(client.ping())


class RedisCluster:
    """Three servers that share the hash slots among them. `url` is that of the first."""

    def __init__(self, **settings: str | int) -> None:
        self.nodes = [ClusterNode(**settings) for _ in range(3)]

    @property
    def url(self) -> str:
        """Where sinks find it; they learn of the others by themselves."""
        return self.nodes[0].url

    def start(self) -> Self:
        """Start all of them and let them meet; returns once every hash slot is served."""
        import redis

        for node in self.nodes:
            node.start()
        clients = [redis.Redis.from_url(node.url) for node in self.nodes]
        bounds = [0, 5461, 10923, 16384]
        for client, (first, past) in zip(clients, pairwise(bounds), strict=True):
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, past - 1)  # type: ignore[no-untyped-call]
            first_node = ("127.0.0.1", self.nodes[0].port, self.nodes[0].settings["cluster-port"])
            client.execute_command("CLUSTER MEET", *first_node)  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + 60.0
        while not all(_is_whole(client) for client in clients):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster did not come together:\n{self.nodes[0].log[-4000:]}")
            time.sleep(0.05)
        for client in clients:
            client.close()
        return self

    def close(self) -> None:
        """End all of them and remove their data."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


class ClusterNode(RedisServer):
    """One server of a cluster."""

    def command(self) -> Sequence[str]:
        """See `Server.command`. Its servers talk to each other on ports of their own."""
        self.settings.setdefault("cluster-port", free_port())
        return [*super().command(), "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]


def _is_whole(client: Any) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "3")
