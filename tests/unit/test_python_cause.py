"""Which line of Spark's long text names what Python raised."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import AnalysisException

from onceward.spark.cause import as_fenced, in_one_line, is_programming_error, python_cause, python_place

SPARK = "[STREAM_FAILED] Query [id = 1] terminated with exception: {python}\n\tat org.apache.spark.Some.method\n"


class Analysed(AnalysisException):
    """As it comes from the JVM."""

    def __init__(self, condition: str) -> None:
        super().__init__("a query that cannot be")
        self._condition = condition

    def getCondition(self) -> str:
        return self._condition


def raised(cause: Exception | None) -> str:
    try:
        try:
            if cause is not None:
                raise cause
        finally:
            raise KeyError("app")
    except KeyError:
        return traceback.format_exc()


def in_spark(python: str) -> str | None:
    return python_cause(RuntimeError(SPARK.format(python=python)))


def test_it_is_the_line_of_the_exception() -> None:
    assert in_spark(raised(None)) == "KeyError: 'app'"


def test_it_is_shown_with_its_place() -> None:
    error = RuntimeError(SPARK.format(python=raised(ValueError("the first"))))
    line = raised.__code__.co_firstlineno + 6
    assert python_place(error) == f"{__file__}, line {line}"
    assert python_place(RuntimeError('  File "job.py", line 1, in views')) is None


def test_of_a_chain_it_is_the_one_that_came_last() -> None:
    assert in_spark(raised(ValueError("the first"))) == "KeyError: 'app'"


def test_where_no_python_is_to_blame_there_is_none() -> None:
    assert in_spark("java.io.IOException: no space left on device") is None
    assert python_cause(RuntimeError()) is None


def test_a_text_that_was_cut_off_names_nothing() -> None:
    assert in_spark('Traceback (most recent call last):\n  File "job.py", line 1') is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModuleNotFoundError("No module named 'nowhere'"), True),
        (Analysed("UNRESOLVED_COLUMN.WITH_SUGGESTION"), True),
        (Analysed("PATH_NOT_FOUND"), False),
        (ImportError("libx.so: input/output error"), False),
        (RuntimeError(SPARK.format(python="Traceback (most recent call last):\nModuleNotFoundError: nowhere")), True),
        (RuntimeError(SPARK.format(python="Traceback (most recent call last):\nValueError: 'x' is no number")), False),
        (RuntimeError(SPARK.format(python="Traceback (most recent call last):\nother.Error: away")), False),
        (ConnectionError("the source is away"), False),
    ],
)
def test_what_no_restart_mends(error: Exception, expected: bool) -> None:
    assert is_programming_error(error) is expected


@pytest.mark.parametrize(
    "words",
    [
        "Multiple streaming queries are concurrently using file:/c/sources/0/2. SQLSTATE: XXKST",
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 2.\n"
        "Please make sure only one streaming job runs on a specific checkpoint location at a time.",
    ],
)
def test_where_spark_finds_another_driver_it_is_a_fence(words: str) -> None:
    found = as_fenced(RuntimeError(SPARK.format(python=words)))
    assert found is not None
    assert (found.exit_code, found.hint) == (4, "start one driver for one checkpoint")
    assert "Multiple streaming" in found.message


@pytest.mark.parametrize(
    "words", ["", "java.io.IOException: no space", f"{raised(None)}Multiple streaming jobs detected for 2"]
)
def test_any_other_failure_of_sparks_is_none(words: str) -> None:
    assert as_fenced(RuntimeError(SPARK.format(python=words))) is None


def test_what_a_jvm_that_is_gone_cannot_say_any_more_is_no_second_error() -> None:
    """py4j asks the JVM for the text of its errors, and only when someone wants it."""

    class Gone(Exception):
        def __str__(self) -> str:
            raise ConnectionError("the JVM is gone")

    assert in_one_line(Gone()) == "Gone: "
    assert not is_programming_error(Gone())
    assert in_one_line(ValueError("one\ntwo")) == "ValueError: one"
