"""Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from onceward.testing.servers.base import Server


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
