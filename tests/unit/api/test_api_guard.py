"""Who may not use the API: whoever has no token, calls it by another name, or asks from another site's page."""

from __future__ import annotations

from typing import Any

import pytest
from api_client import Client
from api_world import TOKEN, World

from onceward.api import ApiConfig
from onceward.api.app import build_app, guarded_app
from onceward.api.guard import MOST_BYTES

JSON = {"Content-Type": "application/json"}


def every_operation(world: World) -> list[tuple[str, str]]:
    described = build_app(world.served).openapi()
    found = [
        (method.upper(), path.replace("{epoch}", "1")) for path, item in described["paths"].items() for method in item
    ]
    return [*found, ("GET", "/openapi.json"), ("GET", "/nowhere"), ("OPTIONS", "/v1/stop")]


def guarded(world: World, **config: Any) -> Client:
    return Client(guarded_app(world.served, ApiConfig(**config), TOKEN), token=TOKEN)


@pytest.mark.parametrize("token", [None, "wrong", TOKEN[:-1], TOKEN + "x", "", " ", "ü" * 22])
def test_nothing_but_the_probe_answers_without_the_token(world: World, token: str | None) -> None:
    client = Client(guarded_app(world.served, ApiConfig(), TOKEN))
    asked = every_operation(world)
    assert ("POST", "/v1/stop") in asked
    for method, path in asked:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        reply = client.send(method, path, headers)
        if path == "/alive":
            assert (reply.status, reply.json) == (200, {"alive": True})
            continue
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer"), (method, path)
        assert TOKEN not in reply.body.decode()
    assert world.run.stops == 0


@pytest.mark.parametrize("header", [TOKEN, f"Basic {TOKEN}", f"Bearer{TOKEN}", f"bearer  {TOKEN}x"])
def test_the_token_counts_only_as_a_bearer(world: World, header: str) -> None:
    client = Client(guarded_app(world.served, ApiConfig(), TOKEN))
    assert client.get("/v1/status", {"Authorization": header}).status == 401
    assert client.get("/v1/status", {"Authorization": f"bearer {TOKEN}"}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.5", "[::2]:80", "", "[", None]
)
def test_another_name_is_refused_even_with_the_token(world: World, host: str | None) -> None:
    """So a name that its owner has pointed at this host (DNS rebinding) opens nothing."""
    client = guarded(world)
    for method, path in every_operation(world):
        assert client.send(method, path, host=host).status == 403, (method, path)
    assert world.run.stops == 0


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost:9", "LOCALHOST.", "[::1]:8080", "127.0.0.2"]
)
def test_loopback_by_any_of_its_names_is_ours(world: World, host: str) -> None:
    """Also by another port: a tunnel has its own."""
    assert guarded(world).get("/v1/status", host=host).status == 200


def test_beyond_loopback_the_address_that_was_called_and_the_names_that_were_given(world: World) -> None:
    client, called = guarded(world, host="0.0.0.0", names=("Driver.example",)), ("10.0.0.7", 8080)
    for host, status in (("10.0.0.7:8080", 200), ("driver.example", 200), ("10.0.0.8", 403), ("localhost", 403)):
        assert client.get("/v1/status", host=host, called=called).status == status, host
    assert client.get("/v1/status", host="localhost", called=("::ffff:127.0.0.1", 8080)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_the_page_of_another_site_is_refused_even_with_the_token(world: World, headers: dict[str, str]) -> None:
    client = guarded(world)
    for method, path in every_operation(world):
        reply = client.send(method, path, headers)
        assert reply.status == 403, (method, path)
        assert not any(name.startswith("access-control") for name in reply.headers)
    assert world.run.stops == 0


def test_a_page_of_this_server_may_ask_it(world: World) -> None:
    headers = {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}
    assert guarded(world).get("/v1/status", headers).status == 200


def test_a_preflight_is_granted_nothing(world: World) -> None:
    headers = {"Origin": "http://127.0.0.1:8080", "Access-Control-Request-Method": "POST"}
    reply = guarded(world).send("OPTIONS", "/v1/stop", headers)
    assert reply.status == 405
    assert not any(name.startswith("access-control") for name in reply.headers)


def test_a_body_is_json_of_a_known_and_small_size(client: Client) -> None:
    body = b'{"level": "INFO"}'

    def put(headers: dict[str, str], sent: bytes = body) -> int:
        return client.send("PUT", "/v1/log-level", headers, body=sent).status

    assert put(JSON) == 200
    assert put({"Content-Type": "application/json; charset=utf-8"}) == 200
    assert put({"Content-Type": "text/plain"}) == 415
    assert put({"Content-Type": "application/x-www-form-urlencoded"}) == 415
    assert put({}) == 415
    assert put(JSON | {"Content-Length": str(MOST_BYTES + 1)}) == 413
    assert put(JSON | {"Content-Length": "-1"}) == 411
    assert put(JSON | {"Transfer-Encoding": "chunked"}) == 411


def test_no_cookie_is_set_and_no_page_loads_scripts_from_elsewhere(client: Client) -> None:
    for path in ("/v1/status", "/metrics", "/alive"):
        assert "set-cookie" not in client.get(path).headers
    for path in ("/docs", "/redoc", "/"):
        assert client.get(path).status == 404


def test_a_web_socket_is_closed(world: World) -> None:
    import asyncio

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read of it")

    scope = {"type": "websocket", "path": "/v1/status", "headers": []}
    asyncio.run(guarded_app(world.served, ApiConfig(), TOKEN)(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
