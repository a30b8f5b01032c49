"""A schema of its own for every test, and nothing left prepared after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

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
        return self.server.query(statement.replace("~", f'"{self.schema}"'), *parameters)

    def rows(self, table: str = "rows") -> list[dict[str, Any]]:
        from adbc_driver_postgresql import dbapi

        if not self.query("SELECT to_regclass($1)::text", f'"{self.schema}"."{table}"')[0][0]:
            return []
        with dbapi.connect(self.server.url, autocommit=True) as session, session.cursor() as cursor:
            cursor.execute(f'SELECT * FROM "{self.schema}"."{table}" ORDER BY ctid')
            return list(cursor.fetch_arrow_table().to_pylist())

    def prepared(self) -> list[str]:
        return [gid for (gid,) in self.query("SELECT gid::text FROM pg_prepared_xacts")]

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
