"""Kill -9 before every step of take, restore and dispose, and before a step of the repetition: all of it or nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import savepoint_kills

import onceward

HERE = Path(__file__).parent
SOURCES = Path(onceward.__file__).parents[1]
"""Those that are tested: `make mutants` has others than this tree."""


def killed(folder: Path, operation: str, first: int, step: int) -> int:
    """In a process of its own: this one has threads, and may not fork."""
    done = subprocess.run(
        [sys.executable, savepoint_kills.__file__, str(folder), operation, str(first), str(step)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), str(HERE)])},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return int(done.stdout)


@pytest.mark.parametrize("operation", savepoint_kills.OPERATIONS)
def test_killed_before_any_step_it_leaves_all_or_nothing_and_is_then_done(operation: str, workshop: Path) -> None:
    assert killed(workshop, operation, first=3, step=9) > 8


@pytest.mark.soak
@pytest.mark.parametrize("operation", savepoint_kills.OPERATIONS)
def test_killed_before_any_two_steps(operation: str, workshop: Path, record_sweep: list[str]) -> None:
    kills = killed(workshop, operation, first=0, step=1)
    record_sweep.append(f"{operation} of a savepoint: {kills} kills, alone and in all pairs")
    assert kills > 50
