"""A dashboard in this process, and requests to it."""

from __future__ import annotations

from api_client import Client
from api_world import TOKEN

from onceward.dashboard import DashboardConfig, Place, Places
from onceward.dashboard.app import dashboard_app
from onceward.dashboard.reader import StateReader

JSON = {"Content-Type": "application/json", "X-Onceward": "1"}
"""What the page sends with whatever changes something."""


def client_of(
    place: Place,
    config: DashboardConfig | None = None,
    *,
    reader: StateReader | None = None,
    places: Places | None = None,
) -> Client:
    """A client that has the token."""
    shown = places or Places([place])
    app = dashboard_app(shown, config or DashboardConfig(), TOKEN, actor="me@here", reader=reader)
    return Client(app, token=TOKEN)
