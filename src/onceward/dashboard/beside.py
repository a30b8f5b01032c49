"""The dashboard inside a driver, beside its API: the same page, for this one job, without a request of its own."""

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
    from onceward.api.server import Beside

PATH: Final = "/dashboard"


def page_beside(checkpoint: Path, token: str, api: ApiConfig | None) -> Beside:
    """For the server of the API. The page's token is another one than the API's, which may do more."""
    from onceward.api.server import Beside

    def app(served: Served) -> OutermostLayer:
        from onceward.dashboard.app import dashboard_app

        names = tuple(api.names) if api is not None else ()
        places = Places([Place(checkpoint, served=served)])
        actor = f"{getpass.getuser()}@{socket.gethostname()}"
        return dashboard_app(places, DashboardConfig(names=names), token, actor=actor, base=PATH)

    return Beside(PATH, app)
