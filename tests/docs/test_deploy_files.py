"""The files in deploy/ are what systemd and Kubernetes take, and what the command takes."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from onceward import Job, NoRestart
from onceward.cli.app import app
from onceward.restart import SupervisorLimits

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "onceward@.service"
MANIFESTS = DEPLOY / "kubernetes" / "onceward.yaml"
STOP_S = SupervisorLimits().stop_s + SupervisorLimits().stop_grace_s


def service() -> Any:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read_string(UNIT.read_text())
    return unit["Service"]


def documents() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (pre-commit brings it)")
    return list(yaml.safe_load_all(MANIFESTS.read_text()))


def document(kind: str) -> dict[str, Any]:
    (found,) = [one for one in documents() if one["kind"] == kind]
    return found


def expect_options_of_run(words: list[str]) -> None:
    run = typer.main.get_command(app).commands["run"]
    known = {name for parameter in run.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_unit_is_what_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "onceward"
    program.touch(mode=0o755)
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/onceward/bin/onceward", str(program)))
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_starts_the_command_and_gives_it_time_to_stop() -> None:
    words = service()["ExecStart"].split()
    assert words[1] == "run"
    expect_options_of_run(words)
    assert int(service()["TimeoutStopSec"]) > STOP_S
    assert int(service()["WatchdogSec"]) > SupervisorLimits().heartbeat_s
    assert (service()["Type"], service()["KillMode"]) == ("notify", "mixed")


def test_a_strategy_that_gave_up_is_not_overruled_by_systemd() -> None:
    assert service()["RestartPreventExitStatus"].split() == ["1", "2", "3", "4"]


def test_one_pod_at_a_time_that_is_ready_by_the_ready_file_and_has_time_to_stop() -> None:
    spec = document("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > STOP_S
    (driver,) = pod["containers"]
    expect_options_of_run(driver["args"])
    file = driver["args"][driver["args"].index("--ready-file") + 1]
    for probe in ("readinessProbe", "startupProbe"):
        assert driver[probe]["exec"]["command"] == ["test", "-f", file]
    mounts = {mount["name"]: mount["mountPath"] for mount in driver["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod["volumes"]}
    assert Path(file).parent.as_posix() == mounts["run"]
    claim = document("PersistentVolumeClaim")["metadata"]["name"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": claim}} in pod["volumes"]


def test_the_job_of_the_manifests_can_be_made_and_lies_on_the_volume() -> None:
    found: dict[str, Any] = {}
    exec(document("ConfigMap")["data"]["job.py"], found)
    job = found["job"]
    assert isinstance(job, Job)
    assert not isinstance(job.restart, NoRestart)
    assert re.match("/data/", str(job.checkpoint))


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: its schemas take 100 MB"
    )
    for one in documents():
        validate.validate(one, "1.31", strict=True)
