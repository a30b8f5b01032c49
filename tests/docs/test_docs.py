"""What the docs show is executed, and what they point at exists."""

import ast
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from onceward import Guarantee, Sink
from onceward import sinks as built_in
from onceward.cli.app import app
from onceward.testing.servers import RedisServer

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = ROOT / "README.md"
CHANGING = ROOT / "docs" / "changing-a-job.md"
CHECKPOINTS = ROOT / "docs" / "checkpoints.md"
FILES = ROOT / "docs" / "targets" / "files.md"
KAFKA = ROOT / "docs" / "targets" / "kafka.md"
MIGRATING = ROOT / "docs" / "migrating.md"
MYSQL = ROOT / "docs" / "targets" / "mysql.md"
POSTGRES = ROOT / "docs" / "targets" / "postgres.md"
WRITING_A_SINK = ROOT / "docs" / "writing-a-sink.md"
REDIS = ROOT / "docs" / "targets" / "redis.md"
SQLITE = ROOT / "docs" / "targets" / "sqlite.md"
RESTARTING = ROOT / "docs" / "restarting.md"
STDOUT = ROOT / "docs" / "targets" / "stdout.md"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in _BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def anchors(page: Path) -> set[str]:
    """The fragments that a browser of the repository makes of the headings."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: the guide's sinks force every file to the disk, at every crash point."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="onceward-", dir=memory) as folder:
        yield Path(folder)


def run_python(*arguments: str | Path, folder: Path, **environment: str) -> str:
    """Run this interpreter in a folder, with onceward on its path; what it printed."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def test_every_page_with_python_is_executed_here() -> None:
    executed = {
        README,
        CHANGING,
        CHECKPOINTS,
        MIGRATING,
        RESTARTING,
        WRITING_A_SINK,
        FILES,
        KAFKA,
        MYSQL,
        POSTGRES,
        REDIS,
        SQLITE,
        STDOUT,
    }
    assert {page for page in PAGES if blocks(page, "python")} == executed


def test_guide_to_sinks_is_a_test_module_that_passes(workshop: Path) -> None:
    (workshop / "test_guide.py").write_text("\n".join(blocks(WRITING_A_SINK, "python")), encoding="utf-8")
    (workshop / "pytest.ini").write_text("[pytest]\n")
    options = ("-q", "-p", "no:cacheprovider", "--basetemp", workshop / "made")
    printed = run_python("-m", "pytest", *options, "test_guide.py", folder=workshop)
    passed = re.search(r"(\d+) passed", printed)
    assert passed is not None
    assert int(passed[1]) > 40, printed


@pytest.mark.parametrize(
    "page",
    [CHANGING, CHECKPOINTS, FILES, KAFKA, MIGRATING, MYSQL, POSTGRES, RESTARTING, SQLITE, STDOUT],
    ids=lambda page: page.stem,
)
def test_what_a_page_constructs_can_be_constructed(page: Path) -> None:
    """How it behaves is tested against the server."""
    for block in blocks(page, "python"):
        exec(block, {})


def test_page_of_redis_is_a_test_module_that_passes(workshop: Path, redis: RedisServer) -> None:
    """The wrong way to count goes wrong, and the two right ways do not. In a database of its own: it is emptied."""
    (workshop / "test_redis_page.py").write_text("\n".join(blocks(REDIS, "python")), encoding="utf-8")
    (workshop / "pytest.ini").write_text("[pytest]\n")
    options = ("-q", "-p", "no:cacheprovider", "--basetemp", workshop / "made")
    url = redis.url.replace("/0", "/9")
    printed = run_python("-m", "pytest", *options, "test_redis_page.py", folder=workshop, REDIS_URL=url)
    assert "3 passed" in printed


def test_sinks_of_the_guide_are_some_fifty_lines_each() -> None:
    source = "\n".join(blocks(WRITING_A_SINK, "python"))
    for name in ("LinesSink", "PrintSink", "TableSink"):
        body = re.split(r"^(?=\S)", source[source.index(f"class {name}") :], maxsplit=2, flags=re.MULTILINE)[1]
        assert len([line for line in body.splitlines() if line.strip()]) <= 55, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_resolves(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, fragment = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", [README, ROOT / "docs" / "guarantees.md"], ids=lambda page: page.name)
def test_guarantee_tables_say_what_the_sinks_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in built_in.__all__:
        sink: type[Sink] = getattr(built_in, name)
        (row,) = re.findall(rf"^\| \[?`{name}`[^|]*\|.*$", text, re.MULTILINE)
        said = [guarantee for guarantee in Guarantee if f"| {guarantee.value} |" in row]
        assert said == [sink.guarantee], row


def test_cli_page_has_every_command() -> None:
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    commands |= {str(group.name) for group in app.registered_groups}
    documented = set(re.findall(r"^## `onceward (\w+)", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE))
    assert documented == commands


@pytest.mark.spark
def test_ten_lines_of_the_readme_run_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    (tmp_path / "count_views.py").write_text(program, encoding="utf-8")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "1.json").write_text('{"app": "maps"}\n{"app": "mail"}\n{"app": "maps"}\n')
    conf = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1"}
    arguments = " ".join(f"--conf {key}={value}" for key, value in conf.items())
    for _ in range(2):
        run_python("count_views.py", folder=tmp_path, PYSPARK_SUBMIT_ARGS=f"{arguments} pyspark-shell")
        with closing(sqlite3.connect(tmp_path / "pv.db")) as database:
            rows = database.execute("SELECT app, count FROM pv ORDER BY app").fetchall()
        assert rows == [("mail", 1), ("maps", 2)]
        files = sorted((tmp_path / "out" / "pv").glob("*.parquet"))
        assert sum(pq.read_table(file).num_rows for file in files) == 2


def test_hints_name_a_page_by_its_title_and_no_file_of_the_repository() -> None:
    """Who has only the wheel has no docs/ folder."""
    headings = {page: set(_HEADING.findall(page.read_text(encoding="utf-8"))) for page in PAGES}
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, _WITH_DOCSTRING)
        }
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        said = [text for text in texts if text not in docstrings]
        assert [text for text in said if "docs/" in text] == [], path
        for title, section in re.findall(r'the page "([^"]+)", "([^"]+)"', " ".join(said)):
            assert any({title, section} <= found for found in headings.values()), (path, title, section)
