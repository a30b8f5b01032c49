"""Scenario 95: what each error of SQLite means, by one table that people and the code share."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from onceward.sinks.sqlite.errors import CLASSES

PAGE = Path(__file__).parents[3] / "docs" / "targets" / "sqlite.md"
LINE = re.compile(r"\| ([^|]+) \| `(SQLITE_\w+)` \| ([^|]+) \|")


def test_the_page_shows_the_table_that_the_code_goes_by() -> None:
    section = PAGE.read_text().partition("## Errors")[2].partition("\n## ")[0]
    shown = [(what, getattr(sqlite3, code), means) for what, code, means in LINE.findall(section)]
    assert shown == [(kind.value, code, means) for kind, codes in CLASSES.items() for code, means in codes.items()]
