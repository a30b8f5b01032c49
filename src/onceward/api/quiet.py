"""The web server as the API and the dashboard run it. Imported where they are asked for: it needs the extra."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

from uvicorn import Config, Server

from onceward.api.guard import App


class QuietServer(Server):
    """Logs no request, says nothing of itself, and takes no more connections than these.

    `on_end` is called in its loop when it is told to end, before it waits for requests that are being answered.
    """

    def __init__(
        self, app: App, *, connections: int, shutdown_grace_s: int, on_end: Callable[[], None] = lambda: None
    ) -> None:
        config = Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            limit_concurrency=connections,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=shutdown_grace_s,
        )
        super().__init__(config)
        self._on_end = on_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `Server.shutdown`."""
        self._on_end()
        await super().shutdown(sockets)


class ServerBeneath(QuietServer):
    """In a thread of a driver, whose own business signals are."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield
