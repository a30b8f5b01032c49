"""Where a server is and who we are to it, read from a URL. The password is in no text that this makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from onceward.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Address:
    """One database of one server. Picklable with its password, which executors need; printable without it."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str, *, schemes: Sequence[str], port: int, options: Sequence[str] = ()) -> Self:
        """The address that `url` spells; `port` if it names none. Only these `options` may stand behind the `?`."""
        example = f"{schemes[0]}://user:password@host:{port}/database"
        try:
            parts = urlsplit(url)
            found_port = parts.port
        except (ValueError, AttributeError, TypeError):
            # The reason would quote parts of the URL, and they may be parts of the password.
            raise ConfigurationError("the URL of the server cannot be read", hint=f"write {example}") from None
        database = unquote(parts.path[1:])
        if parts.scheme not in schemes:
            raise ConfigurationError(
                f"the URL of the server does not begin with {' or '.join(f'{scheme}://' for scheme in schemes)}",
                hint=f"write {example}; characters such as @ / : in a password are written as %40 %2F %3A",
            )
        if "/" in parts.path[1:] or "@" in parts.path:
            # Most likely a password that is not escaped. Nothing of it may be repeated.
            raise ConfigurationError(
                "the URL of the server is ambiguous",
                hint=f"write {example}; characters such as @ / : in a password are written as %40 %2F %3A",
            )
        if not parts.hostname or not database or "\0" in database:
            missing = "host" if not parts.hostname else "database"
            raise ConfigurationError(f"the URL of the server names no {missing}", hint=f"write {example}")
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [key for key in given if key not in options]
        if unknown:
            shown = repr(unknown[0]) if unknown[0].isidentifier() else "behind the ?"
            raise ConfigurationError(
                f"the URL of the server has an unknown option {shown}",
                hint=f"known are: {', '.join(options) or 'none'}",
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.scheme, unquote(parts.hostname), found_port or port, user, password, database, given)

    def __str__(self) -> str:
        """For people: all but the password and the options."""
        who = f"{self.user}@" if self.user else ""
        return f"{self.scheme}://{who}{self.host}:{self.port}/{self.database}"
