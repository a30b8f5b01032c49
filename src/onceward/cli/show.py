"""How results and errors look on a terminal, and as JSON."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from onceward.errors import OncewardError
from onceward.spark.cause import python_cause, python_place, text_of


class _Diagnostics(Console):
    """Standard error. Whoever no longer reads it does not end a job that runs."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


# Names such as `kafka:key:x` are no emoji.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = _Diagnostics(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def show_json(value: object) -> None:
    """One JSON document on standard output: a stable contract for scripts."""
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def show_age(age_s: float | None) -> str:
    """Hours, minutes and seconds; a dash where nobody knows."""
    if age_s is None:
        return "-"
    minutes, seconds = divmod(int(age_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def show_seconds(seconds: float | None) -> str:
    """With as many digits as one reads; a dash where nobody knows."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else show_age(seconds)


def show_published(newest: int) -> str:
    """The newest epoch that every sink has, if there is one."""
    return f"published up to epoch {newest}" if newest >= 0 else "no epoch is published yet"


def show_bytes(count: float) -> str:
    """In units of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


_errors_are_logged = False


def log_errors() -> None:
    """From now on what ends the command is a log line: standard error has nothing else."""
    global _errors_are_logged
    _errors_are_logged = True


def error_document(error: Exception, *, exit_code: int) -> dict[str, Any]:
    """An error as JSON."""
    return {
        "error": type(error).__name__,
        "message": _message(error),
        "hint": getattr(error, "hint", None),
        "epoch": getattr(error, "epoch", None),
        "sink": getattr(error, "sink", None),
        "exit_code": exit_code,
    }


def show_error(error: Exception, *, as_json: bool, exit_code: int) -> None:
    """What happened and what to do next."""
    kind, hint = type(error).__name__, getattr(error, "hint", None)
    epoch, sink = getattr(error, "epoch", None), getattr(error, "sink", None)
    if _errors_are_logged:
        about = {"hint": hint, "epoch": epoch, "sink": sink, "exit_code": exit_code}
        known = {name: value for name, value in about.items() if value is not None}
        logging.getLogger("onceward").error("%s: %s", kind, _message(error), extra=known)
    if as_json:
        show_json(error_document(error, exit_code=exit_code))
    if as_json or _errors_are_logged:
        return
    err.print(f"[bold red]{kind if isinstance(error, OncewardError) else 'Failed'}[/]: {escape(_message(error))}")
    if not isinstance(error, OncewardError) and (place := python_place(error)) is not None:
        err.print(f"  [dim]at[/] {escape(place)}")
    where = [f"epoch {epoch}"] if epoch is not None else []
    where += [f"sink {sink}"] if sink is not None else []
    if where:
        err.print(f"  [dim]in[/] {escape(', '.join(where))}")
    if hint:
        err.print(f"  [bold yellow]hint[/]: {escape(hint)}")


def _message(error: Exception) -> str:
    if isinstance(error, OncewardError):
        return error.message
    return python_cause(error) or _first_lines(text_of(error)) or type(error).__name__


def _first_lines(text: str, most: int = 12) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines[:most] + (["..."] if len(lines) > most else []))
