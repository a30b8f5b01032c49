"""How a life ended: the class of its error and one line, without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onceward.restart.history import How

_LONGEST: Final = 300
_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_ASSIGNED = re.compile(
    r"(?i)(\b[\w.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|credential)[\w.-]*[\"']?\s*[=:]\s*)[^\s,;&)]+"
)
_NAMED_SECRET = re.compile(r"(?i)password|passwd|secret|token|api_?key|credential")
_TOO_SHORT_TO_TELL: Final = 4


@dataclass(frozen=True, slots=True)
class ExitReport:
    """How a life ended, as its watcher saw it."""

    how: How
    lived_s: float
    exit_code: int | None = None
    signal: str | None = None
    error: str | None = None
    message: str | None = None


def first_line(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The first line, cut where it is long, without what looks like a password.

    Errors of our own sinks name none. Those of a user's code or of Spark may: an address with a user and a password, a
    setting, or what stands in an environment variable of such a name.
    """
    line = next(iter(text.strip().splitlines()), "")
    line = _ASSIGNED.sub(r"\1***", _IN_URL.sub("***@", line))
    named = (os.environ if environment is None else environment).items()
    secrets = {value for name, value in named if _NAMED_SECRET.search(name) and len(value) >= _TOO_SHORT_TO_TELL}
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, "***")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
