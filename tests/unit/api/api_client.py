"""Requests to an application in this process, byte for byte as they are given: no library mends them on the way."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Speaks ASGI."""

    def __init__(self, app: Any, *, token: str | None = None, called: tuple[str, int] = ("127.0.0.1", 8080)) -> None:
        self._app, self._token, self._called = app, token, called

    def get(self, path: str, headers: dict[str, str] | None = None, **more: Any) -> Reply:
        return self.send("GET", path, headers, **more)

    def send(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        host: str | None = "127.0.0.1:8080",
        token: str | None = "",
        called: tuple[str, int] | None = None,
    ) -> Reply:
        given = {} if host is None else {"host": host}
        wanted = self._token if token == "" else token
        given |= {} if wanted is None else {"authorization": f"Bearer {wanted}"}
        given |= {"content-length": str(len(body))} if body else {}
        given |= {name.lower(): value for name, value in (headers or {}).items()}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 50000),
            "server": called or self._called,
        }
        sent: list[Any] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return waiting.pop() if waiting else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))
        headers_back = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], headers_back, b"".join(one.get("body", b"") for one in sent[1:]))
