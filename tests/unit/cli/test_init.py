"""`onceward init` writes files that other commands can load; the first of them is run in tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.cli.init import _SINKS
from onceward.cli.load import load_job
from onceward.errors import ConfigurationError

ADDRESSES = {
    "POSTGRES_URL": "postgresql://localhost/db",
    "MYSQL_URL": "mysql://root@localhost/db",
    "REDIS_URL": "redis://localhost",
    "KAFKA": "localhost:9092",
}


@pytest.mark.parametrize("sink", _SINKS)
def test_each_file_defines_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name, address in ADDRESSES.items():
        monkeypatch.setenv(name, address)
    done = CliRunner().invoke(app, ["init", "job.py", "--sink", sink])
    assert done.exit_code == 0, done.output
    job = load_job("job.py")
    assert (job.name, job.checkpoint) == ("job", "checkpoints/job")
    assert type(job.sinks[0]).__name__ == _SINKS[sink][0]
    assert (tmp_path / "views" / "first.json").read_text().count("\n") == 3


def test_nothing_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("mine")
    (tmp_path / "views").mkdir()
    assert isinstance(CliRunner().invoke(app, ["init"]).exception, ConfigurationError)
    assert (tmp_path / "job.py").read_text() == "mine"
    assert CliRunner().invoke(app, ["init", "other.py"]).exit_code == 0
    assert list((tmp_path / "views").iterdir()) == []
    assert isinstance(CliRunner().invoke(app, ["init", "x.py", "--sink", "oracle"]).exception, ConfigurationError)
    assert isinstance(CliRunner().invoke(app, ["init", "x"]).exception, ConfigurationError)
