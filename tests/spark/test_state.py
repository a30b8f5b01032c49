"""`onceward status --state` and `onceward state`: Spark's state at the end of an epoch, read without touching it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.clock import SystemClock
from onceward.errors import ConfigurationError
from onceward.observe import OperatorState, read_state
from onceward.savepoints import take
from onceward.sinks import FileSink
from onceward.spark import needs
from onceward.spark.needs import check_needs

from .clicks import Clicks, Seen
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


class SeenInPandas(StatefulProcessor):
    """A value for each user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        count = sum(len(some) for some in rows) + (self._count.get()[0] if self._count.exists() else 0)
        self._count.update((count,))
        yield pd.DataFrame({"user": [key[0]], "n": [count]})

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Clicks:
    found = Clicks(tmp_path_factory.mktemp("clicks"))
    found.add(("ann", "a"), ("ann", "a"), ("ann", "b"), ("bob", "b"))
    found.add(("ann", "1"), ("cat", "2"), to="more")
    return found


def state(*arguments: object) -> Any:
    done = CliRunner().invoke(app, ["state", *map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def told(*arguments: object) -> dict[str, list[str]]:
    found = state("show", *arguments)["state"]
    return {f"{one['name']} {one['part'] or ''}".strip(): one["rows"] for one in found}


def exported(target: Path) -> dict[str, list[Any]]:
    """As any reader of Parquet sees it, in order."""
    folders = sorted(path for path in target.iterdir() if path.is_dir())
    return {one.name: sorted(pq.read_table(one).to_pylist(), key=str) for one in folders}


def test_dedupe_join_session_and_count_are_shown_and_exported_from_checkpoint_and_savepoint(
    clicks: Clicks, spark: SparkSession
) -> None:
    def pipeline(session: SparkSession) -> DataFrame:
        once = clicks.clicks(session).withWatermark("at", "1 hour").dropDuplicates(["user", "at"])
        more = clicks.clicks(session, "more").selectExpr("user", "item AS other")
        windows = once.join(more, "user").groupBy(F.session_window("at", "5 seconds"), "user")
        return windows.agg(F.max("item").alias("item"))

    where = clicks.work / "chain"
    names = ["users", "pairs", "sessions"]
    clicks.clicked(pipeline, checkpoint=where, operators=names, output_mode="append").run(spark)
    shown = told(where)
    assert [*shown] == ["users", "pairs left", "pairs right", "sessions"]
    assert [row.split(",")[0] for row in shown["users"]] == ["(ann", "(bob"]
    assert [row.split(",")[0] for row in shown["pairs right"]] == ["(ann", "(cat"]
    assert len(told(where, "--operator", "users", "--key", "user=bob")["users"]) == 1
    with pytest.raises(ConfigurationError, match="there is no operator 'x'"):
        told(where, "--operator", "x")
    with pytest.raises(ConfigurationError, match="the key has no such column"):
        told(where, "--operator", "users", "--key", "item=a")
    saved = take(where, clicks.work / "saved", clock=SystemClock(), spark=spark.version).path
    assert told(saved) == shown
    rows = state("export", where, clicks.work / "one")["rows"]
    assert rows == {"users": 2, "pairs-left": 2, "pairs-right": 2, "sessions": 1}
    assert state("export", saved, clicks.work / "two")["rows"] == rows
    assert exported(clicks.work / "one") == exported(clicks.work / "two")
    users = pq.read_table(clicks.work / "one" / "users").to_pylist()
    assert sorted(row["key"]["user"] for row in users) == ["ann", "bob"]
    with pytest.raises(ConfigurationError, match="is not empty"):
        state("export", where, clicks.work / "one")


@pytest.mark.soak
def test_variables_and_timers_of_transform_with_state_are_shown_and_exported(
    clicks: Clicks, spark: SparkSession
) -> None:
    def by_rows(session: SparkSession) -> DataFrame:
        users = clicks.clicks(session).withWatermark("at", "1 hour").groupBy("user")
        return users.transformWithState(Seen(), "user string, n long", "Update", "EventTime")

    def in_pandas(session: SparkSession) -> DataFrame:
        return (
            clicks.clicks(session)
            .groupBy("user")
            .transformWithStateInPandas(SeenInPandas(), "user string, n long", "Update", "None")
        )

    where, other = clicks.work / "rows", clicks.work / "pandas"
    clicks.clicked(by_rows, checkpoint=where, operators=["seen"], name="by rows").run(spark)
    assert told(where)["seen count"] == ["(ann, 3)", "(bob, 1)"]
    assert told(where, "--key", "user=bob")["seen times"] == ["(bob, b, 1)"]
    saved = take(where, clicks.work / "saved rows", clock=SystemClock(), spark=spark.version).path
    assert told(saved) == told(where)
    assert state("export", saved, clicks.work / "variables")["rows"] == {
        "seen-count": 2,
        "seen-items": 4,
        "seen-times": 3,
        "seen-timers": 2,
    }
    clicks.clicked(in_pandas, checkpoint=other, name="in pandas").run(spark)
    (shown,) = told(other).values()
    assert shown == ["(ann, 3)", "(bob, 1)"]


def test_a_package_that_transform_with_state_needs_is_named_before_spark_plans_and_its_worker_crashes(
    clicks: Clicks, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(session: SparkSession) -> DataFrame:
        users = clicks.clicks(session).groupBy("user")
        return users.transformWithState(Seen(), "user string, n long", "Update", "ProcessingTime")

    monkeypatch.setattr(needs, "_MODULES", {"no_such_module.at_all": "grpcio", "json": "protobuf"})
    with pytest.raises(ConfigurationError, match="needs the Python packages grpcio, which are not installed"):
        clicks.clicked(seen, checkpoint=clicks.work / "needs").start(spark)
    assert not (clicks.work / "needs" / "offsets").exists()
    check_needs(clicks.by_user(spark))
