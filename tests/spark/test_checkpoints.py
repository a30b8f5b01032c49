"""The checkpoint under another spelling is the same one; deleted, copied or rolled back it is another, and noticed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from onceward.errors import (
    CheckpointCopied,
    CheckpointRefused,
    CheckpointReplaced,
    CheckpointRolledBack,
    CheckpointUnknown,
)
from onceward.spark.leftovers import remove_leftovers

from .processes import environment
from .workspace import ROWS, SparkWorkspace, expect_exactly_once, python


def test_a_checkpoint_spelled_differently_is_the_same_checkpoint(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.work)
    (workspace.work / "link").symlink_to(workspace.checkpoint)
    spellings = [
        str(workspace.checkpoint),
        f"{workspace.checkpoint}/",
        f"file:{workspace.checkpoint}",
        f"file://{workspace.checkpoint}",
        "checkpoint",
        "./link",
        f"{workspace.work}/in/../checkpoint",
    ]
    for spelling in spellings:
        workspace.add_files(1)
        workspace.job(checkpoint=spelling).run(spark)
        workspace.expect_exactly_once()
    assert workspace.logs.decided() == len(spellings) - 1


def die_while_spark_writes_its_first_barrier(workspace: SparkWorkspace) -> None:
    """As found after a SIGKILL: the unfinished file and the checksum that Hadoop writes beside it."""
    offsets = workspace.checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (workspace.checkpoint / "commits").mkdir()
    name = ".0.d8a1cac3-b3e1-45f6-a265-b0774b5c7eeb.tmp"
    (offsets / name).write_text("v1\n")
    (offsets / f".{name}.crc").write_bytes(b"crc")


def test_a_driver_that_died_while_spark_wrote_its_first_barrier_is_started_again(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    workspace.add_files(2)
    die_while_spark_writes_its_first_barrier(workspace)
    workspace.job().run(spark)
    workspace.expect_exactly_once()


def test_spark_alone_refuses_to_start_then(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """If this fails, Spark has fixed it, and what we do about it can go."""
    workspace.add_files(1)
    die_while_spark_writes_its_first_barrier(workspace)
    writer = workspace.stream(spark).writeStream.foreachBatch(lambda batch, epoch: None)
    query = writer.option("checkpointLocation", str(workspace.checkpoint)).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="CHECKPOINT_LOCATION_NOT_EMPTY"):
        query.awaitTermination()


def test_unfinished_barriers_of_a_job_that_has_others_are_left_to_spark(workspace: SparkWorkspace) -> None:
    die_while_spark_writes_its_first_barrier(workspace)
    (workspace.checkpoint / "offsets" / "0").write_text("v1\n{}\n-")
    assert remove_leftovers(workspace.checkpoint) == []
    (workspace.checkpoint / "offsets" / "0").unlink()
    assert len(remove_leftovers(workspace.checkpoint)) == 2


def copies(workspace: SparkWorkspace) -> dict[int, int]:
    """How many times the rows of each source file stand in the table; the files must agree."""
    table, files = workspace.in_table(), workspace.in_files()
    assert sorted(row["id"] for row in table) == sorted(row["id"] for row in files)
    counts = Counter(row["file"] for row in table)
    assert not [count for count in counts.values() if count % ROWS]
    return {file: count // ROWS for file, count in counts.items()}


def deleted(workspace: SparkWorkspace) -> None:
    shutil.rmtree(workspace.checkpoint)


def moved_to_a_copy(workspace: SparkWorkspace) -> None:
    shutil.copytree(workspace.checkpoint, workspace.work / "copy")
    shutil.rmtree(workspace.checkpoint)
    (workspace.work / "copy").rename(workspace.checkpoint)


def rolled_back_in_place(workspace: SparkWorkspace) -> None:
    """The directory stays, its content is that of an hour ago: a snapshot of the file system was put back."""
    for path in [p for p in workspace.checkpoint.rglob("*") if p.is_file()]:
        path.unlink()
    shutil.copytree(workspace.work / "saved", workspace.checkpoint, dirs_exist_ok=True)


@pytest.mark.parametrize(
    ("harm", "error", "accept", "second_time"),
    [
        pytest.param(deleted, CheckpointReplaced, "fresh-start", {0, 1, 2}, id="deleted and made again"),
        pytest.param(moved_to_a_copy, CheckpointCopied, "copy", set(), id="copied"),
        pytest.param(rolled_back_in_place, CheckpointRolledBack, "rollback", {1, 2}, id="rolled back"),
    ],
)
def test_a_checkpoint_that_is_not_the_one_the_target_knows_is_refused_until_accepted(
    workspace: SparkWorkspace,
    spark: SparkSession,
    harm: Callable[[SparkWorkspace], None],
    error: type[CheckpointRefused],
    accept: str,
    second_time: set[int],
) -> None:
    workspace.add_files(1)
    workspace.job().run(spark)
    shutil.copytree(workspace.checkpoint, workspace.work / "saved")
    workspace.add_files(2)
    workspace.job().run(spark)
    harm(workspace)
    workspace.add_files(1)
    others = {"fresh-start", "copy", "rollback"} - {accept}
    for accepted in (set(), others):
        with pytest.raises(error) as caught:
            workspace.job().run(spark, accept=accepted)
        assert f"accept='{accept}'" in str(caught.value.hint)
        assert caught.value.exit_code == 1
    assert copies(workspace) == {0: 1, 1: 1, 2: 1}
    workspace.job().run(spark, accept=accept)
    expected = {file: 2 if file in second_time else 1 for file in range(4)}
    assert copies(workspace) == expected
    # Accepted once, it is this job's checkpoint from now on.
    workspace.add_files(1)
    workspace.job().run(spark)
    assert copies(workspace) == {**expected, 4: 1}
    workspace.expect_nothing_staged()


def test_two_jobs_side_by_side_do_not_touch_each_other(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """One job's name is a prefix of the other's, and they share both targets' places."""
    workspace.add_files(2)
    for name in ("tested", "tested-1"):
        workspace.job(name=name, checkpoint=workspace.work / name).run(spark)
    assert copies(workspace) == {0: 2, 1: 2}
    for name in ("tested", "tested-1"):
        workspace.job(name=name, checkpoint=workspace.work / name).run(spark)
    assert copies(workspace) == {0: 2, 1: 2}


