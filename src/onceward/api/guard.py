"""Before any endpoint: who calls, by which name, from where, with what.

A page that a browser shows for another site can send requests to this host, under a name that it has pointed here
(DNS rebinding), and with whatever the browser adds by itself. So a request must name this server by an address or a
name that it was given, must not come from another origin, and must carry a token that no browser adds by itself.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

from starlette.responses import JSONResponse

from onceward.api.config import ApiConfig

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_BYTES: Final = 64 * 1024
WITHOUT_TOKEN: Final = frozenset({"/alive"})


class OutermostLayer:
    """Who is asked before an application is: it answers a request itself, or lets it through.

    `names` are those by which the server may be called beside its own address.
    """

    def __init__(self, app: App, token: str, names: Iterable[str]) -> None:
        self._app = app
        self._token = token.encode("ascii")
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. What is no HTTP (a web socket) is refused by not answering it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """The server ends: let go of whoever waits. Called in its loop."""

    def is_token(self, given: str) -> bool:
        """In constant time, so that nobody learns it letter by letter."""
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)

    def _is_bearer(self, headers: Mapping[str, list[str]]) -> bool:
        given = headers.get("authorization", [])
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(" ")
        return self.is_token(token.strip()) and scheme.lower() == "bearer"


class Guard(OutermostLayer):
    """That of the API. Refuses in this order: name, origin, token, body."""

    def __init__(self, app: App, config: ApiConfig, token: str) -> None:
        super().__init__(app, token, config.names)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope, headers_of(scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Mapping[str, list[str]]) -> JSONResponse | None:
        hosts = headers.get("host", [])
        if not named_as_ours(hosts, scope, self._names):
            return refused(403, "ForeignHost", "this server does not answer to that name", "use the url in api.json")
        if not is_same_origin(headers, hosts[0]):
            return refused(403, "ForeignOrigin", "a page of another site asks", "call it from a program")
        if scope["path"] not in WITHOUT_TOKEN and not self._is_bearer(headers):
            hint = "send Authorization: Bearer TOKEN; the token is in the checkpoint's onceward/api.json"
            answer = refused(401, "Unauthorized", "the token is missing or wrong", hint)
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        return unfit_body(headers)


def named_as_ours(hosts: Sequence[str], scope: Scope, names: Collection[str]) -> bool:
    """Whether the request calls this server by one of its names. An address cannot be pointed elsewhere by who owns a
    name: the one that was really called is ours."""
    host = _host(hosts[0]) if len(hosts) == 1 else None
    if host is None:
        return False
    if host in names:
        return True
    called = _address((scope.get("server") or ("",))[0])
    if called is None or called.is_loopback:
        # None: in-process, without a connection.
        address = _address(host)
        return host == "localhost" or (address is not None and address.is_loopback)
    return _address(host) == called


def headers_of(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A socket that takes both kinds shows those of the older kind as if they were of the newer.
    return getattr(found, "ipv4_mapped", None) or found


def _host(header: str) -> str | None:
    """Without its port: a tunnel may have another one."""
    if header.startswith("["):
        host, closed, _ = header[1:].partition("]")
        return host.lower() if closed else None
    return header.partition(":")[0].lower().rstrip(".") or None


def is_same_origin(headers: Mapping[str, list[str]], host: str) -> bool:
    """Programs send no Origin. A page that this server itself has given sends its own."""
    origins = headers.get("origin", [])
    if any(origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}") for origin in origins):
        return False
    return all(site in ("same-origin", "none") for site in headers.get("sec-fetch-site", []))


def unfit_body(headers: Mapping[str, list[str]]) -> JSONResponse | None:
    """JSON only, of a known and small size: a form, which any page can send without being asked, is refused."""
    length = headers.get("content-length", ["0"])[0]
    if "transfer-encoding" in headers or not length.isascii() or not length.isdigit():
        return refused(411, "LengthRequired", "the body's length must be given", "send Content-Length")
    if int(length) > MOST_BYTES:
        return refused(413, "TooLarge", f"a body may have {MOST_BYTES} bytes", "send less")
    kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
    if int(length) and kind != "application/json":
        return refused(415, "NotJson", "the body must be JSON", "send Content-Type: application/json")
    return None


def refused(status: int, error: str, message: str, hint: str) -> JSONResponse:
    """In the words of every refusal."""
    return JSONResponse({"error": error, "message": message, "hint": hint}, status_code=status)
