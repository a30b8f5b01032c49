"""The dashboard as a process of its own: `onceward dashboard`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from onceward.api.server import address_of, bound, require_extra
from onceward.dashboard.config import DashboardConfig
from onceward.dashboard.places import Places

_CONNECTIONS: Final = 256
_SHUTDOWN_GRACE_S: Final = 2


class DashboardServer:
    """Made first, so that an address that is taken is told at once; `serve` answers until it is interrupted."""

    def __init__(self, places: Places, config: DashboardConfig, *, actor: str, token: str | None = None) -> None:
        require_extra("the dashboard")
        self._places, self._config, self._actor = places, config, actor
        self.token = token or config.address.token()
        self._socket: socket.socket = bound(config.address, "the dashboard")
        self.url = f"{address_of(config.address, self._socket.getsockname()[1])}{config.prefix}/"

    @property
    def entrance(self) -> str:
        """The address with the token: whoever has it may look, and act where that is allowed."""
        return f"{self.url}?token={self.token}"

    def serve(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Answer until SIGINT or SIGTERM."""
        from onceward.api.quiet import QuietServer
        from onceward.dashboard.app import dashboard_app

        app = dashboard_app(self._places, self._config, self.token, actor=self._actor)
        server = QuietServer(app, connections=_CONNECTIONS, shutdown_grace_s=_SHUTDOWN_GRACE_S, on_end=app.close)
        self._socket.listen(_CONNECTIONS)
        on_ready()
        try:
            server.run(sockets=[self._socket])
        finally:
            self._socket.close()
