"""A pipeline whose operators or sources are not those of its checkpoint does not start, and Spark plans nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceward.contracts import Severity
from onceward.doctor import examine
from onceward.errors import PipelineChanged
from onceward.operators import Column, TopologyLog, read_topology
from onceward.sinks import SQLiteSink
from onceward.spark.operators import planned_topology
from onceward.storage import LocalStorage

from .clicks import Clicks, Pipeline


def run(spark: SparkSession, clicks: Clicks, pipeline: Pipeline, **options: Any) -> None:
    clicks.clicked(pipeline, **options).run(spark)


def stamps(clicks: Clicks) -> dict[str, bytes]:
    """All that Spark and we have written there."""
    folder = clicks.checkpoint
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def clicks(tmp_path: Path) -> Clicks:
    return Clicks(tmp_path)


def test_the_plan_tells_operators_in_the_order_data_flows_with_their_keys(spark: SparkSession, clicks: Clicks) -> None:
    """Inputs before what reads them, the left before the right; Spark's numbers run the other way."""
    clicks.add(("ann", "a"))
    stream = clicks.clicks(spark).withWatermark("at", "1 hour")
    left, right = stream.dropDuplicates(["user"]), stream.dropDuplicates(["item"]).selectExpr("item", "at AS then")
    joined = left.join(right, "item").groupBy(F.window("at", "5 seconds"), F.upper("user").alias("u")).count()
    found = planned_topology(joined.select("count"), operators=["left", "right", "join", "sums"])
    assert found is not None
    assert [(one.name, one.number, one.kind) for one in found.operators] == [
        ("left", 2, "dedupe"),
        ("right", 3, "dedupe"),
        ("join", 1, "symmetricHashJoin"),
        ("sums", 0, "stateStoreSave"),
    ]
    assert [one.keys for one in found.operators] == [
        (Column("user", "string"),),
        (Column("item", "string"),),
        (Column("left item", "string"), Column("right item", "string")),
        # Spark has no name for an expression: another one of the same type is not noticed.
        (Column("window", "struct<start:timestamp,end:timestamp>"), Column("_groupingexpression", "string")),
    ]
    assert [(one.kind, one.name) for one in found.sources] == [("FileSource", None)] * 2


def test_what_the_plan_tells_is_what_stands_in_the_checkpoint_afterwards(spark: SparkSession, clicks: Clicks) -> None:
    """So a checkpoint without a record of ours is compared as well: of an older release, or of plain Spark."""
    clicks.add(("ann", "a"), ("bob", "b"))

    def all_kinds(session: SparkSession) -> DataFrame:
        once = clicks.user_then_item(session)
        return (
            once.withWatermark("at", "1 hour")
            .groupBy(F.session_window("at", "5 seconds"), "user")
            .agg(F.max("item").alias("item"))
        )

    run(spark, clicks, all_kinds, output_mode="append", operators=["u", "i", "s"], sources=["clicks"])
    named = read_topology(clicks.checkpoint)
    assert [(one.name, one.kind) for one in named.operators] == [
        ("u", "dedupe"),
        ("i", "dedupe"),
        ("s", "sessionWindowStateStoreSaveExec"),
    ]
    assert (named.sources[0].name, len(named.sinks)) == ("clicks", 1)
    (clicks.checkpoint / "onceward" / "topology" / "0.json").unlink()
    unnamed = read_topology(clicks.checkpoint)
    assert [(one.number, one.kind, one.keys, one.partitions) for one in unnamed.operators] == [
        (one.number, one.kind, one.keys, 2) for one in named.operators
    ]
    run(spark, clicks, all_kinds, output_mode="append")
    assert TopologyLog(LocalStorage(clicks.checkpoint / "onceward")).read() is not None


def test_a_changed_pipeline_is_refused_before_spark_plans_and_the_old_one_goes_on(
    spark: SparkSession, clicks: Clicks
) -> None:
    """Spark swaps the state of two swapped dedupes without a word: ann's first b would be lost as a duplicate user."""
    clicks.add(("ann", "a"), ("bob", "b"))
    run(spark, clicks, clicks.user_then_item)
    clicks.add(("cat", "c"))
    before, planned = stamps(clicks), clicks.logs.planned()
    for pipeline in (
        clicks.item_then_user,
        clicks.by_user,
        clicks.user_then_count,
        lambda session: clicks.user_then_item(session).groupBy("item").count(),
        lambda session: clicks.clicks(session).select("user", "item"),
        lambda session: clicks.user_then_item(session).union(clicks.clicks(session)),
    ):
        with pytest.raises(PipelineChanged, match="≠"):
            run(spark, clicks, pipeline)
        assert before == {path: data for path, data in stamps(clicks).items() if path in before}
        assert clicks.logs.planned() == planned
    wrong = [one for one in examine(clicks.clicked(clicks.item_then_user), spark) if one.severity is Severity.ERROR]
    assert [one.about for one in wrong] == ["operators"]
    run(spark, clicks, clicks.user_then_item, operators=["by user", "by item"])
    assert sorted(row["user"] for row in clicks.in_files()) == ["ann", "bob", "cat"]
    assert [one.name for one in read_topology(clicks.checkpoint).operators] == ["by user", "by item"]


def test_in_complete_mode_a_limit_above_an_aggregation_keeps_no_state_and_one_below_it_does(
    spark: SparkSession, clicks: Clicks
) -> None:
    """Spark shows a plan as of append mode, where both keep state: the job was refused from its second start on."""
    clicks.add(("ann", "a"), ("bob", "b"))
    table = SQLiteSink(clicks.database, table="t", mode="upsert", keys=["item"])

    def newest(session: SparkSession) -> DataFrame:
        return clicks.clicks(session).limit(9).groupBy("item").count().orderBy(F.desc("item")).limit(2)

    for item in ("c", "d"):
        clicks.add(("ann", item))
        clicks.job([table], pipeline=newest, output_mode="complete").run(spark)
    kinds = [(one.number, one.kind) for one in read_topology(clicks.checkpoint).operators]
    assert kinds == [(1, "globalLimit"), (0, "stateStoreSave")]
    assert sorted(row["item"] for row in clicks.in_table("SELECT item FROM t")) == ["b", "c", "d"]


def test_operators_that_only_names_tell_apart_are_told_apart_by_them(spark: SparkSession, clicks: Clicks) -> None:
    clicks.add(("ann", "a"))

    def twice(session: SparkSession) -> DataFrame:
        some = clicks.clicks(session)
        return (
            some.where("item < 'm'").dropDuplicates(["user"]).union(some.where("item >= 'm'").dropDuplicates(["user"]))
        )

    run(spark, clicks, twice, operators=["low", "high"])
    with pytest.raises(PipelineChanged, match=r"'low'.*'high'"):
        run(spark, clicks, twice, operators=["high", "low"])
    run(spark, clicks, twice)
    assert [one.name for one in read_topology(clicks.checkpoint).operators] == ["low", "high"]


def test_a_pipeline_may_change_until_its_first_epoch_is_decided(spark: SparkSession, clicks: Clicks) -> None:
    clicks.add(("ann", "a"))

    def fails(session: SparkSession) -> DataFrame:
        return clicks.by_user(session).withColumn("item", F.raise_error("no").cast("string"))

    with pytest.raises(Exception, match="no"):
        run(spark, clicks, fails)
    run(spark, clicks, clicks.by_user)
    assert len(read_topology(clicks.checkpoint).operators) == 1
