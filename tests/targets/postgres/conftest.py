"""A schema of its own for every test, and nothing left prepared after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

from onceward.connections.postgres import Address, pooled
from onceward.sinks import PostgresSink
from onceward.testing.servers import PostgresServer

_NUMBERS = count(1)


@dataclass(frozen=True)
class Place:
    """An empty schema of the server, and sinks and rows in it."""

    server: PostgresServer
    schema: str
    port: int | None = None

    @property
    def url(self) -> str:
        port = self.port or self.server.port
        return f"postgresql://owner@127.0.0.1:{port}/postgres?options={quote(f'-csearch_path={self.schema}')}"

    def sink(self, **options: Any) -> PostgresSink:
        return PostgresSink(self.url, **{"table": "rows", **options})

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with pooled(Address.parse(self.server.url)) as session:
            return session.run(statement.replace("~", f'"{self.schema}"'), *parameters)

    def rows(self, table: str = "rows") -> list[dict[str, Any]]:
        if not self.query("SELECT to_regclass($1)::text", f'"{self.schema}"."{table}"')[0][0]:
            return []
        described = self.query(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            f'"{self.schema}"."{table}"',
        )
        names = [name for (name,) in described]
        return [dict(zip(names, row, strict=True)) for row in self.query(f'SELECT * FROM ~."{table}" ORDER BY ctid')]

    def prepared(self) -> list[str]:
        return [gid for (gid,) in self.query("SELECT gid::text FROM pg_prepared_xacts")]

    def empty(self) -> None:
        """Nothing prepared, no rows, no receipts: faster than a new schema."""
        for gid in self.prepared():
            self.query(f"ROLLBACK PREPARED '{gid}'")
        for table in ("rows", "onceward_receipts", "onceward_watermarks"):
            self.query(f"DELETE FROM ~.{table}")

    def clear(self) -> None:
        for gid in self.prepared():
            self.query(f"ROLLBACK PREPARED '{gid}'")
        self.query("DROP SCHEMA IF EXISTS ~ CASCADE")
        self.query("CREATE SCHEMA ~")


@pytest.fixture
def place(postgres: PostgresServer) -> Iterator[Place]:
    place = Place(postgres, f"test_{next(_NUMBERS)}")
    place.clear()
    yield place
    place.clear()
    place.query("DROP SCHEMA ~")
