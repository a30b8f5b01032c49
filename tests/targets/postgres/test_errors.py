"""Scenario 95: what each error of the server means, by one table that people and the code share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onceward.connections.postgres import PostgresError
from onceward.contracts import TryAgain
from onceward.errors import RowsRejected, TargetChanged
from onceward.sinks.error_class import ErrorClass
from onceward.sinks.postgres.encode import DoesNotFit
from onceward.sinks.postgres.errors import CLASSES, classify, translated

PAGE = Path(__file__).parents[3] / "docs" / "targets" / "postgres.md"
LINE = re.compile(r"\| ([^|]+) \| (?:`(\w+)`|none) \| ([^|]+) \|")


def test_the_page_shows_the_table_that_the_code_goes_by() -> None:
    section = PAGE.read_text().partition("## Errors")[2].partition("\n## ")[0]
    shown = [(what, code or "none", says) for what, code, says in LINE.findall(section)]
    assert shown == [(meaning.value, code, says) for meaning, codes in CLASSES.items() for code, says in codes.items()]


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        ("", ErrorClass.RETRY),
        ("08006", ErrorClass.RETRY),
        ("40P01", ErrorClass.RETRY),
        ("53100", ErrorClass.RETRY),
        ("57P03", ErrorClass.RETRY),
        ("55P03", ErrorClass.RETRY),
        ("25006", ErrorClass.RETRY),
        ("22001", ErrorClass.ROW),
        ("23505", ErrorClass.ROW),
        ("44000", ErrorClass.ROW),
        ("54000", ErrorClass.ROW),
        ("P0001", ErrorClass.ROW),
        ("42P01", ErrorClass.TARGET),
        ("42501", ErrorClass.TARGET),
        ("0A000", ErrorClass.UNKNOWN),
        ("42601", ErrorClass.UNKNOWN),
        ("XX000", ErrorClass.UNKNOWN),
        ("MINE1", ErrorClass.UNKNOWN),
    ],
)
def test_an_error_is_one_of_four(code: str, meaning: ErrorClass) -> None:
    assert classify(PostgresError("no", code)) is meaning
    told = translated(PostgresError("no", code), "rows", epoch=3)
    kinds = {ErrorClass.RETRY: TryAgain, ErrorClass.ROW: RowsRejected, ErrorClass.TARGET: TargetChanged}
    assert type(told) is kinds.get(meaning, PostgresError)


def test_a_value_that_we_do_not_send_is_the_rows_fault_and_one_that_the_driver_cannot_encode_is_looked_for() -> None:
    assert classify(DoesNotFit("too long")) is ErrorClass.ROW
    assert classify(PostgresError("IO: Error occurred writing COPY data: ", "")) is ErrorClass.UNKNOWN
    assert classify(ValueError("ours")) is ErrorClass.UNKNOWN
