"""The line that a running job shows."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from onceward.cli.logs import _ToConsole
from onceward.cli.progress import _line
from onceward.epoch import Outage
from onceward.identity import SinkName
from onceward.spark.run import RunStatus


def test_it_tells_where_the_job_stands() -> None:
    status = RunStatus("pv", True, planned=12, decided=12, settled=10)
    assert _line(status, 1234.5) == "pv: epoch 12, 1,234 rows/s, decided up to 12, published up to 10, 2 waiting"
    new = RunStatus("pv", True, planned=-1, decided=-1, settled=-1)
    assert _line(new, 0.0) == "pv: epoch 0, 0 rows/s, decided none, published none"
    skipped = RunStatus("pv", True, planned=2, decided=1, settled=2)
    assert "waiting" not in _line(skipped, 0.0)


def test_it_tells_of_a_target_that_is_away_and_when_it_is_tried_again() -> None:
    outage = Outage(SinkName("postgres:pv"), 11, "connection refused", datetime(2026, 11, 17, 10, 20, 30).astimezone())
    status = RunStatus("pv", True, planned=12, decided=12, settled=10, outage=outage)
    assert _line(status, 0.0).endswith("2 waiting; postgres:pv does not take it, next try 10:20:30")


def test_rows_of_a_job_go_to_standard_output_while_the_line_is_shown(tmp_path: Path) -> None:
    """Standard error is a terminal, standard output a file: a StdoutSink writes there."""
    code = (
        "from onceward.cli.progress import Progress\n"
        "with Progress(quiet=False) as progress:\n"
        "    assert progress._live is not None\n"
        "    print('a row')\n"
    )
    leader, follower = os.openpty()
    with (tmp_path / "rows").open("w") as rows:
        subprocess.run(
            [sys.executable, "-c", code], stdout=rows, stderr=follower, check=True, env={**os.environ, "TERM": "xterm"}
        )
    os.close(follower)
    os.close(leader)
    assert (tmp_path / "rows").read_text() == "a row\n"


def test_a_reader_of_the_log_that_goes_away_does_not_end_the_job() -> None:
    code = (
        "import logging, sys\n"
        "from onceward.cli.logs import log_to_console\n"
        "log_to_console(quiet=False)\n"
        "sys.stdin.readline()\n"
        "for _ in range(3):\n"
        "    logging.getLogger('onceward').warning('nobody reads this')\n"
        "print('still here')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.close()
        process.stdin.write("go\n")
        process.stdin.close()
        assert process.stdout.read() == "still here\n"
    assert process.returncode == 0


def test_what_a_hook_raised_is_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("onceward", logging.WARNING, __file__, 1, "a hook failed", None, None)
    try:
        raise ValueError("no such table")
    except ValueError:
        record.exc_info = sys.exc_info()
    _ToConsole().emit(record)
    shown = capsys.readouterr().err
    assert "warning: a hook failed" in shown
    assert "ValueError: no such table" in shown
