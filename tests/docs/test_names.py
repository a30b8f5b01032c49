"""Pages name what is there: no option that was renamed, everything public in the reference, no dead link elsewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

import onceward
from onceward import committers, sinks, sources
from onceward.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *DOCS.glob("*.md"), *(DOCS / "targets").glob("*.md"), *(DOCS / "formats").glob("*.md")]
SOURCES = [path for folder in ("src", "tools", "deploy") for path in (ROOT / folder).rglob("*.*")]
# Others' names: of SQL and its servers, Spark, Delta, Flink, Airflow, Python's packages and the shell.
FOREIGN = {
    "BashOperator",
    "Committer",
    "GenericWriteAheadSink",
    "Host",
    "KILL",
    "MERGE",
    "TwoPhaseCommitSinkFunction",
    "XAER_DUPID",
    "cat",
    "chmod",
    "current_timestamp",
    "enableSourceEvolution",
    "max_active_runs",
    "notifyCheckpointComplete",
    "readlink",
    "rtrim",
    "serial",
    "txnAppId",
    "txnVersion",
}


def test_a_name_on_a_page_is_one_of_the_code_or_known_to_be_anothers() -> None:
    """A word in backticks that stands nowhere in the code is an option that was renamed, or a slip."""
    known = FOREIGN.union(
        *(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="ignore")) for path in SOURCES if path.is_file())
    )
    unknown = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for name in re.findall(r"`([A-Za-z_][A-Za-z0-9_.]*)(?=[`(=])", page.read_text(encoding="utf-8"))
        if not known.issuperset(re.findall(r"\w+", name)[-1:])
    ]
    assert unknown == []


def test_what_is_public_is_in_the_reference() -> None:
    reference = (DOCS / "reference.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\.\. auto\w+:: (?:\w+\.)*(\w+)", reference, re.MULTILINE))
    # The errors are there as a module.
    public = {*onceward.__all__, *sinks.__all__, *sources.__all__, *committers.__all__} - {
        "__version__",
        "OncewardError",
    }
    assert public - named == set()


def test_on_a_package_index_the_readme_has_no_link_that_leads_nowhere() -> None:
    """There is no repository around it: what is left of a link into one is its text, and no picture."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    shown = text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/quickstart.md)" in text
    for change in hook["fancy-pypi-readme"]["substitutions"]:
        shown = re.sub(change["pattern"], change["replacement"], shown)
    assert "<img" in text
    assert "<img" not in shown
    sections = re.findall("^## .*", text, re.MULTILINE)
    assert [one for one in sections if one != "## See it"] == re.findall("^## .*", shown, re.MULTILINE)
    assert [link for link in re.findall(r"\]\(([^)]+)\)", shown) if not link.startswith("http")] == []
    assert "The quickstart goes on from here" in " ".join(shown.split())


def options(command: Any) -> dict[str, Any]:
    """The options of a command, or of all commands of a group, with their defaults."""
    if hasattr(command, "commands"):
        return {name: value for one in command.commands.values() for name, value in options(one).items()}
    return {one.opts[0]: one.default for one in command.params if one.param_type_name == "option"}


COMMANDS = {name: options(command) for name, command in typer.main.get_command(app).commands.items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_of_the_command_has_its_options_and_their_defaults(command: str) -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## `onceward {command}\b[^\n]*\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    # What --json is, is said once for all of them.
    assert COMMANDS[command].keys() - {"--json"} - set(re.findall(r"--[a-z][a-z-]*", section)) == set()
    rows = re.findall(r"^\| `(--[a-z][a-z-]*)[^|]*\| (.*) \|$", section, re.MULTILINE)
    assert {name for name, _ in rows} - COMMANDS[command].keys() == set()
    for name, meaning in rows:
        said = re.search(r"(\d+) if not given", meaning)
        assert said is None or float(said[1]) == COMMANDS[command][name], name
