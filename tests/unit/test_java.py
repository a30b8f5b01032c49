"""Without a Java that Spark can use the command says so, and ends as for a mistake that no restart mends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.spark.java import missing_java


def java_in(folder: Path, says: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("says", "named"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java 11"),
        ('java version "1.8.0_292"', "Java 8"),
        ('openjdk version "17.0.2" 2022-01-18', None),
        ('openjdk version "21" 2023-09-19', None),
        ("what no Java of ours says", None),
    ],
    ids=["11", "8", "17", "21", "another"],
)
def test_a_java_that_is_too_old_is_named(tmp_path: Path, says: str, named: str | None) -> None:
    program = java_in(tmp_path, says)
    for environment in ({"JAVA_HOME": str(tmp_path), "PATH": ""}, {"PATH": f"{program.parent}:/bin"}):
        wrong = missing_java(environment)
        assert (wrong is None) if named is None else (wrong is not None and named in str(wrong))


def test_no_java_at_all_is_told_from_a_wrong_java_home(tmp_path: Path) -> None:
    assert "none on the PATH" in str(missing_java({"PATH": str(tmp_path)}))
    assert f"JAVA_HOME is {tmp_path}" in str(missing_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"}))


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_the_command_says_which_java_it_needs(tmp_path: Path, command: str) -> None:
    """It would end with 3 else, and whatever supervises it would start it for ever."""
    (tmp_path / "job.py").write_text(
        "from onceward import Job\nfrom onceward.sinks import FileSink\n"
        "job = Job(name='job', checkpoint='c', pipeline=lambda spark: None, sinks=[FileSink('out')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "onceward", command, "job.py"],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "has no bin/java" in done.stderr
    assert "install Java 17 or newer" in done.stderr
    assert not (tmp_path / "out").exists()
