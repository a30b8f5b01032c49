"""Sessions with the server, within the limits that the user gave."""

from __future__ import annotations

import math

from onceward.connections.mysql import Session
from onceward.sinks.mysql.options import Options


def connect(options: Options, *, lock_wait_s: int | None = None, gives_up_idle: bool = True) -> Session:
    """A session. The server ends one that `gives_up_idle` when its driver is paused: it may hold locks."""
    lock_wait_s = lock_wait_s if lock_wait_s is not None else math.ceil(options.lock_timeout_s)
    idle_s = max(1, int(options.timeout_s)) if gives_up_idle else None
    return Session(options.address, timeout_s=options.timeout_s, lock_wait_s=lock_wait_s, idle_s=idle_s)
