"""Scenario 74 with Spark itself: its logs, its sources' lists and its state lie on an ext4 that loses its power."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import DataFrame, SparkSession

from onceward import Hooks, Job
from onceward.sinks import FileSink, SQLiteSink
from onceward.testing.ext4 import MountRefused, PowerLosses, make_image, mounted

from .workspace import ROWS, SparkWorkspace, read_files, visible

FILES = 4


def counting(workspace: SparkWorkspace, hooks: Hooks | None = None) -> Job:
    """A count by file, from Spark's state: one row an epoch for the files, one a file in the table."""

    def counts(spark: SparkSession) -> DataFrame:
        return workspace.stream(spark).groupBy("file").count()

    sinks = [FileSink(workspace.files), SQLiteSink(workspace.database, table="t", mode="upsert", keys=["file"])]
    return workspace.job(sinks, pipeline=counts, output_mode="update", hooks=hooks or Hooks())


@pytest.mark.cluster
@pytest.mark.spark
def test_s74_spark_goes_on_from_what_a_power_loss_leaves(
    spark: SparkSession, tmp_path: Path, without: Callable[[str], NoReturn], record_sweep: list[str]
) -> None:
    image, copies, disk = tmp_path / "disk.img", tmp_path / "copies", tmp_path / "disk"
    copies.mkdir()
    losses = PowerLosses(image, copies)

    def at(step: str) -> Callable[[int], None]:
        return lambda epoch: losses.take(f"{step} {epoch}") if epoch < 3 else None

    try:
        make_image(image, 96 << 20)
        with mounted(image, disk) as folder:
            workspace = SparkWorkspace(folder)
            workspace.add_files(FILES)
            os.sync()
            hooks = Hooks(on_begin=at("begin"), on_pre_commit=at("pre-commit"), on_decision=at("decision"))
            counting(workspace, hooks).run(spark)
            losses.take("after the end")
    except MountRefused as refused:
        without(str(refused))
    for copy, when in losses.taken:
        with mounted(copy, disk) as folder:
            workspace = SparkWorkspace(folder)
            counting(workspace).run(spark)
            wanted = [{"file": number, "count": ROWS} for number in range(FILES)]
            assert workspace.in_table("SELECT * FROM t ORDER BY file") == wanted, when
            assert sorted(read_files(visible(workspace.files)), key=lambda row: row["file"]) == wanted, when
    record_sweep.append(f"power loss under Spark on ext4: {len(losses.taken)} copies of the disk")
