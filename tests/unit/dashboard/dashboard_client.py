"""A dashboard in this process, and requests to it."""

from __future__ import annotations

from api_client import Client
from api_world import TOKEN

from onceward.dashboard import DashboardConfig, Place, Places
from onceward.dashboard.app import dashboard_app

JSON = {"Content-Type": "application/json", "X-Onceward": "1"}
"""What the page sends with whatever changes something."""


def client_of(place: Place, config: DashboardConfig | None = None) -> Client:
    """A client that has the token."""
    app = dashboard_app(Places([place]), config or DashboardConfig(), TOKEN, actor="me@here")
    return Client(app, token=TOKEN)
