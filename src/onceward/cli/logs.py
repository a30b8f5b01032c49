"""Where log lines go, and how they look: text above the line of a running job, or one JSON object a line."""

from __future__ import annotations

import logging
import time
from enum import Enum

from onceward.cli.show import err, log_errors
from onceward.logs import JsonFormatter


class Log(Enum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


def log_as(kind: Log, *, quiet: bool) -> bool:
    """Begin to log like this. Whether the command itself must be quiet on standard error: where only its result is
    wanted, and where every line there is JSON."""
    if kind is Log.TEXT:
        log_to_console(quiet=quiet)
        return quiet
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)
    _begin(handler, quiet=quiet)
    err.quiet = True
    log_errors()
    return True


class _ToConsole(logging.Handler):
    """Through the console that has the live line, which moves down for it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
            stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
            err.print(f"{stamp} {level}{self.format(record)}", markup=False)
        except Exception:
            self.handleError(record)


def log_to_console(*, quiet: bool) -> None:
    """Warnings of everyone; of onceward also what it does, unless nobody asked."""
    handler = _ToConsole()
    handler.setFormatter(logging.Formatter("%(message)s"))
    _begin(handler, quiet=quiet)


def _begin(handler: logging.Handler, *, quiet: bool) -> None:
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("onceward").setLevel(logging.WARNING if quiet else logging.INFO)
    # It prints all of a traceback through Java and back; the error itself says what was raised, and where.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
