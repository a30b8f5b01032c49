"""`onceward resolve` and `transactions --all`: they show, ask, write down, and the next start goes by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command import onceward

from onceward.testing import Harness

SIGNED = ("--yes", "--because", "the disk lost it, and nobody misses it")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def lost(unpublished: Harness, tmp_path: Path) -> Harness:
    """Epochs 0 and 1 are decided; a file of epoch 0 is gone from the hidden folder."""
    names = sorted((tmp_path / "out" / ".onceward").glob("*.jsonl"))
    staged = next(path for path in names if path.name.split("_")[4:7] == ["0", "0", "0"])
    staged.unlink()
    return unpublished


def resolutions(checkpoint: Path) -> list[str]:
    folder = checkpoint / "onceward" / "resolutions"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_slot_that_is_in_is_left_out_of_publishing(
    lost: Harness, checkpoint: Path, job_file: Path, visible: Callable[[], int]
) -> None:
    refused = onceward("recover", checkpoint, "--job", job_file)
    assert refused.returncode == 1
    assert "OutputLost" in refused.stderr
    assert "resolve slot-is-in" in refused.stderr
    before = visible()
    said = onceward(
        "resolve", "slot-is-in", job_file, "--epoch", 0, "--sink", "files:out", "--slot", 0, *SIGNED, "--json"
    )
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == {"resolution": 0, "kind": "slot-is-in", "epoch": 0, "sink": "files:out"}
    assert visible() == before, "saying it moves nothing"
    (step, _) = json.loads(onceward("recover", checkpoint, "--dry-run", "--job", job_file, "--json").stdout)["steps"]
    assert "resolved by hand" in step["why"]
    assert onceward("recover", checkpoint, "--job", job_file).returncode == 0
    shown = onceward("status", checkpoint).stdout
    assert "slot 0 of epoch 0 in sink 'files:out' is in the target" in shown
    assert "nobody misses it" in shown
    (kept,) = json.loads(onceward("status", checkpoint, "--json").stdout)["resolutions"]
    assert (kept["number"], kept["epoch"], kept["withdrawn"]) == (0, 0, False)
    assert "@" in kept["by"]


def test_it_shows_what_it_will_do_and_asks(lost: Harness, checkpoint: Path, job_file: Path) -> None:
    for answer in ("n\n", ""):
        done = onceward("resolve", "accept-loss", job_file, 0, answer=answer)
        assert done.returncode == 1
        assert "are given up" in done.stderr
        assert resolutions(checkpoint) == []
    done = onceward("resolve", "accept-loss", job_file, 0, answer="y\nwe know\n")
    assert done.returncode == 0, done.stderr
    assert resolutions(checkpoint) == ["0.json"]
    assert onceward("recover", checkpoint, "--job", job_file).returncode == 0
    assert "we know" in onceward("status", checkpoint).stdout


def test_a_script_must_say_why(lost: Harness, checkpoint: Path, job_file: Path) -> None:
    done = onceward("resolve", "epoch-is-published", job_file, 0, "--yes")
    assert done.returncode == 2
    assert "--because" in done.stderr
    assert resolutions(checkpoint) == []


def test_a_resolution_can_be_withdrawn(lost: Harness, checkpoint: Path, job_file: Path) -> None:
    assert onceward("resolve", "epoch-is-published", job_file, 0, *SIGNED).returncode == 0
    assert onceward("resolve", "withdraw", job_file, 0, *SIGNED).returncode == 0
    assert onceward("recover", checkpoint, "--job", job_file).returncode == 1
    assert "(withdrawn)" in onceward("status", checkpoint).stdout


def test_an_identity_that_cannot_be_read_is_written_down_anew(
    unpublished: Harness, checkpoint: Path, job_file: Path, visible: Callable[[], int]
) -> None:
    (checkpoint / "onceward" / "identity.json").write_bytes(b"torn")
    refused = onceward("recover", checkpoint, "--job", job_file)
    assert refused.returncode == 1
    assert "onceward resolve identity" in refused.stderr
    said = onceward("resolve", "identity", job_file, *SIGNED)
    assert said.returncode == 0, said.stderr
    assert onceward("recover", checkpoint, "--job", job_file).returncode == 0
    assert visible() == 8


def test_an_identity_is_written_down_nowhere_while_the_checkpoint_is_not_there(
    unpublished: Harness, checkpoint: Path, job_file: Path
) -> None:
    """As on a disk that is not mounted: a folder made in its place would hide it."""
    checkpoint.rename(checkpoint.with_name("unmounted"))
    said = onceward("resolve", "identity", job_file, *SIGNED)
    assert said.returncode == 2
    assert "there is no directory" in said.stderr
    assert "mounted" in said.stderr
    assert not checkpoint.exists()


def test_a_checkpoint_of_sparks_alone_is_shown_as_refused_and_adopted_when_asked(
    unpublished: Harness, checkpoint: Path, job_file: Path
) -> None:
    for path in sorted((checkpoint / "onceward").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    planned = onceward("recover", checkpoint, "--dry-run", "--job", job_file)
    assert "onceward has never run on it" in planned.stdout
    refused = onceward("recover", checkpoint, "--job", job_file)
    assert refused.returncode == 1
    assert "CheckpointUnknown" in refused.stderr
    assert onceward("recover", checkpoint, "--job", job_file, "--accept", "adopt").returncode == 0
    found = onceward("transactions", "list", job_file, "--all", "--json")
    strays = json.loads(found.stdout)
    assert len(strays) == 4
    assert {one["verdict"] for one in strays} == {"ask"}
    assert json.loads(onceward("transactions", "list", job_file, "--json").stdout) == []


def test_transactions_of_another_generation_are_aborted_only_if_it_is_declared_dead(
    unpublished: Harness, tmp_path: Path, checkpoint: Path, job_file: Path
) -> None:
    for path in sorted((checkpoint / "onceward").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert onceward("recover", checkpoint, "--job", job_file, "--accept", "adopt").returncode == 0
    kept = onceward("transactions", "abort", job_file, "--all", *SIGNED)
    assert (kept.returncode, "nothing" in kept.stdout) == (0, True)
    (generation,) = {
        one["generation"] for one in json.loads(onceward("transactions", "list", job_file, "--all", "--json").stdout)
    }
    assert onceward("transactions", "abort", job_file, "--all", "--generation", generation).returncode == 1, "it asks"
    assert len(list((tmp_path / "out" / ".onceward").iterdir())) == 4
    done = onceward("transactions", "abort", job_file, "--all", "--generation", generation, *SIGNED, "--json")
    assert len(json.loads(done.stdout)["aborted"]) == 4
    assert not list((tmp_path / "out" / ".onceward").iterdir())
    assert "4 transactions were aborted" in onceward("status", checkpoint).stdout


def test_abort_wants_one_name_or_all(unpublished: Harness, job_file: Path) -> None:
    assert onceward("transactions", "abort", job_file).returncode == 2
    assert onceward("transactions", "abort", job_file, "some-name", "--all").returncode == 2
