"""The habits of this codebase that a machine can see."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "onceward"

LINES_IN_A_FILE = 400
LINES_IN_A_FUNCTION = 60
NAMES_THAT_SAY_NOTHING = {"utils.py", "helpers.py", "manager.py", "common.py"}

FOLDERS = ("src", "tests", "benchmarks", "deploy", "docs", "examples", "tools", ".ci")
TEXT_SUFFIXES = {"", ".css", ".html", ".js", ".json", ".md", ".py", ".sh", ".sql", ".toml", ".yaml", ".yml"}

# Both patterns are written so that they do not match themselves.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E)\b")
PATH_OF_A_MACHINE = re.compile(r"(?<![\w.}/-])/(?:home|root|Users|work)/\w")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def modules_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def texts() -> Iterator[Path]:
    """Every text file of the project, and none that a tool has made."""
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
                yield path


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def place(path: Path, line: int | None = None) -> str:
    where = path.relative_to(ROOT).as_posix()
    return where if line is None else f"{where}:{line}"


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{place(path, number)} {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def expect_none(offenders: list[str]) -> None:
    assert not offenders, "\n" + "\n".join(offenders)


def is_sleep(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="sleep")):
            return True
        case ast.ImportFrom(module="time", names=names):
            return any(name.name == "sleep" for name in names)
        case _:
            return False


def may_stand_in_an_init(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AnnAssign(target=ast.Name(id="__all__")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(isinstance(inner, ast.ImportFrom) for inner in body)
        case _:
            return False


def test_the_package_is_found() -> None:
    assert modules(), f"no module in {PACKAGE.relative_to(ROOT)}, so every other test here would pass"


def test_every_module_opens_with_a_docstring() -> None:
    expect_none([place(path) for path in modules() if not ast.get_docstring(tree(path))])


def test_no_file_is_too_long() -> None:
    paths = [*modules(), *modules_of_tests()]
    lengths = {place(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    expect_none([f"{where}: {length} lines" for where, length in lengths.items() if length > LINES_IN_A_FILE])


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{place(path, node.lineno)} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    expect_none([f"{where}: {length} lines" for where, length in lengths.items() if length > LINES_IN_A_FUNCTION])


def test_init_files_only_re_export() -> None:
    others = [
        place(path, statement.lineno)
        for path in modules()
        if path.name == "__init__.py"
        for statement in tree(path).body
        if not may_stand_in_an_init(statement)
    ]
    expect_none(others)


def test_every_file_name_says_what_is_inside() -> None:
    files = [*modules(), *modules_of_tests()]
    expect_none([place(path) for path in files if path.name in NAMES_THAT_SAY_NOTHING])


def test_tests_await_events_and_never_sleep() -> None:
    sleeps = [
        place(path, node.lineno)
        for path in modules_of_tests()
        for node in ast.walk(tree(path))
        if is_sleep(node) and isinstance(node, ast.Call | ast.ImportFrom)
    ]
    expect_none(sleeps)


def test_no_two_modules_of_tests_answer_to_one_name() -> None:
    """Outside of packages Python knows a module by its bare name, and the second one would be given the first."""
    seen: dict[str, Path] = {}
    for path in modules_of_tests():
        if path.name != "conftest.py" and not (path.parent / "__init__.py").exists():
            assert path.name not in seen, f"{path} and {seen[path.name]}"
            seen[path.name] = path


def test_nothing_is_left_for_later() -> None:
    expect_none(lines_matching(UNFINISHED))


def test_no_remark_is_for_a_checker_that_does_not_run() -> None:
    """mypy reads `src` alone."""
    remark = re.compile(r"#\s*type:\s*ignore")
    expect_none([line for line in lines_matching(remark) if not line.startswith("src/")])


def test_no_path_of_a_machine_is_written_down() -> None:
    expect_none(lines_matching(PATH_OF_A_MACHINE))


def test_the_tree_in_the_architecture_names_every_package_and_no_other() -> None:
    """Of `spark/` and `epoch/` every module: there one looks for the way of a row."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## The tree\n")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    there = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    there |= {path.name for path in PACKAGE.glob("*.py")}
    for folder in ("spark", "epoch"):
        there.remove(f"{folder}/")
        there |= {f"{folder}/{path.name}" for path in (PACKAGE / folder).glob("*.py")}
    there = {name for name in there if PurePath(name).name not in ("__init__.py", "__main__.py")}
    assert sorted(named - {"sinks/receipts.py"}) == sorted(there)
