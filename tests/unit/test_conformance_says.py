"""A sink that fails the conformance suite is told what was expected and what was found, not only that it failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BROKEN = """
from onceward.testing import FakeTransactionalSink, MemoryTarget
from onceward.testing.conformance import TransactionalConformance

target = MemoryTarget()

class TestSink(TransactionalConformance):
    def make_sink(self, name="sink"):
        return FakeTransactionalSink(target, name=name)

    def read_rows(self):
        return [{"id": -4711}]
"""


def test_a_failing_conformance_test_shows_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text(BROKEN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "test_broken.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    explained = [line for line in done.stdout.splitlines() if line.startswith("E ") and "assert [-4711] == []" in line]
    assert explained, done.stdout
