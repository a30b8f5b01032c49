"""A database of each kind for one test alone, which may kill or stop them, and what readers find in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from onceward.connections.postgres import Address, pooled
from onceward.testing.servers import MariaDBServer, PostgresServer, RedisServer

from .workspace import SparkWorkspace

DRIVER = Path(__file__).with_name("servers_driver.py")
COMMAND = ["-c", "from onceward.cli import main; main()", "run", str(DRIVER), "--json", "--spark-log"]


class Tables:
    """What readers of the database see, asked for again while the server is down."""

    def __init__(self, server: PostgresServer) -> None:
        self.address = Address.parse(server.url)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with pooled(self.address) as session:
            return session.run(statement)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [{"id": i, "file": f, "luck": x} for i, f, x in self.query(f"SELECT id, file, luck FROM {table}")]


@dataclass(frozen=True)
class Servers:
    """One of each kind, for this test alone: they are killed."""

    postgres: PostgresServer
    mariadb: MariaDBServer
    redis: RedisServer

    @property
    def urls(self) -> dict[str, str]:
        return {"postgres": self.postgres.url, "mysql": self.mariadb.url, "redis": self.redis.url}

    def counts(self) -> dict[int, int]:
        """How often Redis has counted each id."""
        with redis.Redis.from_url(self.redis.url) as client:
            return {int(field): int(count) for field, count in client.hgetall("seen").items()}

    def mysql_rows(self, table: str = "added") -> list[dict[str, Any]]:
        found = self.mariadb.query(f"SELECT id, file, luck FROM {table}")
        return [{"id": i, "file": f, "luck": x} for i, f, x in found]


def starts(workspace: SparkWorkspace) -> int:
    """How many drivers have come so far that recovery is next."""
    path = workspace.work / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0
