"""The thread that answers: begun with a run, ended with it.

Endpoints run in a few threads of its own. They hold no lock that an epoch needs for longer than it takes to copy a
list.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceward.api.config import ApiConfig
from onceward.api.discovery import Discovery, remove_discovery, write_discovery
from onceward.errors import ConfigurationError

if TYPE_CHECKING:
    from uvicorn import Server

    from onceward.api.guard import App, OutermostLayer, Receive, Scope, Send
    from onceward.api.served import Served

log = logging.getLogger("onceward")

_THREADS: Final = 4
"""So many requests are worked on at once; each thread that asks Spark has a thread in the JVM."""
_CONNECTIONS: Final = 64
_SHUTDOWN_GRACE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Mounted:
    """Another application of the same server, under a path, with a guard of its own."""

    path: str
    app: Callable[[Served], OutermostLayer]


class _Router:
    """The API, or what is mounted: by the first part of the path."""

    def __init__(self, api: App, path: str, other: App) -> None:
        self._api, self._path, self._other = api, path, other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_other = path == self._path or path.startswith(f"{self._path}/")
        await (self._other if is_other else self._api)(scope, receive, send)


class ApiServer:
    """Made before a run, so that an address that is taken is told before anything moves; `serve` begins to answer."""

    def __init__(self, config: ApiConfig, *, mounted: Mounted | None = None) -> None:
        require_extra()
        self._mounted = mounted
        self._config, self._token = config, config.token()
        self._socket = bound(config)
        self.url = address_of(config, self._socket.getsockname()[1])
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        self._checkpoint = Path()
        self._discovery: Discovery | None = None

    def serve(self, served: Served) -> None:
        """Begin to answer, then say where, in the file beside the checkpoint."""
        from onceward.api.app import guarded_app
        from onceward.api.quiet import ServerBeneath

        app: App = guarded_app(served, self._config, self._token)
        ending: Callable[[], None] = lambda: None  # noqa: E731
        if self._mounted is not None:
            other = self._mounted.app(served)
            app, ending = _Router(app, self._mounted.path, other), other.close
        self._server = ServerBeneath(app, connections=_CONNECTIONS, shutdown_grace_s=1, on_end=ending)
        # From here on whoever comes waits, if only for a moment: the file must not name a server that refuses.
        self._socket.listen(_CONNECTIONS)
        self._thread = threading.Thread(target=self._work, name="onceward-api", daemon=True)
        self._thread.start()
        self._checkpoint = Path(served.checkpoint)
        self._discovery = Discovery(
            url=self.url,
            token=self._token,
            pid=os.getpid(),
            host=socket.gethostname(),
            checkpoint=served.checkpoint,
            run=served.context.run,
        )
        write_discovery(self._checkpoint, self._discovery)
        # Where nobody closes the run. A process that is killed leaves the file, and its number tells that it is gone.
        atexit.register(self._forget)
        log.info("the API answers at %s; its token is in %s", self.url, self._checkpoint / "onceward" / "api.json")

    def close(self) -> None:
        """The run has ended. May be called again."""
        self._forget()
        atexit.unregister(self._forget)
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_SHUTDOWN_GRACE_S)
        self._socket.close()

    def _forget(self) -> None:
        if self._discovery is not None:
            with contextlib.suppress(OSError):
                remove_discovery(self._checkpoint, self._discovery)
            self._discovery = None

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            # Deliveries do not depend on it.
            log.warning("the API of this run answers no more", exc_info=True)

    async def _serve(self) -> None:
        from anyio import to_thread

        assert self._server is not None, "made before the thread"
        to_thread.current_default_thread_limiter().total_tokens = _THREADS
        await self._server.serve(sockets=[self._socket])


def address_of(config: ApiConfig, port: int) -> str:
    """Where it answers on this host."""
    host = config.address
    if host.is_unspecified:
        return f"http://{'127.0.0.1' if host.version == 4 else '[::1]'}:{port}"
    return f"http://{host if host.version == 4 else f'[{host}]'}:{port}"


def bound(config: ApiConfig, what: str = "the API") -> socket.socket:
    """The address, taken."""
    family = socket.AF_INET if config.address.version == 4 else socket.AF_INET6
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait until the connections of the run before it are forgotten.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(config.address), config.port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"{what} cannot listen on {config.host} port {config.port}: {error.strerror}",
            hint="another process has that address; give another port, or 0 for a free one",
        ) from error
    return listener


def require_extra(what: str = "the API") -> None:
    """Refuse where the packages of the web are missing."""
    try:
        import fastapi
        import prometheus_client
        import uvicorn
    except ImportError as error:
        raise ConfigurationError(
            f"{what} needs packages that are not installed: {error.name}", hint="run: pip install 'onceward[api]'"
        ) from None
    del fastapi, prometheus_client, uvicorn
