"""What the command shows fits a terminal of eighty columns, and says nothing that misleads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.cli.show import show_published
from onceward.history import EpochRecord, HistoryLog
from onceward.identity import RunId
from onceward.storage import LocalStorage
from onceward.testing import CrashAt, Harness

STEPS = ("barrier", "begun", "staged", "pre_committed", "decided", "delivered", "settled")


@pytest.mark.parametrize("command", [[], ["run"], ["poison", "divert"]], ids=["onceward", "run", "poison divert"])
def test_an_option_without_a_value_shows_none_in_the_help(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"]).output
    assert "--help" in shown
    assert "bool" not in shown


def test_what_is_known_of_an_epoch_fits_eighty_columns(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.drain()
    times = {step: datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=n * n) for n, step in enumerate(STEPS)}
    record = EpochRecord(7, RunId("abcdef"), "settled", times=times, guarantee="exactly-once")
    HistoryLog(LocalStorage(tmp_path / "checkpoint" / "onceward")).write([record])
    monkeypatch.setenv("COLUMNS", "80")
    for command in (["show", str(tmp_path / "checkpoint"), "7"], ["list", str(tmp_path / "checkpoint")]):
        shown = CliRunner().invoke(app, ["checkpoints", *command]).output
        assert "settled" in shown
        assert max(map(len, shown.splitlines())) <= 80, shown


def test_a_job_without_a_published_epoch_is_not_said_to_be_at_epoch_minus_one() -> None:
    assert show_published(0) == "published up to epoch 0"
    assert show_published(-1) == "no epoch is published yet"


def test_the_status_of_a_job_that_has_just_begun_shows_no_empty_table_and_no_epoch_minus_one(
    harness: Harness, tmp_path: Path
) -> None:
    harness.life(CrashAt(6))
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "checkpoint")]).output
    assert "decided none · settled none" in shown
    assert "guarantee" not in shown
