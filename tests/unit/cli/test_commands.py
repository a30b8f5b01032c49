"""The commands on a checkpoint that a killed driver left behind: what they print, what they change, how they exit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command import onceward

from onceward import __version__ as onceward_version
from onceward.contracts.events import StagedSlot
from onceward.history import EpochRecord, HistoryLog
from onceward.identity import RunId
from onceward.storage import LocalStorage
from onceward.testing import Harness


def test_status_tells_decided_epochs_from_settled_ones(unpublished: Harness, tmp_path: Path) -> None:
    done = onceward("status", tmp_path / "checkpoint", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["job"], found["decided"], found["settled"]) == ("job", 1, -1)
    assert [(epoch["epoch"], epoch["state"]) for epoch in found["epochs"]] == [(0, "decided"), (1, "decided")]
    (sink,) = found["sinks"]
    assert (sink["pending_rows"], sink["in_doubt"], sink["oldest_in_doubt_s"]) == (8, None, None)


def test_status_with_the_job_counts_what_waits_in_its_targets(
    unpublished: Harness, tmp_path: Path, job_file: Path
) -> None:
    done = onceward("status", tmp_path / "checkpoint", "--job", job_file, "--json")
    (asked,) = json.loads(done.stdout)["sinks"]
    listed = json.loads(onceward("transactions", "list", job_file, "--json").stdout)
    assert asked["in_doubt"] == len(listed) == 4
    assert 0 <= asked["oldest_in_doubt_s"] <= max(one["age_s"] for one in listed)
    unpublished.drain()
    printed = onceward("status", tmp_path / "checkpoint", "--job", job_file).stdout
    assert re.search(r"in doubt.*oldest", printed)
    assert re.search(r"files:out.* 0 +│ -", printed), printed


def test_status_of_a_drained_job_shows_its_sinks_and_their_guarantee(harness: Harness, tmp_path: Path) -> None:
    harness.drain()
    done = onceward("status", tmp_path / "checkpoint")
    assert done.returncode == 0
    for text in ("files:out", "exactly-once", "settled 2", "two-phase commit"):
        assert text in done.stdout


def test_recover_dry_run_prints_the_plan_and_changes_nothing(
    unpublished: Harness, tmp_path: Path, job_file: Path, visible: Callable[[], int]
) -> None:
    before = sorted(path.name for path in (tmp_path / "checkpoint").rglob("*"))
    done = onceward("recover", tmp_path / "checkpoint", "--dry-run", "--job", job_file, "--json")
    steps = json.loads(done.stdout)["steps"]
    assert [(step["step"], step["epoch"]) for step in steps] == [("Publish", 0), ("Publish", 1)]
    assert sorted(path.name for path in (tmp_path / "checkpoint").rglob("*")) == before
    assert visible() == 0


def test_recover_publishes_what_is_decided(
    unpublished: Harness, tmp_path: Path, job_file: Path, visible: Callable[[], int]
) -> None:
    done = onceward("recover", tmp_path / "checkpoint", "--job", job_file)
    assert done.returncode == 0, done.stderr
    assert visible() == 8
    again = onceward("recover", tmp_path / "checkpoint", "--job", job_file)
    assert "nothing to do" in again.stdout
    assert visible() == 8


def test_recover_without_the_job_says_what_it_needs(unpublished: Harness, tmp_path: Path) -> None:
    done = onceward("recover", tmp_path / "checkpoint")
    assert done.returncode == 2
    assert "--job" in done.stderr


def test_rewind_lets_a_lost_epoch_run_again(unpublished: Harness, tmp_path: Path, visible: Callable[[], int]) -> None:
    for manifest in (tmp_path / "checkpoint" / "onceward" / "manifests").glob("1.*"):
        manifest.unlink()
    lost = onceward("status", tmp_path / "checkpoint", "--json")
    assert json.loads(lost.stdout)["epochs"][1]["state"] == "lost"
    done = onceward("rewind", tmp_path / "checkpoint", 1, "--json")
    assert json.loads(done.stdout)["removed"] == ["commits/1"]
    unpublished.drain()
    assert visible() == 12


def test_rewind_of_a_published_epoch_is_refused(harness: Harness, tmp_path: Path) -> None:
    harness.drain()
    done = onceward("rewind", tmp_path / "checkpoint", 1)
    assert done.returncode == 1
    assert "published already" in done.stderr
    assert (tmp_path / "checkpoint" / "commits" / "2").exists()


def test_rewind_with_the_job_sees_receipts_that_the_checkpoint_does_not_know(
    unpublished: Harness, tmp_path: Path, job_file: Path
) -> None:
    assert onceward("recover", tmp_path / "checkpoint", "--job", job_file).returncode == 0
    for marker in (tmp_path / "checkpoint" / "onceward" / "settled").iterdir():
        marker.unlink()
    done = onceward("rewind", tmp_path / "checkpoint", 0, "--job", job_file)
    assert done.returncode == 1
    assert "published already" in done.stderr


def test_rewind_of_what_the_targets_have_lost_computes_it_again(
    harness: Harness, tmp_path: Path, job_file: Path, visible: Callable[[], int]
) -> None:
    harness.life(until=0)
    kept = {path.name for path in (tmp_path / "out").glob("*.jsonl")}
    harness.drain()
    checkpoint = tmp_path / "checkpoint"
    arguments = ("rewind", checkpoint, 1, "--job", job_file, "--went-back")
    assert "published already" in onceward(*arguments).stderr
    for path in (tmp_path / "out").glob("*.jsonl"):
        if path.name not in kept:
            path.unlink()
    assert "needs the job" in onceward("rewind", checkpoint, 1, "--went-back").stderr
    assert onceward(*arguments, "--json").returncode == 0
    harness.drain()
    assert visible() == 12


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "nowhere"), "not a checkpoint"),
        (("status", "s3://bucket/x"), "local"),
        (("rewind", "nowhere", "1"), "not a checkpoint"),
        (("run", "nowhere.py"), "no file"),
        (("recover", "nowhere", "--dry-run"), "no onceward job"),
        (("frobnicate",), "No such command"),
        (("run",), "Missing argument"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = onceward(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_as_json_is_one_document(tmp_path: Path) -> None:
    done = onceward("status", tmp_path / "nowhere", "--json")
    document = json.loads(done.stdout)
    assert (document["error"], document["exit_code"]) == ("ConfigurationError", 2)
    assert document["hint"]


def test_a_file_without_a_job_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    done = onceward("run", tmp_path / "empty.py")
    assert done.returncode == 2
    assert "defines 0 jobs" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import no_such_module", "line 2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("job = Job(", "SyntaxError"),
        ("job = Jb()", "line 2: NameError"),
    ],
    ids=["module", "syntax", "name"],
)
def test_a_file_that_cannot_be_loaded_is_a_mistake_that_no_restart_mends(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "broken.py").write_text(f"x = 1\n{line}\n")
    # As it is typed: from the working directory.
    done = onceward("run", os.path.relpath(tmp_path / "broken.py"))
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (("run",), "job.run(None)"),
        (("doctor",), "job.run(None)"),
        (("status", "CHECKPOINT", "--job"), "job.run(None)"),
        (("poison", "show"), "job.start(None)"),
        (("transactions", "list"), "foreach_batch(name='job', checkpoint=job.checkpoint, sinks=job.sinks)"),
    ],
    ids=["run", "doctor", "status", "poison", "transactions"],
)
def test_s99_a_file_that_starts_its_job_while_it_is_loaded_starts_nothing(
    unpublished: Harness, job_file: Path, visible: Callable[[], int], arguments: tuple[str, ...], start: str
) -> None:
    job_file.write_text(f"{job_file.read_text()}from onceward import foreach_batch\n{start}\n")
    checkpoint = str(job_file.parent / "checkpoint")
    done = onceward(*(checkpoint if word == "CHECKPOINT" else word for word in arguments), job_file)
    assert done.returncode == 2, done.stdout + done.stderr
    assert 'if __name__ == "__main__":' in " ".join(done.stderr.split())
    assert visible() == 0


def test_s99_what_is_under_the_guard_of_main_is_not_run_by_a_command(
    unpublished: Harness, job_file: Path, visible: Callable[[], int]
) -> None:
    job_file.write_text(f'{job_file.read_text()}if __name__ == "__main__":\n    job.run(None)\n')
    assert onceward("transactions", "list", job_file).returncode == 0
    assert visible() == 0


def test_transactions_are_listed_and_only_what_is_decided_is_committed_by_hand(
    unpublished: Harness, job_file: Path, visible: Callable[[], int]
) -> None:
    listed = json.loads(onceward("transactions", "list", job_file, "--json").stdout)
    assert {one["verdict"] for one in listed} == {"commit"}
    assert {one["epoch"] for one in listed} == {0, 1}
    name = listed[0]["transaction"]
    table = onceward("transactions", "list", job_file).stdout
    assert name in table
    assert "its epoch is decided" in table
    refused = onceward("transactions", "abort", job_file, name)
    assert refused.returncode == 2
    assert "must not be aborted" in refused.stderr
    assert visible() == 0
    done = onceward("transactions", "commit", job_file, name, "--json")
    assert json.loads(done.stdout) == {"transaction": name, "settled": 1}
    assert visible() == 8
    assert "nothing waits" in onceward("transactions", "list", job_file).stdout


def test_the_command_tells_its_version_and_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "onceward", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["onceward", onceward_version]


def test_the_newest_epochs_are_listed_with_their_slots(unpublished: Harness, tmp_path: Path) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    slots = tuple(StagedSlot(number, 10, 100, "host", begun) for number in range(3))
    history = HistoryLog(LocalStorage(tmp_path / "checkpoint" / "onceward"))
    history.write(
        [
            EpochRecord(epoch, RunId("run"), outcome, times={"begun": begun}, slots=slots, slot_count=3)
            for epoch, outcome in enumerate(("failed", "settled", "failed", "settled"))
        ]
    )
    listed = json.loads(onceward("checkpoints", "list", tmp_path / "checkpoint", "--last", 2, "--json").stdout)
    assert [(one["epoch"], len(one["slots"])) for one in listed["epochs"]] == [(2, 3), (3, 3)]
    failed = json.loads(onceward("checkpoints", "list", tmp_path / "checkpoint", "--failed", "--json").stdout)
    assert [(one["epoch"], len(one["slots"])) for one in failed["epochs"]] == [(0, 3), (2, 3)]
    assert (failed["summary"]["settled"], failed["summary"]["failed"]) == (2, 2)


def test_a_checkpoint_of_another_job_is_looked_at_all_the_same(
    unpublished: Harness, tmp_path: Path, job_file: Path
) -> None:
    """The name is one finding; what else is wrong is still told."""
    job_file.write_text(job_file.read_text().replace("name='job'", "name='other'"))
    (tmp_path / "checkpoint" / "commits" / "0").write_bytes(b"")
    done = onceward("checkpoints", "verify", tmp_path / "checkpoint", "--job", job_file)
    assert "belongs to the job 'job'" in " ".join(done.stdout.split())
    assert "commits/0" in done.stdout


@pytest.mark.parametrize("command", ["status", "checkpoints"])
def test_a_command_that_reads_files_waits_for_nothing_else(command: str) -> None:
    code = f"import sys; from onceward.cli.main import command_with; command_with(['{command}']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyarrow", "onceward.recovery", "onceward.restart"} & {*loaded}


def test_a_consequence_that_does_not_exist_is_refused_before_spark_starts(job_file: Path) -> None:
    done = onceward("run", job_file, "--accept", "everything")
    assert done.returncode == 2
    assert "'everything'" in done.stderr
    assert "fresh-start, copy, rollback, adopt" in done.stderr
    assert "starting Spark" not in done.stderr


def test_adopting_a_directory_that_is_not_there_does_not_advise_to_write_it_into_the_job(job_file: Path) -> None:
    done = onceward("adopt", job_file.parent / "mistyped", "--job", job_file)
    assert done.returncode == 2
    assert "there is no directory" in done.stderr
    assert "checkpoint=" not in done.stderr
