"""What a log line is about, as fields: the job, the epoch, the sink, the transaction.

Whoever works on one of them says so once, with `about`; every line that is logged meanwhile in the same thread, and in
the calls that a watchdog makes for it, carries it, also those of a driver's own library. A line that is about something
else says so itself, by `extra=`. Messages are for people and are never parsed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

FIELDS: Final = ("job", "epoch", "sink", "transaction")
"""In the order in which a line has them."""
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_about: ContextVar[Mapping[str, object]] = ContextVar("onceward_about", default=_NOTHING)


@contextmanager
def about(
    *, job: str | None = None, epoch: int | None = None, sink: str | None = None, transaction: str | None = None
) -> Iterator[None]:
    """Lines that are logged inside are about these, beside what they were about already."""
    given = {"job": job, "epoch": epoch, "sink": sink, "transaction": transaction}
    before = _about.set({**_about.get(), **{name: value for name, value in given.items() if value is not None}})
    try:
        yield
    finally:
        _about.reset(before)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What the line is about. To be asked in the thread that logs it, as handlers and formatters are."""
    known = _about.get()
    found = {name: getattr(record, name, known.get(name)) for name in FIELDS}
    return {name: value for name, value in found.items() if value is not None}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what it is about, and the traceback where there is one.

    For any handler of Python's `logging`. Fields may be added; none is renamed or removed within a major version.
    """

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        for name in ("hint", "exit_code"):
            if (value := getattr(record, name, None)) is not None:
                document[name] = value
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)
