"""The table of refusals in docs/guarantees.md has a row for every error that a person must be asked about."""

import inspect
import re
from pathlib import Path

from onceward import errors
from onceward.cli.resolve import resolve
from onceward.recovery import Accept

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Every refusal and its exits")[2].partition("\n## ")[0]
_ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def refusals() -> set[str]:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.OncewardError)]
    return {kind.__name__ for kind in kinds if kind.exit_code in (1, 4) and kind is not errors.OncewardError}


def test_every_refusal_has_a_row_and_every_row_an_exit() -> None:
    rows = {name: (keeps, decides) for name, _, keeps, decides in _ROW.findall(SECTION)}
    assert rows.keys() == refusals()
    assert not [name for name, exits in rows.items() if not re.search(r"[a-z]", "".join(exits))]


def test_every_flag_and_every_command_that_is_an_exit_is_in_the_table() -> None:
    for flag in Accept:
        assert f"`--accept {flag.value}`" in SECTION
    commands = {
        command.name or command.callback.__name__ for command in resolve.registered_commands if command.callback
    }
    assert set(re.findall(r"`resolve ([\w-]+)", SECTION)) == commands


def test_the_page_of_commands_names_every_refusal_with_its_exit_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for code in (1, 4):
        (row,) = re.findall(rf"^\| {code} \| .*$", page, re.MULTILINE)
        named = set(re.findall(r"`(\w+)`", row))
        kinds = {name for name in refusals() if getattr(errors, name).exit_code == code}
        assert named == kinds, f"exit code {code}"
