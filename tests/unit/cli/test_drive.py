"""SIGTERM or Ctrl-C while `onceward run` starts Spark: nothing runs yet, so it ends at once, and Java with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceward.cli.drive import _end_at_once_on_sigterm
from onceward.cli.load import load_job
from onceward.testing import Harness


def code_of_a_start(job_file: Path) -> object:
    """With which code it ends when it is told to while Spark starts."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        _end_at_once_on_sigterm(load_job(str(job_file)))
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        return ended.value.code
    finally:
        signal.signal(signal.SIGTERM, before)


def test_told_to_stop_while_spark_starts_it_ends_at_once_and_says_whether_anything_waits(
    job_file: Path, unpublished: Harness
) -> None:
    assert code_of_a_start(job_file) == 3
    unpublished.drain()
    assert code_of_a_start(job_file) == 0


RECOVERS_FOR_EVER = """
import os, signal, subprocess, sys, threading
from types import SimpleNamespace
from onceward.cli import drive

def start(spark, accept):
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()

java = subprocess.Popen(["sleep", "3600"])
spark = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=java)))
drive._STOP_GRACE_S = 0.1
options = SimpleNamespace(quiet=True, accept=(), stop_timeout_s=0.1)
drive._run(SimpleNamespace(start=start), spark, options, None, threading.Event())
"""


def test_told_to_stop_while_a_start_waits_for_a_target_without_end_it_ends_in_time_and_its_jvm_with_it() -> None:
    """What stands in for the JVM holds the standard output, too: while it lived, there would be no end of it."""
    done = subprocess.run(
        [sys.executable, "-c", RECOVERS_FOR_EVER], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "the job has not stopped within 0 s; ended. The next start goes on where it was" in done.stderr


def test_an_api_without_its_packages_is_refused_before_spark_starts(job_file: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "fastapi.py").write_text("raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')\n")
    path = f"{hidden}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-m", "onceward", "run", job_file, "--api"],
        env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'onceward[api]'" in done.stderr
    assert "starting Spark" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["SIGINT", "SIGTERM"])
def test_told_to_stop_while_java_starts_it_leaves_no_java_behind(
    job_file: Path, tmp_path: Path, number: int, code: int
) -> None:
    java, held = tmp_path / "java" / "bin" / "java", tmp_path / "held"
    java.parent.mkdir(parents=True)
    os.mkfifo(held)
    java.write_text(f"#!/bin/sh\nexec 3> {held}\necho started >&3\nexec sleep 600\n")
    java.chmod(0o755)
    command = subprocess.Popen(
        [sys.executable, "-m", "onceward", "run", job_file],
        env={**os.environ, "JAVA_HOME": str(java.parents[1]), "XDG_CACHE_HOME": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with held.open() as ours:
        assert ours.readline() == "started\n"
        command.send_signal(number)
        assert command.wait(120) == code
        assert select.select([ours], [], [], 60)[0], "its Java runs on"
