"""Where the dashboard listens, under which prefix, and whether it may do anything but look."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onceward.api import ApiConfig
from onceward.errors import ConfigurationError

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardConfig:
    """`host`, `port` and `names` are as for the API: the loopback address and a free port unless others are asked for.

    `prefix` is the path under which a reverse proxy shows it. With `read_only` the page offers nothing that changes
    anything, and the server refuses it.
    """

    host: str = "127.0.0.1"
    port: int = 0
    names: Sequence[str] = ()
    prefix: str = ""
    read_only: bool = False

    def __post_init__(self) -> None:
        """Refuse what can be refused without looking anywhere."""
        self.address  # noqa: B018 - it refuses
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigurationError(f"{self.prefix!r} is no prefix of a path", hint="give it like /onceward")

    @property
    def address(self) -> ApiConfig:
        """Where to listen, as the API has it."""
        return ApiConfig(host=self.host, port=self.port, names=self.names)
