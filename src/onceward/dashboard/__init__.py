"""See it: a page for every epoch and every transaction, of running jobs and of stopped ones.

`places` finds checkpoints; `index`, `pieces` and `digest` keep what their histories say small; `tables`, `flow` and
`standing` decide what is shown (pure); `live` asks a running driver, `reader` a Spark for state; `view` puts one job
together; `hand` and `saving` are what a person may do from the page. `app`, `gate` and `stream` are the server,
`static/` the page. Needs the extra `onceward[api]`; what is imported here does not. It looks on: nothing of *stage →
decide → publish → settle → recover* rests on it.
"""

from onceward.dashboard.config import DashboardConfig
from onceward.dashboard.places import Place, Places

__all__ = ["DashboardConfig", "Place", "Places"]
