"""A job's options in words, for people who look: without the addresses of its targets, which may hold secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onceward.job.facade import Job

_NOT_SHOWN: Final = frozenset({"pipeline", "sinks", "hooks", "options", "api"})


def shown_options(job: Job) -> Mapping[str, str]:
    """By their names in `Job(...)`. Of Spark's own options only the names: a value may be a password."""
    shown = {one.name: _text(getattr(job, one.name)) for one in fields(job) if one.name not in _NOT_SHOWN}
    shown["sinks"] = ", ".join(str(sink.name) for sink in job.sinks)
    shown["api"] = "yes" if job.api is not None else "no"
    if job.options:
        shown["options"] = ", ".join(sorted(job.options))
    return shown


def _text(value: object) -> str:
    return "-" if value is None else str(value)
