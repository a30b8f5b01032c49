"""One mutant applied to a copy of the sources, and the fast tests run against that copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mutants.mutant import ROOT, SOURCES, Mutant

PATIENCE_S = 600
# Without the thousands of histories of the simulation and of pairs of crashes: they take minutes.
ALL_FAST = (
    "tests/unit",
    "tests/formats/test_golden.py",
    "tests/protocol",
    "--ignore=tests/protocol/test_simulation.py",
    "--ignore=tests/protocol/test_simulation_has_teeth.py",
    "--deselect=tests/protocol/test_crash_sweep.py::test_a_crash_at_any_point_of_the_recovery_from_a_crash_at_any_point",
    "--deselect=tests/protocol/test_power_loss.py::test_s74_power_lost_again_during_the_recovery_from_a_power_loss",
)
_FAST = "not soak and not spark and not cluster"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
# What pytest says with its exit code.
_PASSED, _TESTS_FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: `caught` alone is well."""

    caught: bool
    says: str


def copy_sources(into: Path) -> Path:
    """The package as it is now, compiled, under a folder of its own."""
    shutil.copytree(SOURCES, into, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(into)], check=True)
    return into


def judge(mutant: Mutant, pristine: Path, work: Path) -> Verdict:
    """Break a copy and see whether a test notices: those that should first, then every other fast one."""
    if (found := mutant.found()) != 1:
        return Verdict(False, f"DOES NOT APPLY: its text stands {found} times in {mutant.file}")
    sources = work / mutant.name
    shutil.copytree(pristine, sources)
    try:
        _break(mutant, sources)
        for tests, remark in ((mutant.tests, ""), (ALL_FAST, ", which its entry does not name")):
            code, output = run_tests(sources, tests)
            if code == _TESTS_FAILED and (failed := _FAILED.search(output)):
                return Verdict(True, f"caught by {failed[1]}{remark}")
            if code != _PASSED:
                return Verdict(False, f"NOT JUDGED: pytest ended with {code}\n{output[-2000:]}")
        return Verdict(False, "SURVIVED")
    except subprocess.TimeoutExpired:
        return Verdict(False, f"NOT JUDGED: its tests took longer than {PATIENCE_S} s")
    finally:
        shutil.rmtree(sources, ignore_errors=True)


def _break(mutant: Mutant, sources: Path) -> None:
    path = sources / mutant.path
    path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
    # Python trusts a compiled file whose source has the same size and second; this one may.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run_tests(sources: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """The exit code and the output of these tests against these sources; it stops at the first failure."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-o",
        "addopts=",
        "-x",
        "-q",
        "-rfE",
        "-m",
        "not soak and not spark and not cluster",
    ]
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, *plugins, f"--basetemp={sources}-tests", *tests],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(sources),
            "ONCEWARD_ALL_PAIRS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{sources}-hypothesis",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
