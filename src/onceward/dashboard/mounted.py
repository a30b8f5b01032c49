"""The dashboard inside a driver, mounted in the server of its API: the same page, for this one job. It sends no request
of its own."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceward.api import ApiConfig
from onceward.dashboard.config import DashboardConfig
from onceward.dashboard.places import Place, Places

if TYPE_CHECKING:
    from onceward.api.guard import OutermostLayer
    from onceward.api.served import Served
    from onceward.api.server import Mounted

PATH: Final = "/dashboard"


def mounted_page(checkpoint: Path, token: str, api: ApiConfig | None) -> Mounted:
    """For the server of the API. The page's token is another one than the API's, which may do more."""
    from onceward.api.server import Mounted

    def app(served: Served) -> OutermostLayer:
        from onceward.dashboard.app import dashboard_app

        names = tuple(api.names) if api is not None else ()
        places = Places([Place(checkpoint, served=served)])
        actor = f"{getpass.getuser()}@{socket.gethostname()}"
        return dashboard_app(places, DashboardConfig(names=names), token, actor=actor, base=PATH)

    return Mounted(PATH, app)
