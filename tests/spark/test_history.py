"""The history of a job on a real Spark: what is known of its epochs when it has ended, and how it is shown."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.contracts import Hooks
from onceward.history import PHASES, HistoryLog, phases
from onceward.storage import LocalStorage

from .workspace import ROWS, SparkWorkspace


def history(workspace: SparkWorkspace) -> HistoryLog:
    return HistoryLog(LocalStorage(workspace.checkpoint / "onceward"))


def shown(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["checkpoints", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_epoch_of_a_run_is_told_with_its_phases_slots_sinks_and_state(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    def counted(session: SparkSession) -> DataFrame:
        return workspace.lucky(session).dropDuplicates(["id"])

    workspace.add_files(3)
    workspace.job(pipeline=counted, small_epoch_rows=0).run(spark)
    records = history(workspace).read()
    assert [(record.epoch, record.outcome, record.rows) for record in records[:3]] == [
        (epoch, "settled", ROWS) for epoch in range(3)
    ]
    for record in records[:3]:
        assert list(phases(record)) == list(PHASES), "every phase is known"
        assert record.slot_count == len(record.slots) == 2
        assert sum(slot.bytes for slot in record.slots) == record.bytes > 0
        assert sorted(record.sinks) == ["files:out", "sqlite:t"]
        assert all(sink.rows == ROWS for sink in record.sinks.values())
        assert record.input_rows == ROWS
        assert record.state[0].rows == ROWS * (record.epoch + 1)
        assert len(record.sources) == 1
    listed = json.loads(shown("list", workspace.checkpoint, "--json"))
    assert listed["summary"]["rows"] == 3 * ROWS
    assert set(listed["summary"]["distributions"]) >= {"duration", *PHASES, "state_bytes"}
    assert "staging" in shown("list", workspace.checkpoint)
    assert "state of dedupe" in shown("show", workspace.checkpoint, 2)


def test_an_epoch_that_failed_is_told_with_its_cause_and_then_the_attempt_that_did_not(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    def refuse(epoch: int) -> None:
        if epoch == 1:
            raise RuntimeError("not this one")

    workspace.add_files(2)
    with pytest.raises(StreamingQueryException):
        workspace.job(hooks=Hooks(on_pre_commit=refuse)).run(spark)
    workspace.job().run(spark)
    attempts = history(workspace).read(first=1, last=1)
    assert [(one.outcome, one.error, one.why) for one in attempts] == [
        ("failed", "RuntimeError", "not this one"),
        ("settled", "", ""),
    ]
    assert attempts[0].run != attempts[1].run
    assert attempts[1].takeover == 1
    assert "not this one" in shown("show", workspace.checkpoint, 1)
    assert json.loads(shown("list", workspace.checkpoint, "--failed", "--json"))["epochs"][0]["epoch"] == 1


def test_who_wants_no_history_has_none(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    workspace.job(keep_history=0).run(spark)
    assert history(workspace).read() == []
    assert "no history yet" in shown("list", workspace.checkpoint)
    missing = CliRunner().invoke(app, ["checkpoints", "show", str(workspace.checkpoint), "0"])
    assert "the history has nothing about epoch 0" in str(missing.exception)
