"""Where the API listens, who may call it by which name, and by which token."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from onceward.errors import ConfigurationError

_LEAST_TOKEN: Final = 16
_ADDRESS: Final = "give an IP address, or localhost, and a port: 127.0.0.1:8080, [::1]:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """`host` is the IP address to listen on, the loopback one unless another is asked for; `port` 0 takes a free one.

    `names` are host names by which it may be called, beside localhost and the address itself. `token_file` holds the
    token to ask for, for callers that cannot read the checkpoint; without it each run makes a random one.
    """

    host: str = "127.0.0.1"
    port: int = 0
    names: Sequence[str] = ()
    token_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        """Refuse what can be refused without looking anywhere."""
        if isinstance(self.names, str) or not all(self.names):
            raise ConfigurationError(f"names={self.names!r} is no list of host names", hint='names=["my-host"]')
        if _parsed(self.host) is None:
            raise ConfigurationError(f"the API cannot listen on {self.host!r}", hint=_ADDRESS)
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"the API cannot listen on port {self.port!r}", hint="0 takes a free one")

    @classmethod
    def parse(cls, text: str) -> Self:
        """From HOST:PORT, [IPv6]:PORT or PORT alone."""
        host, colon, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit()) or (colon and not host):
            raise ConfigurationError(f"{text!r} is not an address for the API", hint=_ADDRESS)
        return cls(host=host.removeprefix("[").removesuffix("]") or "127.0.0.1", port=int(port))

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """The IP address itself."""
        found = _parsed(self.host)
        assert found is not None, "checked when it was made"
        return found

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it."""
        return self.address.is_loopback

    def token(self) -> str:
        """The one in the file, or a new random one."""
        if self.token_file is None:
            return secrets.token_urlsafe(32)
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"the token of the API cannot be read from {os.fspath(self.token_file)}: {type(error).__name__}",
                hint="give a file that this user can read, with the token on one line",
            ) from None
        if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
            raise ConfigurationError(
                f"what is in {os.fspath(self.token_file)} is no token",
                hint=f"at least {_LEAST_TOKEN} characters without spaces: openssl rand -hex 32",
            )
        return token


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None
