"""The demonstration keeps its word: every row once for onceward, duplicates for the naive job, under the same kills."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from .workspace import python, python_path


def test_the_demo_finds_nothing_lost_or_duplicated_beside_a_naive_job_that_duplicates(tmp_path: Path) -> None:
    command = [python(), "-c", "from onceward.cli import main; main()", "demo", "--kills", "1", "--seed", "7", "--json"]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert all(audit["lost"] == audit["duplicated"] == 0 for audit in result["onceward"])
    assert sum(audit["duplicated"] for audit in result["naive"]) > 0
