"""A savepoint restored for a changed pipeline: each operator goes on with its own state, shown by the rows that follow.

Every pipeline that is upgraded here would deliver other rows if an operator had no state, or another's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from onceward.cli.app import app
from onceward.clock import SystemClock
from onceward.errors import ConfigurationError, PipelineChanged
from onceward.observe.state_views import state_digests
from onceward.operators import read_topology
from onceward.savepoints import take
from onceward.spark.checkpoint import SparkLogs
from onceward.spark.checkpoint_config import CheckpointConfig

from .clicks import Clicks, Seen, Upgrades

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
BACKENDS: dict[str, tuple[CheckpointConfig, str]] = {
    "memory": (CheckpointConfig(state_backend="memory", state_partitions=2), "1"),
    "rocksdb, format 2": (CheckpointConfig(state_backend="rocksdb", state_partitions=2), "2"),
    "rocksdb": (CheckpointConfig(state_backend="rocksdb", state_partitions=2), "1"),
    "rocksdb, whole": (CheckpointConfig(state_backend="rocksdb", state_partitions=2, incremental=False), "1"),
}


def backends(*, often: tuple[str, ...]) -> list[Any]:
    return [pytest.param(one, marks=[] if one in often else [pytest.mark.soak]) for one in BACKENDS]


@pytest.fixture
def upgrades(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Upgrades:
    config, version = BACKENDS[request.param]
    return started(Clicks(tmp_path), spark, config, version)


def started(clicks: Clicks, spark: SparkSession, config: CheckpointConfig, version: str = "1") -> Upgrades:
    """In a session of its own, so that settings of one test are not those of the next."""
    session = spark.newSession()
    session.conf.set(FORMAT, version)
    for setting in ("providerClass", "rocksdb.changelogCheckpointing.enabled"):
        session.conf.unset(f"spark.sql.streaming.stateStore.{setting}")
    session.conf.unset("spark.sql.shuffle.partitions")
    clicks.source.mkdir()
    return Upgrades(clicks, session, {"checkpointing": config})


@pytest.mark.parametrize("upgrades", backends(often=("memory", "rocksdb, format 2")), indirect=True)
def test_operators_are_added_moved_swapped_and_removed(upgrades: Upgrades) -> None:
    clicks = upgrades.clicks

    def user_item_count(spark: SparkSession) -> DataFrame:
        return clicks.user_then_item(spark).groupBy("user").count()

    def item_user_count(spark: SparkSession) -> DataFrame:
        return clicks.item_then_user(spark).groupBy("user").count()

    def only_count(spark: SparkSession) -> DataFrame:
        return clicks.clicks(spark).groupBy("user").count()

    clicks.add(("ann", "a"), ("bob", "b"))
    assert upgrades.run(clicks.by_user, operators=["users"]) == [("ann", "a"), ("bob", "b")]

    # One more after it: what was operator 0 becomes 1, and still knows ann.
    said = upgrades.upgrade(clicks.user_then_item, operators=["users", "items"])
    assert [line.partition(" on ")[0] for line in said] == ["operator dedupe 'users'", "operator dedupe 'items'"]
    clicks.add(("ann", "z"), ("cat", "a"), ("dan", "a"))
    rows = upgrades.run(clicks.user_then_item, operators=["users", "items"])
    assert [item for _, item in rows] == ["a"], "items begins empty, so the first of cat's and dan's a comes"

    # One more again, and the two dedupes change places: by name each finds its own.
    names = ["items", "users", "counts"]
    upgrades.upgrade(item_user_count, operators=names)
    assert [(one.name, one.number) for one in read_topology(upgrades.checkpoint).operators] == [
        ("items", 2),
        ("users", 1),
        ("counts", 0),
    ]
    clicks.add(("eve", "a"), ("ann", "y"), ("fay", "y"), ("gus", "x"))
    assert upgrades.run(item_user_count, operators=names) == [("gus", 1)], "a is known, ann takes y, fay has none left"

    # Both dedupes go, the sums stay.
    with pytest.raises(PipelineChanged, match="have no place in the pipeline"):
        upgrades.upgrade(only_count, operators=["counts"])
    upgrades.upgrade(only_count, operators=["counts"], plan={"allow_non_restored": True})
    clicks.add(("gus", "x"), ("ann", "a"))
    assert upgrades.run(only_count, operators=["counts"]) == [("ann", 1), ("gus", 2)]
    # The restored checkpoint is guarded as any other.
    with pytest.raises(PipelineChanged):
        upgrades.run(user_item_count)


@pytest.mark.parametrize("upgrades", backends(often=("rocksdb, format 2",)), indirect=True)
def test_a_join_is_added_empty_and_then_moved(upgrades: Upgrades) -> None:
    """The operator with four stores a partition."""
    clicks = upgrades.clicks

    def joined(spark: SparkSession) -> DataFrame:
        once, more = clicks.by_user(spark), clicks.clicks(spark, "more").selectExpr("user", "item AS other")
        return once.join(more, "user").select("user", "item", "other")

    def deduped(spark: SparkSession) -> DataFrame:
        return joined(spark).dropDuplicates(["user"])

    update = {"output_mode": "append"}
    clicks.add(("ann", "a"))
    upgrades.run(clicks.by_user, operators=["users"], sources=["clicks"], **update)
    clicks.add(("ann", "1"), ("bob", "2"), to="more")
    named: dict[str, Any] = {"operators": ["users", "pairs"], "sources": ["clicks", "more"], **update}
    upgrades.upgrade(joined, **named)
    clicks.add(("ann", "b"), ("bob", "b"))
    assert upgrades.run(joined, **named) == [("bob", "b", "2")], "ann came before there was a join"
    named["operators"] = ["users", "pairs", "once"]
    upgrades.upgrade(deduped, **named)
    clicks.add(("bob", "3"), ("eve", "4"), to="more")
    clicks.add(("eve", "e"), ("bob", "c"))
    assert upgrades.run(deduped, **named) == [("bob", "b", "3"), ("eve", "e", "4")], "the join still has bob's b"


@pytest.mark.parametrize("upgrades", backends(often=("rocksdb",)), indirect=True)
def test_a_session_window_that_moves_goes_on_with_its_sessions(upgrades: Upgrades) -> None:
    """Ann's began before the upgrade and is still open; Bob's is only waiting for its end."""
    clicks = upgrades.clicks

    def sessions(session: SparkSession) -> DataFrame:
        users = clicks.clicks(session).withWatermark("at", "1 minute")
        found = users.groupBy(F.session_window("at", "10 minutes").alias("s"), "user").count()
        return found.selectExpr("user", "date_format(s.start, 'HH:mm') AS item", "count")

    def starts(session: SparkSession) -> DataFrame:
        return sessions(session).dropDuplicates(["item"])

    append: dict[str, Any] = {"output_mode": "append"}
    clicks.add(("ann", "a"))
    clicks.add(("bob", "b"), at="00:01:00")
    assert upgrades.run(sessions, operators=["sessions"], **append) == []
    named: dict[str, Any] = {"operators": ["sessions", "starts"], **append}
    upgrades.upgrade(starts, **named)
    assert [(one.name, one.number) for one in read_topology(upgrades.checkpoint).operators] == [
        ("sessions", 1),
        ("starts", 0),
    ]
    clicks.add(("ann", "b"), at="00:05:00")
    assert upgrades.run(starts, **named) == []
    clicks.add(("eve", "c"), at="02:00:00")
    ended = upgrades.run(starts, **named) + upgrades.run(starts, **named)
    assert ended == [("ann", "00:00", 2), ("bob", "00:01", 1)]


def test_sources_are_added_moved_and_removed_without_reading_anything_twice(
    tmp_path: Path, spark: SparkSession
) -> None:
    upgrades = started(Clicks(tmp_path), spark, CheckpointConfig(state_backend="memory", state_partitions=2))
    clicks = upgrades.clicks

    def both(session: SparkSession) -> DataFrame:
        return clicks.clicks(session, "more").union(clicks.clicks(session))

    clicks.add(("ann", "a"))
    assert upgrades.run(clicks.clicks, sources=["clicks"]) == [("ann", "a")]
    clicks.add(("bob", "b"), to="more")
    clicks.add(("cat", "c"))
    upgrades.upgrade(both, sources=["more", "clicks"])
    assert upgrades.run(both, sources=["more", "clicks"]) == [("bob", "b"), ("cat", "c")]
    with pytest.raises(PipelineChanged, match="sources of the pipeline are not those"):
        upgrades.run(both, sources=["clicks", "more"])
    clicks.add(("dan", "d"), to="more")
    clicks.add(("eve", "e"))
    upgrades.upgrade(clicks.clicks, sources=["old"], plan={"allow_non_restored": True, "renames": {"clicks": "old"}})
    assert upgrades.run(clicks.clicks, sources=["old"]) == [("eve", "e")]


def test_a_source_that_spark_names_is_renamed_and_not_read_again(tmp_path: Path, spark: SparkSession) -> None:
    upgrades = started(Clicks(tmp_path), spark, CheckpointConfig(state_backend="memory", state_partitions=2))
    clicks = upgrades.clicks
    upgrades.spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")

    def named(name: str, *more: str) -> Any:
        def pipeline(session: SparkSession) -> DataFrame:
            found = clicks.clicks(session, name=name)
            for other in more:
                found = clicks.clicks(session, other, other).union(found)
            return found

        return pipeline

    clicks.add(("ann", "a"))
    upgrades.run(named("views"))
    with pytest.raises(PipelineChanged, match="sources of the pipeline are not those"):
        upgrades.run(named("seen"))
    clicks.add(("bob", "b"))
    clicks.add(("cat", "c"), to="more")
    upgrades.upgrade(named("seen", "more"), plan={"renames": {"views": "seen"}})
    assert upgrades.run(named("seen", "more")) == [("bob", "b"), ("cat", "c")]


@pytest.mark.parametrize("version", ["2", pytest.param("1", marks=pytest.mark.soak)])
def test_state_goes_from_two_partitions_to_four_and_to_one(tmp_path: Path, spark: SparkSession, version: str) -> None:
    upgrades = started(Clicks(tmp_path), spark, CheckpointConfig(state_backend="rocksdb"), version)
    upgrades.restores = spark.newSession()
    upgrades.settings = {"checkpointing": CheckpointConfig(state_backend="rocksdb", state_partitions=2)}
    clicks = upgrades.clicks
    clicks.add(*((f"u{number}", f"i{number % 5}") for number in range(40)))
    assert upgrades.run(clicks.user_then_count) == [(f"i{number}", 8) for number in range(5)]
    for partitions, count in ((4, 9), (1, 10)):
        before = state_digests(upgrades.spark, upgrades.checkpoint, SparkLogs(upgrades.checkpoint).decided())
        upgrades.settings = {"checkpointing": CheckpointConfig(state_backend="rocksdb", state_partitions=partitions)}
        said = upgrades.upgrade(clicks.user_then_count, plan={"state_partitions": partitions})
        assert said[-1].endswith(f"partitions to {partitions}")
        logs = SparkLogs(upgrades.checkpoint)
        assert state_digests(upgrades.spark, upgrades.checkpoint, logs.decided()) == before
        assert [one.partitions for one in read_topology(upgrades.checkpoint).operators] == [partitions] * 2
        assert logs.is_engine_made(logs.decided())
        clicks.add(*((f"u{number}", "x") for number in range(40)), *((f"v{count}-{n}", f"i{n}") for n in range(5)))
        assert upgrades.run(clicks.user_then_count) == [(f"i{number}", count) for number in range(5)]


@pytest.mark.soak
@pytest.mark.parametrize("version", ["1", "2"])
def test_variables_of_transform_with_state_move_and_are_split(
    tmp_path: Path, spark: SparkSession, version: str
) -> None:
    upgrades = started(Clicks(tmp_path), spark, CheckpointConfig(state_backend="rocksdb", state_partitions=2), version)
    clicks = upgrades.clicks

    def seen(session: SparkSession) -> DataFrame:
        users = clicks.clicks(session).withWatermark("at", "1 hour").groupBy("user")
        return users.transformWithState(Seen(), "user string, n long", "Update", "EventTime")

    def once(session: SparkSession) -> DataFrame:
        return clicks.clicks(session, "more").dropDuplicates(["user"]).selectExpr("user", "0L AS n")

    def seen_first(session: SparkSession) -> DataFrame:
        return seen(session).union(once(session))

    def once_first(session: SparkSession) -> DataFrame:
        return once(session).union(seen(session))

    clicks.add(("ann", "a"), ("bob", "b"))
    clicks.add(("cat", "c"), to="more")
    assert upgrades.run(seen_first, operators=["seen", "once"], sources=["in", "more"]) == [
        ("ann", 1),
        ("bob", 1),
        ("cat", 0),
    ]
    named: dict[str, Any] = {"operators": ["once", "seen"], "sources": ["more", "in"]}
    upgrades.upgrade(once_first, **named)
    clicks.add(("ann", "b"))
    clicks.add(("cat", "c"), ("dan", "d"), to="more")
    assert upgrades.run(once_first, **named) == [("ann", 2), ("dan", 0)]
    upgrades.settings = {"checkpointing": CheckpointConfig(state_backend="rocksdb", state_partitions=4)}
    upgrades.upgrade(once_first, plan={"state_partitions": 4}, **named)
    clicks.add(("ann", "c"), ("bob", "c"), ("eve", "e"))
    clicks.add(("dan", "d"), to="more")
    assert upgrades.run(once_first, **named) == [("ann", 3), ("bob", 2), ("eve", 1)]


def test_a_job_without_state_gets_its_first_operator(tmp_path: Path, spark: SparkSession) -> None:
    upgrades = started(Clicks(tmp_path), spark, CheckpointConfig(state_partitions=2))
    upgrades.clicks.add(("ann", "a"))
    upgrades.run(upgrades.clicks.clicks)
    upgrades.upgrade(upgrades.clicks.by_user)
    upgrades.clicks.add(("ann", "b"), ("ann", "c"), ("bob", "b"))
    assert [user for user, _ in upgrades.run(upgrades.clicks.by_user)] == ["ann", "bob"]


def test_state_in_memory_is_not_split_and_nothing_is_written(tmp_path: Path, spark: SparkSession) -> None:
    upgrades = started(Clicks(tmp_path), spark, CheckpointConfig(state_backend="memory", state_partitions=2))
    upgrades.clicks.add(("ann", "a"))
    upgrades.run(upgrades.clicks.by_user)
    with pytest.raises(ConfigurationError, match="only in RocksDB can it be split"):
        upgrades.upgrade(upgrades.clicks.by_user, plan={"state_partitions": 4})
    assert not (tmp_path / "checkpoint 1").exists()


def test_the_command_plans_the_job_says_what_changes_and_writes_nothing_that_does_not_fit(
    tmp_path: Path, spark: SparkSession
) -> None:
    upgrades = started(Clicks(tmp_path), spark, CheckpointConfig(state_backend="memory", state_partitions=2))
    upgrades.clicks.add(("ann", "a"), ("bob", "a"))
    upgrades.run(upgrades.clicks.by_user, operators=["first"])
    saved = take(upgrades.checkpoint, tmp_path / "saved", clock=SystemClock(), spark=spark.version).path
    (tmp_path / "job.py").write_text(JOB.format(source=str(upgrades.clicks.source), files=str(upgrades.clicks.files)))

    def restore(*options: str) -> dict[str, Any]:
        where = ["savepoint", "restore", str(saved), str(tmp_path / "new"), "--json", *options]
        done = CliRunner().invoke(app, where, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    job = ("--job", str(tmp_path / "job.py"))
    for options, why in (
        (("--rename", "first=users"), "without --job nobody knows the pipeline"),
        (job, "have no place in the pipeline"),
        ((*job, "--rename", "first"), "is not OLD=NEW"),
        ((*job, "--rename", "x=users"), "nothing in the savepoint has that name"),
        ((*job, "--rename", "first=users", "--state-partitions", "4"), "only in RocksDB"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            restore(*options)
        assert not (tmp_path / "new").exists()
    assert restore(*job, "--rename", "first=users")["changes"] == [
        "operator dedupe 'users' on (user string) goes on with what was number 0",
        "operator stateStoreSave 'counts' on (item string) is new: it starts with no state",
    ]
    assert [one.name for one in read_topology(tmp_path / "new").operators] == ["users", "counts"]


JOB = """
from onceward import Job
from onceward.sinks import FileSink


def pipeline(spark):
    clicks = spark.readStream.schema("user string, item string, at timestamp").json({source!r})
    return clicks.dropDuplicates(["user"]).groupBy("item").count()


job = Job(
    name="tested",
    checkpoint="unused",
    pipeline=pipeline,
    sinks=[FileSink({files!r})],
    output_mode="update",
    operators=["users", "counts"],
)
"""
