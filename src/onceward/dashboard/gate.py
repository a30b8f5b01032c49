"""Before anything of the dashboard: who asks, by which name, from which page, and whether with a key.

The page itself (HTML, script, style) is the same for everybody and needs no key, so that a shared link opens it. All
that it shows is asked for by requests that do: a cookie that is given for the token in the printed address. It is sent
by no other site's page (`SameSite=Strict`), no script can read it, and whatever changes something must also carry a
header that no other site's page can add.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.responses import JSONResponse, RedirectResponse, Response

from onceward.api.guard import (
    App,
    OutermostLayer,
    Receive,
    Scope,
    Send,
    headers_of,
    is_same_origin,
    named_as_ours,
    refused,
    unfit_body,
)
from onceward.dashboard.config import DashboardConfig

HEADER: Final = "x-onceward"
_SAFE: Final = ("GET", "HEAD")
_POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "img-src 'self' data:"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Gate(OutermostLayer):
    """That of the dashboard. Refuses in this order: name, origin, key, method, body."""

    def __init__(
        self,
        app: App,
        config: DashboardConfig,
        token: str,
        *,
        base: str = "",
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(app, token, config.names)
        self._config, self._base, self._on_close = config, base, on_close
        # The cookie is made of the token, and does not tell it.
        self._key = hmac.new(self._token, b"onceward dashboard cookie", hashlib.sha256).hexdigest()

    def close(self) -> None:
        """See `OutermostLayer.close`."""
        self._on_close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = {**scope, "path": self._path(scope["path"]), "root_path": ""}
        answer = self._own_answer(inner, headers_of(scope))
        await (answer or self._app)(inner, receive, _with_headers(send))

    def _path(self, path: str) -> str:
        """Without the prefix, whether a proxy has taken it off or not."""
        for prefix in (self._base, self._config.prefix):
            if prefix and (path == prefix or path.startswith(f"{prefix}/")):
                path = path[len(prefix) :]
        return path

    def _own_answer(self, scope: Scope, headers: Mapping[str, list[str]]) -> Response | None:
        hosts = headers.get("host", [])
        if not named_as_ours(hosts, scope, self._names):
            return refused(403, "ForeignHost", "this server does not answer to that name", "see --name")
        is_page = scope["method"] in _SAFE and not scope["path"].startswith("/api/")
        if is_page and scope["path"] == "":
            # Its addresses are relative, so the page must be asked for as a folder.
            return RedirectResponse(f"{self._config.prefix}{self._base}/", status_code=307)
        if is_page and scope["path"] == "/":
            # A link in another page may lead here. The page has nothing of a job in it.
            return self._entered(scope)
        if not is_same_origin(headers, hosts[0]):
            return refused(403, "ForeignOrigin", "a page of another site asks", "open the dashboard itself")
        if is_page:
            return None
        is_login = (scope["method"], scope["path"]) == ("POST", "/api/login")
        if not is_login and not self._has_key(scope, headers):
            return refused(401, "Unauthorized", "no key", "open the address that the command has printed")
        if scope["method"] not in _SAFE:
            if headers.get(HEADER) != ["1"]:
                return refused(403, "NotFromThePage", f"the header {HEADER} is missing", f"send {HEADER}: 1")
            if self._config.read_only and not is_login:
                return refused(403, "ReadOnly", "this dashboard is read-only", "start it without --read-only")
        return unfit_body(headers)

    def _entered(self, scope: Scope) -> Response | None:
        """The address with its token: the cookie is set, and the token leaves the address bar."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if len(given) != 1 or not self.is_token(given[0]):
            return None
        answer = RedirectResponse(f"{self._config.prefix}{self._base}/", status_code=303)
        self.give_key(answer, scope)
        return answer

    def give_key(self, answer: Response, scope: Scope) -> None:
        """Until the browser is closed, to requests of the page itself only."""
        answer.set_cookie(
            self._cookie(scope), self._key, httponly=True, samesite="strict", path=f"{self._config.prefix}{self._base}/"
        )

    def _cookie(self, scope: Scope) -> str:
        """Browsers do not tell two servers on one host apart by their ports, so the name does."""
        port = (scope.get("server") or ("", 0))[1]
        return f"onceward-{port or 0}"

    def _has_key(self, scope: Scope, headers: Mapping[str, list[str]]) -> bool:
        if "authorization" in headers:
            return self._is_bearer(headers)
        try:
            cookies = SimpleCookie("; ".join(headers.get("cookie", [])))
        except CookieError:
            return False
        found = cookies.get(self._cookie(scope))
        return found is not None and hmac.compare_digest(found.value.encode("utf-8", "replace"), self._key.encode())

    def login(self, scope: Scope, token: str) -> Response:
        """For who has the token and not the address that it was printed with."""
        if not self.is_token(token):
            return refused(401, "Unauthorized", "that is not the token", "it is in the address that was printed")
        answer = JSONResponse({"entered": True})
        self.give_key(answer, scope)
        return answer


def _with_headers(send: Send) -> Send:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in given]
            if b"cache-control" not in given:
                more.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending
