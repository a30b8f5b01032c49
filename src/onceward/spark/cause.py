"""What Python raised inside Spark, found in the text that Spark makes of it."""

from __future__ import annotations

import builtins
import re

from onceward.errors import Fenced, OncewardError

# Of what Spark says about a query before it runs. A path or a catalogue may only be away.
_WRONG_QUERY = ("UNRESOLVED_", "AMBIGUOUS_", "DATATYPE_MISMATCH", "MISSING_", "PARSE_", "TABLE_OR_VIEW_NOT_FOUND")
# Of an entry of its logs or of a source's lists that is there already, though this query has not written it.
_ANOTHER_DRIVER = ("Multiple streaming jobs detected for ", "Multiple streaming queries are concurrently using ")
USAGE, MAY_BE_RESTARTED = 2, 3
_TRACEBACK = "Traceback (most recent call last):"


def text_of(error: BaseException) -> str:
    """What it says; nothing where that is asked of a JVM that is gone: py4j asks only when the text is wanted."""
    try:
        return str(error)
    except Exception:
        return ""


def in_one_line(error: BaseException) -> str:
    """Class and first line, of what Python raised where it did."""
    return python_cause(error) or f"{type(error).__name__}: {text_of(error).partition(chr(10))[0]}"


def python_cause(error: BaseException) -> str | None:
    """The line of the exception that came last, such as `KeyError: 'app'`; None where no Python is to blame.

    Spark has nothing but the text: all of a traceback, its own stack around it.
    """
    return _last_traceback(error)[1]


def python_place(error: BaseException) -> str | None:
    """Where that was raised, such as `job.py, line 7`; None where no Python is to blame."""
    frames, cause = _last_traceback(error)
    places = re.findall(r'^ +File "(.+)", line (\d+)', frames, re.MULTILINE)
    return f"{places[-1][0]}, line {places[-1][1]}" if places and cause else None


def _last_traceback(error: BaseException) -> tuple[str, str | None]:
    """Its frames, and the line after them."""
    _, found, text = text_of(error).rpartition(_TRACEBACK)
    frames: list[str] = []
    for line in text.splitlines() if found else ():
        if line and not line[0].isspace():
            return "\n".join(frames), line
        frames.append(line)
    return "", None


def is_programming_error(error: BaseException) -> bool:
    """Whether the job's own code is at fault whatever the data: a module that is missing, a name, a column."""
    # Whoever has raised it has imported it; a command that has not need not wait for it.
    from pyspark.errors import AnalysisException

    if isinstance(error, AnalysisException):
        condition = error.getCondition() or ""
        return condition.startswith(_WRONG_QUERY)
    cause = (python_cause(error) or "").partition(":")[0]
    kind = getattr(builtins, cause, None)
    kind = kind if isinstance(kind, type) else type(error)
    return issubclass(kind, (ModuleNotFoundError, NameError, SyntaxError))


def as_fenced(error: BaseException) -> Fenced | None:
    """Where Spark itself has found that another driver writes to this checkpoint; None for any other failure.

    Lists of a file source are written before the barrier, so that Spark may see it before our register does.
    """
    lines = text_of(error).splitlines()
    said = next((line for line in lines if any(words in line for words in _ANOTHER_DRIVER)), None)
    if said is None or python_cause(error) is not None:
        return None
    return Fenced(
        f"another driver writes to this checkpoint; Spark says: {said.strip()}",
        hint="start one driver for one checkpoint",
    )


def exit_code_of(error: BaseException) -> int:
    """What the command ends with. Spark's own failures (a lost executor, a source that is down) are worth another
    start."""
    if isinstance(error, OncewardError):
        return error.exit_code
    return USAGE if is_programming_error(error) else MAY_BE_RESTARTED
