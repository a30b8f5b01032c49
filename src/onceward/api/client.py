"""The command's side: find the driver of a checkpoint and ask it. Needs nothing but Python."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceward.api.discovery import Discovery, read_discovery

_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 0.1
_ANSWER_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class NoDriver:
    """Nobody answers, and why. `pid` is that of a process on this host that may be the driver all the same."""

    why: str
    pid: int | None = None


class DriverGone(Exception):
    """It does not answer, or refuses; the text says which."""


class Driver:
    """A driver that answered."""

    def __init__(self, found: Discovery) -> None:
        self.found = found
        # A proxy of the environment is for other traffic, and must not see the token.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def get(self, path: str) -> Any:
        """The JSON of an endpoint."""
        return self._ask("GET", path)

    def stop(self) -> None:
        """Ask it to stop between two epochs."""
        self._ask("POST", "/v1/stop")

    def take_savepoint(self, folder: str) -> Any:
        """Ask it to take one in a folder; what it answers at once."""
        return self._ask("POST", "/v1/savepoints", {"folder": folder})

    def await_end(self, timeout_s: float) -> bool:
        """Wait until its API is gone, which is when all that is decided was published or left staged; False: it is
        still there after that time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if read_discovery(Path(self.found.checkpoint)) != self.found or not self.found.is_alive:
                return True
            try:
                self.get("/v1/status")
            except DriverGone:
                if read_discovery(Path(self.found.checkpoint)) != self.found:
                    return True
            time.sleep(_LOOK_S)
        return False

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.found.token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.found.url}{path}", data=data, method=method, headers=headers)
        try:
            with self._open.open(request, timeout=_TIMEOUT_S) as answer:
                return json.loads(answer.read(_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise _told(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DriverGone(f"the driver does not answer: {type(error).__name__}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def find_driver(checkpoint: Path) -> Driver | NoDriver:
    """The driver that runs on this checkpoint, if its API answers. What a dead one has left is seen for what it is."""
    found = read_discovery(checkpoint)
    if found is None:
        return NoDriver("no driver with an API runs on this checkpoint")
    if found.checkpoint != str(checkpoint):
        return NoDriver("this directory is a copy: its api.json is of another one")
    if not found.is_alive:
        return NoDriver(f"the driver that ran here, process {found.pid}, is gone")
    pid = found.pid if found.is_here else None
    try:
        driver = Driver(found)
        if driver.get("/v1/status")["run"] == found.run:
            return driver
    except (DriverGone, KeyError, TypeError):
        pass
    return NoDriver(f"the driver does not answer: process {found.pid} on {found.host}", pid)


def _told(error: urllib.error.HTTPError) -> DriverGone:
    try:
        return DriverGone(f"the driver refuses: {json.loads(error.read(_ANSWER_BYTES))['message']}")
    except (OSError, ValueError, KeyError, TypeError):
        return DriverGone(f"the driver refuses: {error.code}")