def test_a_pipeline_that_was_delivered_otherwise_before_is_taken_on(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """A user moves from plain foreachBatch to onceward with the checkpoint that they have."""
    workspace.add_files(2)
    own: list[int] = []

    def plain(batch: object, epoch: int) -> None:
        own.extend(row.id for row in batch.collect())

    query = (
        workspace.lucky(spark)
        .writeStream.option("checkpointLocation", str(workspace.checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(plain)
        .start()
    )
    query.awaitTermination()
    workspace.add_files(2)
    with pytest.raises(CheckpointUnknown, match="never run on it"):
        workspace.job().run(spark)
    workspace.job().run(spark, accept="adopt")
    expect_exactly_once([*({"id": i} for i in own), *workspace.in_table()], workspace.ids())
    expect_exactly_once([*({"id": i} for i in own), *workspace.in_files()], workspace.ids())


def onceward(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [python(), "-m", "onceward", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment({}))


@pytest.mark.parametrize("in_flight", ["deliver", "skip"])
def test_a_checkpoint_is_adopted_by_the_command_with_an_epoch_in_flight(
    workspace: SparkWorkspace, spark: SparkSession, in_flight: str
) -> None:
    """The plain query died in its second epoch, of which half was written. The state is Spark's, and goes on."""
    workspace.add_files(1)
    delivered: list[int] = []

    def plain(batch: Any, epoch: int) -> None:
        rows = [row.id for row in batch.collect()]
        delivered.extend(rows[: len(rows) // 2] if epoch else rows)
        if epoch:
            raise RuntimeError("killed")

    for _ in range(2):
        writer = workspace.lucky(spark).writeStream.option("checkpointLocation", str(workspace.checkpoint))
        query = writer.trigger(availableNow=True).foreachBatch(plain).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()
        workspace.add_files(1)
    file = workspace.work / "job.py"
    file.write_text(
        "from onceward import Job\nfrom onceward.sinks import FileSink, SQLiteSink\n"
        f"job = Job(name='tested', checkpoint={str(workspace.checkpoint)!r}, pipeline=lambda spark: None, sinks=["
        f"FileSink({str(workspace.files)!r}), SQLiteSink({str(workspace.database)!r}, table='t')])\n"
    )
    adopt = ("adopt", workspace.checkpoint, "--job", file, "--yes", "--because", "we move")
    assert "nobody has said what becomes of it" in onceward(*adopt).stderr.replace("\n", " ")
    shown = onceward(*adopt, "--in-flight", in_flight)
    assert shown.returncode == 0, shown.stderr
    assert "has decided the epochs up to 0 here" in shown.stderr
    assert "epoch 1 was begun" in shown.stderr
    assert "it holds 1 file of source 0" in shown.stderr
    workspace.job().run(spark)
    assert set(delivered[:ROWS]) == set(range(ROWS))
    assert set(delivered[ROWS:]) < set(range(ROWS, 2 * ROWS))
    expected = list(range(2 * ROWS if in_flight == "skip" else ROWS, 3 * ROWS))
    assert sorted(row["id"] for row in workspace.in_table()) == expected
    assert sorted(row["id"] for row in workspace.in_files()) == expected


def test_a_moved_checkpoint_is_still_the_same(workspace: SparkWorkspace, spark: SparkSession) -> None:
    workspace.add_files(1)
    workspace.job().run(spark)
    elsewhere: Path = workspace.work / "elsewhere"
    workspace.checkpoint.rename(elsewhere)
    workspace.add_files(1)
    workspace.job(checkpoint=elsewhere).run(spark)
    workspace.expect_exactly_once()
