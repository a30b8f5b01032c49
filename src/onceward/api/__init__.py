"""One way to speak to a running job: an HTTP server inside the driver, on request, and the client of the command.

`config` says where it listens, `served` is what it needs of a run, `app` and `routes` answer, `guard` keeps others out,
`server` is the thread, `quiet` what runs in it, `discovery` the file by which a client finds it, `client` that client.
The server needs the extra `onceward[api]`; what is imported here does not. Nothing of *stage → decide → publish →
settle → recover* rests on it.
"""

from onceward.api.client import Driver, DriverGone, NoDriver, find_driver
from onceward.api.config import ApiConfig
from onceward.api.discovery import Discovery, read_discovery

__all__ = ["ApiConfig", "Discovery", "Driver", "DriverGone", "NoDriver", "find_driver", "read_discovery"]
