"""`onceward status --state`: Spark's state at the end of an epoch, read without touching it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.errors import ConfigurationError
from onceward.observe import OperatorState, read_state
from onceward.observe.state import views_of
from onceward.sinks import FileSink

from .workspace import SparkWorkspace

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_OTHER_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def counted(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """Two epochs: two keys after the first, three after the second."""
    workspace.source.mkdir()
    for number, letters in enumerate(["aab", "ac"]):
        lines = [json.dumps({"app": letter}) for letter in letters]
        (workspace.source / f"{number}.json").write_text("\n".join(lines))
        workspace.job(
            [FileSink(workspace.files)], pipeline=lambda session: count(workspace, session), output_mode="update"
        ).run(spark)


def count(workspace: SparkWorkspace, spark: SparkSession) -> DataFrame:
    return spark.readStream.schema("app string").json(str(workspace.source)).groupBy("app").count()


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_the_state_of_any_decided_epoch_is_shown_and_not_touched(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    counted(workspace, spark)
    before = stamps(workspace.checkpoint)
    newest = read_state(spark, workspace.checkpoint)
    assert (newest.epoch, newest.offsets) == (1, "")
    assert newest.operators == (OperatorState(0, "stateStoreSave", ("(a, 3)", "(b, 1)", "(c, 1)")),)
    older = read_state(spark, workspace.checkpoint, epoch=0, most=1)
    assert older.operators == (OperatorState(0, "stateStoreSave", ("(a, 2)",), has_more=True),)
    assert stamps(workspace.checkpoint) == before


def test_a_session_with_another_state_store_than_the_job_reads_the_same(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """As the command does, which knows nothing of the job's settings."""
    counted(workspace, spark)
    expected = read_state(spark, workspace.checkpoint)
    other = spark.newSession()
    assert other.conf.get(_PROVIDER) != _OTHER_PROVIDER
    other.conf.set(_PROVIDER, _OTHER_PROVIDER)
    assert read_state(other, workspace.checkpoint) == expected


def test_both_sides_of_a_join_are_shown(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1, rows=2)

    def joined(session: SparkSession) -> DataFrame:
        return workspace.stream(session).join(workspace.stream(session).selectExpr("id + 1 AS id"), "id").select("id")

    workspace.job([FileSink(workspace.files)], pipeline=joined).run(spark)
    left, right = read_state(spark, workspace.checkpoint).operators
    assert (left.name, right.name) == ("symmetricHashJoin left", "symmetricHashJoin right")
    assert [row.partition(",")[0] for row in left.rows] == ["(0", "(1"]
    assert [row.partition(",")[0] for row in right.rows] == ["(1", "(2"]


def test_the_command_prints_it_and_says_why_not(workspace: SparkWorkspace, spark: SparkSession) -> None:
    counted(workspace, spark)

    def status(*options: str) -> str:
        done = CliRunner().invoke(app, ["status", str(workspace.checkpoint), *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "epoch 0: state (a, 2) (b, 1)\n" in status("--state", "--epoch", "0")
    assert "epoch 1: state (a, 3) …\n" in status("--state", "--rows", "1")
    assert json.loads(status("--state", "--json"))["state"]["operators"][0]["rows"] == ["(a, 3)", "(b, 1)", "(c, 1)"]
    assert json.loads(status("--json"))["state"] is None
    assert CliRunner().invoke(app, ["status", str(workspace.checkpoint), "--epoch", "0"]).exit_code == 2
    with pytest.raises(ConfigurationError, match="epoch 2 is not decided"):
        status("--state", "--epoch", "2")
    (workspace.checkpoint / "offsets" / "0").unlink()
    with pytest.raises(ConfigurationError, match="Spark has removed epoch 0"):
        status("--state", "--epoch", "0")


def test_a_job_without_state_is_told_from_one_without_epochs(workspace: SparkWorkspace, spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="no epoch is decided"):
        read_state(spark, workspace.checkpoint)
    workspace.add_files(1)
    workspace.job().run(spark)
    with pytest.raises(ConfigurationError, match="keeps no state"):
        read_state(spark, workspace.checkpoint)


def test_variables_with_names_are_not_asked_for_as_if_they_had_none() -> None:
    """Only by their names in Spark 4: PySpark needs protobuf for such an operator, which we do not."""
    assert [views_of(name) for name in ("transformWithStateExec", "transformWithStateInPySparkExec")] == [(), ()]
    assert views_of("stateStoreSave") == ("",)
