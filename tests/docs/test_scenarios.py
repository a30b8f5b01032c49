"""The table of scenarios names every number once, and every test it names exists."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "scenarios.md"
NUMBERS = range(1, 100)
WITHOUT_A_TEST = ("next issue", "cannot happen")

_ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.*?) \| (.+?) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py(?:::\w+)+)`")


@dataclass(frozen=True)
class Scenario:
    number: int
    tests: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class Class:
    bases: tuple[str, ...]
    methods: frozenset[str]


def scenarios() -> list[Scenario]:
    rows = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [Scenario(int(number), tuple(_TEST.findall(tests)), result) for number, _, tests, result in rows]


def functions(node: ast.Module | ast.ClassDef) -> frozenset[str]:
    return frozenset(child.name for child in node.body if isinstance(child, ast.FunctionDef))


@cache
def module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def classes() -> dict[str, Class]:
    """Every class that a test may inherit from, by its name."""
    found = {}
    for path in [*TESTS.rglob("*.py"), *(ROOT / "src" / "onceward" / "testing").rglob("*.py")]:
        for node in module(path).body:
            if isinstance(node, ast.ClassDef):
                bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                found[node.name] = Class(bases, functions(node))
    return found


def has_method(name: str, method: str) -> bool:
    known = classes().get(name)
    return known is not None and (method in known.methods or any(has_method(base, method) for base in known.bases))


def exists(test: str) -> bool:
    file, *names = test.split("::")
    path = TESTS / file
    if not path.is_file():
        return False
    if len(names) == 1:
        return names[0] in functions(module(path))
    name, method = names
    is_here = any(isinstance(node, ast.ClassDef) and node.name == name for node in module(path).body)
    return is_here and has_method(name, method)


def is_soak(test: str) -> bool:
    """Whether only `make soak` runs it."""
    file, name, *_ = test.split("::")
    marks: list[ast.expr] = []
    for node in module(TESTS / file).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            marks += node.decorator_list
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks.append(node.value)
    return any(ast.unparse(mark).startswith("pytest.mark.soak") for mark in marks)


def test_every_number_has_one_row() -> None:
    found = [scenario.number for scenario in scenarios()]
    assert found[: len(NUMBERS)] == list(NUMBERS)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: str(scenario.number))
def test_named_tests_exist(scenario: Scenario) -> None:
    assert [test for test in scenario.tests if not exists(test)] == []
    assert scenario.tests or scenario.result.startswith(WITHOUT_A_TEST), "neither a test nor a reason"
    assert not scenario.tests or not all(map(is_soak, scenario.tests)), "nothing shows it in `make test`"


def test_every_test_that_the_page_names_exists() -> None:
    named = _TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert [test for test in named if not exists(test)] == []


def test_a_test_that_does_not_exist_is_noticed() -> None:
    here = "docs/test_scenarios.py"
    assert exists(f"{here}::test_a_test_that_does_not_exist_is_noticed")
    assert exists("protocol/test_conformance.py::TestFileSink::test_nothing_is_visible_before_the_commit")
    assert not exists(f"{here}::test_nothing")
    assert not exists("docs/nowhere.py::test_nothing")
    assert not exists("protocol/test_conformance.py::TestFileSink::test_nothing")
    assert not exists(f"{here}::Scenario::exists")
    assert is_soak("spark/test_servers_away.py::test_each_server_is_away_for_minutes")
    assert not is_soak(f"{here}::test_every_number_has_one_row")
