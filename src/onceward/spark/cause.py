"""What Python raised inside Spark, found in the text that Spark makes of it."""

from __future__ import annotations

import builtins

from onceward.errors import OncewardError

# Of what Spark says about a query before it runs. A path or a catalogue may only be away.
_WRONG_QUERY = ("UNRESOLVED_", "AMBIGUOUS_", "DATATYPE_MISMATCH", "MISSING_", "PARSE_", "TABLE_OR_VIEW_NOT_FOUND")
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
    _, found, traceback = text_of(error).rpartition(_TRACEBACK)
    lines = (line for line in traceback.splitlines() if line and not line[0].isspace())
    return next(lines, None) if found else None


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


def exit_code_of(error: BaseException) -> int:
    """What the command ends with. Spark's own failures (a lost executor, a source that is down) are worth another
    start."""
    if isinstance(error, OncewardError):
        return error.exit_code
    return USAGE if is_programming_error(error) else MAY_BE_RESTARTED
