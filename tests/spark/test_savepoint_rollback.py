"""A savepoint whose later epochs are published, restored on purpose: what was said is what becomes of each target."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.clock import SystemClock
from onceward.errors import CheckpointRolledBack
from onceward.savepoints import take

from .tallies import JOB, KEYS, Tallies, expect_tallies
from .workspace import visible


def test_going_back_is_refused_until_accepted_and_each_target_then_has_what_was_said(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Tallies(tmp_path)
    first.add_files(2)
    first.job().run(spark)
    saved = take(first.checkpoint, tmp_path / "saved", clock=SystemClock(), spark=spark.version)
    first.add_files(3)
    first.job().run(spark)
    before, copy = first.in_table(), replace(first, at="back")
    monkeypatch.setenv("ONCEWARD_TEST", copy.environment())
    command = ["savepoint", "restore", str(saved.path), str(copy.checkpoint), "--job", str(JOB), "--json"]
    with pytest.raises(
        CheckpointRolledBack, match=r"'files:out' has epochs 2 to 4 \(15 rows\).*unless you remove them"
    ):
        onceward(*command)
    assert not copy.checkpoint.exists()
    told = {one["sink"]: one for one in onceward(*command, "--accept", "rollback")["sinks"]}
    assert {(name, one["later"], one["becomes"]) for name, one in told.items()} == {
        ("files:out", "epochs 2 to 4 (15 rows)", "files"),
        ("sqlite:tallies", "epochs 2 to 4 (15 rows)", "duplicates"),
        ("sqlite:latest", "epochs 2 to 4 (15 rows)", "overwritten"),
    }
    with pytest.raises(CheckpointRolledBack, match="start once with --accept rollback"):
        copy.job().run(spark)
    assert first.in_table() == before, "a refused start delivers nothing"
    for path in {found for pattern in told["files:out"]["files"] for found in (tmp_path / "out").glob(pattern)}:
        path.unlink()
    assert sorted(first.in_files()) == sorted(before[: 2 * KEYS]), "these patterns are the later epochs, and no others"
    copy.job().run(spark, accept="rollback")
    assert Counter(copy.in_table()) == Counter(before) + Counter(before[2 * KEYS :]), "duplicates, as was said"
    assert set(copy.in_table("latest")) == copy.last()
    expect_tallies(copy.in_files(), copy.last())
    copy.add_files(1)
    copy.job().run(spark)
    assert visible(tmp_path / "out")
    expect_tallies(copy.in_files(), copy.last())
    assert Counter(copy.in_table())[max(copy.in_table())] == 1


def onceward(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found
