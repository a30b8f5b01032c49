"""What each error of Redis means for the epoch that is being published. docs/targets/redis.md shows the same table.

The scripts look before they write, so an error says that nothing of the part is in; what they find wrong with a row
comes as an answer and not as an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from onceward.connections.redis import NoServer, driver
from onceward.contracts import TryAgain
from onceward.errors import TargetChanged
from onceward.sinks.error_class import ErrorClass

_RETRY, _TARGET = ErrorClass.RETRY, ErrorClass.TARGET

CLASSES_BY_CODE: dict[str, ErrorClass] = {
    "MOVED": _RETRY,
    "ASK": _RETRY,
    "TRYAGAIN": _RETRY,
    "CLUSTERDOWN": _RETRY,
    "LOADING": _RETRY,
    "BUSY": _RETRY,
    "READONLY": _RETRY,
    "MASTERDOWN": _RETRY,
    "OOM": _RETRY,
    "MISCONF": _RETRY,
    "NOREPLICAS": _RETRY,
    "NOSCRIPT": _RETRY,
    "UNBLOCKED": _RETRY,
    "NOAUTH": _TARGET,
    "WRONGPASS": _TARGET,
    "NOPERM": _TARGET,
    "DENIED": _TARGET,
    "WRONGTYPE": _TARGET,
}
"""By the first word of what the server says. WRONGTYPE is about a receipts key: those of rows are looked at before."""

CLASSES_BY_TEXT: dict[str, ErrorClass] = {
    "non local key": _RETRY,
    "Script killed by user": _RETRY,
    "max number of clients": _RETRY,
    "unknown command": _TARGET,
}
"""By a part of what it says, for errors that all begin with ERR."""

_HINTS = {
    "WRONGTYPE": 'something else was written to a key of the receipts (the page "Redis", "Receipts"): bring it back '
    "from a backup, or remove the key if the target was emptied, and start again",
    "NOPERM": 'give the user back its permissions: the page "Redis", "Privileges", has the ACL line; then start again',
}
_HINT = "check user, password and settings of the server, then start again; nothing is lost, the epoch stays staged"


def classify(error: Exception) -> ErrorClass:
    """One of the four. Connections that fail or time out are tried again: the receipt says whether rows went in."""
    code = code_of(error)
    if code in CLASSES_BY_CODE:
        return CLASSES_BY_CODE[code]
    for text, found in CLASSES_BY_TEXT.items():
        if text in str(error):
            return found
    exceptions = driver().exceptions
    is_away = isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, NoServer))
    return _RETRY if is_away else ErrorClass.UNKNOWN


def code_of(error: Exception) -> str:
    """The word that the server's message began with. The driver takes some of them away and makes a class of them."""
    exceptions = driver().exceptions
    codes = {
        exceptions.NoPermissionError: "NOPERM",
        exceptions.AuthenticationError: "WRONGPASS",
        exceptions.AuthorizationError: "NOAUTH",
        exceptions.BusyLoadingError: "LOADING",
        exceptions.ReadOnlyError: "READONLY",
        exceptions.NoScriptError: "NOSCRIPT",
        exceptions.OutOfMemoryError: "OOM",
        exceptions.MasterDownError: "MASTERDOWN",
        exceptions.ClusterDownError: "CLUSTERDOWN",
        exceptions.TryAgainError: "TRYAGAIN",
        exceptions.MovedError: "MOVED",
        exceptions.AskError: "ASK",
    }
    for kind, code in codes.items():
        if isinstance(error, kind):
            return code
    # Before Redis 7 what fails inside a script is quoted: "Error running script (call to f_...): ...: -OOM command".
    found = re.search(r"-([A-Z]{3,}) ", str(error)) if "running script" in str(error) else None
    found = found or re.match(r"([A-Z]{3,})\b", str(error))
    return found.group(1) if found else ""


def translated(error: Exception, address: str) -> Exception:
    """The error as the publisher understands it; the same one when nobody knows what it means."""
    match classify(error):
        case ErrorClass.RETRY:
            return TryAgain(f"Redis at {address}: {type(error).__name__}: {error}")
        case ErrorClass.TARGET:
            return TargetChanged(
                f"Redis at {address} does not let this job go on: {error}", hint=_HINTS.get(code_of(error), _HINT)
            )
        case _:
            return error


@contextmanager
def translating(address: str) -> Iterator[None]:
    """Let errors of the server leave as what they mean; one that is in no table leaves as it is."""
    try:
        yield
    except (driver().RedisError, NoServer) as error:
        meant = translated(error, address)
        if meant is error:
            raise
        raise meant from error
