"""A running driver, asked for what only it knows: over HTTP with its token, or in its own process.

Both give the JSON of the API's endpoints, so that the page cannot tell them apart. The token stays on this side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from onceward.api import Discovery, Driver, DriverGone, NoDriver, find_driver, read_discovery
from onceward.api.served import Served

if TYPE_CHECKING:
    from fastapi import Request
    from pydantic import BaseModel

ATTEMPTS: Final = 12
"""So many of the newest epochs a driver is asked for: those in flight, and those that are not written down yet."""


class Live(Protocol):
    """A driver that answers. `DriverGone` where it does not any more."""

    def get(self, path: str) -> Any:
        """The JSON of an endpoint."""
        ...

    def take_savepoint(self, folder: str) -> Any:
        """Begin to take one; what is known of it so far."""
        ...


class Finder:
    """Finds the driver of one checkpoint, and remembers it as long as its file says the same."""

    def __init__(self, checkpoint: Path, served: Served | None = None) -> None:
        self._checkpoint, self._served = checkpoint, served
        self._known: tuple[Discovery, Driver] | None = None

    def find(self) -> Live | NoDriver:
        """The driver, or why there is none."""
        if self._served is not None:
            return InProcess(self._served)
        found = read_discovery(self._checkpoint)
        if found is not None and found.is_alive and self._known is not None and self._known[0] == found:
            return self._known[1]
        driver = find_driver(self._checkpoint)
        self._known = (driver.found, driver) if isinstance(driver, Driver) else None
        return driver

    def forget(self) -> None:
        """It did not answer: next time it is looked for anew."""
        self._known = None


@dataclass(frozen=True, slots=True)
class InProcess:
    """The dashboard lives in the driver: the endpoints' own functions are called, without a request or a token."""

    served: Served

    def get(self, path: str) -> Any:
        """As the API would answer it."""
        from fastapi import HTTPException

        from onceward.api import routes

        request = self._request()
        try:
            match path.partition("?")[0].split("/")[2:]:
                case ["status"]:
                    answer: BaseModel = routes.status(request)
                case ["publish"]:
                    answer = routes.publishing(request)
                case ["epochs"]:
                    answer = routes.epochs(request, limit=ATTEMPTS)
                case ["epochs", number]:
                    answer = routes.epoch(request, int(number))
                case ["savepoints"]:
                    answer = routes.savepoints(request)
                case ["transactions"]:
                    answer = routes.transactions(request, fresh=True)
                case _:
                    raise DriverGone(f"the page does not ask for {path}")
        except HTTPException as error:
            raise DriverGone(str(error.detail)) from error
        return answer.model_dump(mode="json")

    def take_savepoint(self, folder: str) -> Any:
        """As the API would."""
        from fastapi import HTTPException

        from onceward.api import models, routes

        try:
            return routes.take_savepoint(self._request(), models.SavepointWanted(folder=folder)).model_dump(mode="json")
        except HTTPException as error:
            raise DriverGone(str(error.detail)) from error

    def _request(self) -> Request:
        """All that an endpoint asks of one."""
        return cast("Request", SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(served=self.served))))


@dataclass(frozen=True, slots=True)
class Answers:
    """What a driver said when it was last asked, all at once."""

    status: Mapping[str, Any]
    publishing: Mapping[str, Any]
    attempts: tuple[Mapping[str, Any], ...]


def ask(live: Live) -> Answers:
    """Three small questions."""
    attempts = live.get(f"/v1/epochs?limit={ATTEMPTS}")["epochs"]
    return Answers(live.get("/v1/status"), live.get("/v1/publish"), tuple(attempts))
