"""See it: a page for every epoch and every transaction, of running jobs and of stopped ones.

`places` finds checkpoints, `index` and `digest` keep what their histories say small, `tables` and `standing` decide
what is shown (pure), `live` asks a running driver, `view` puts one job together, `hand` is what a person may do from
the page. `app`, `gate` and `stream` are the server, `static/` the page. Needs the extra `onceward[api]`; what is
imported here does not. It looks on: nothing of *stage → decide → publish → settle → recover* rests on it.
"""

from onceward.dashboard.config import DashboardConfig
from onceward.dashboard.places import Place, Places

__all__ = ["DashboardConfig", "Place", "Places"]
