"""A FileSink that is alone in its job lets Spark write the files of large epochs: the same files, as exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from onceward import Hooks, Job, OncewardError
from onceward.contracts import Handle, SlotContext
from onceward.errors import StagedRowsMissing, TargetRefused
from onceward.sinks import FileSink
from onceward.sinks.files.engine import engine_folder
from onceward.spark import counted, staging

COLUMNS = """
    id, id % 3 = 0 AS flag, cast(id AS int) AS small, cast(id AS float) AS f, id / 7.0D AS d, concat('é', id) AS text,
    cast(concat('b', id) AS binary) AS raw, date_add(date'2026-01-01', cast(id AS int)) AS day,
    timestamp_micros(1700000000000000 + id) AS ts, cast(id AS decimal(12, 3)) AS dec,
    cast('2026-01-01 00:00:00' AS timestamp_ntz) AS ntz, if(id % 2 = 0, null, id) AS odd
"""


def rows_in(folder: Path) -> list[dict[str, object]]:
    paths = [str(path) for path in folder.rglob("*.parquet") if ".onceward" not in path.parts]
    return sorted((row for path in paths for row in pq.ParquetFile(path).read().to_pylist()), key=lambda r: r["id"])


def job(work: Path, rows: int, sink: FileSink, *, small_epoch_rows: int = 0, hooks: Hooks | None = None) -> Job:
    def stream(spark: SparkSession) -> DataFrame:
        source = work / "in"
        if not source.exists():
            spark.range(rows).repartition(3).write.parquet(str(source))
        return spark.readStream.schema("id long").parquet(str(source)).selectExpr(*_split(COLUMNS))

    return Job(
        name="engine",
        checkpoint=work / "checkpoint",
        pipeline=stream,
        sinks=[sink],
        trigger="available-now",
        small_epoch_rows=small_epoch_rows,
        hooks=hooks or Hooks(),
    )


def _split(columns: str) -> list[str]:
    """At commas that are not inside brackets."""
    parts, depth = [""], 0
    for letter in columns.strip():
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def through_python(path: Path) -> FileSink:
    """An option of Arrow's own writer keeps Spark's away."""
    return FileSink(path, options={"write_statistics": True})


def writers_of(folder: Path) -> set[str]:
    return {pq.read_metadata(path).created_by.split()[0] for path in folder.glob("*.parquet")}


def test_spark_and_arrow_write_the_same_types_and_values(spark: SparkSession, tmp_path: Path) -> None:
    for name, sink in (
        ("engine", FileSink(tmp_path / "engine" / "out")),
        ("python", through_python(tmp_path / "python" / "out")),
    ):
        job(tmp_path / name, 50, sink).run(spark)
    engine, python = tmp_path / "engine" / "out", tmp_path / "python" / "out"
    assert writers_of(engine) == {"parquet-mr"}
    assert writers_of(python) == {"parquet-cpp-arrow"}
    assert rows_in(engine) == rows_in(python)
    assert len(rows_in(engine)) == 50
    schemas = [ds.dataset([str(p) for p in folder.glob("*.parquet")]).schema for folder in (engine, python)]
    assert [(field.name, str(field.type)) for field in schemas[0]] == [(f.name, str(f.type)) for f in schemas[1]]


def test_partition_folders_and_rolling_hold_for_what_spark_writes(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job(tmp_path, 60, FileSink(out, partition_by=["flag"], max_rows_per_file=5)).run(spark)
    assert {path.name for path in out.iterdir() if path.is_dir()} == {".onceward", "flag=false", "flag=true"}
    files = list(out.glob("flag=*/*.parquet"))
    assert max(pq.read_metadata(path).num_rows for path in files) <= 5
    assert sorted(row["id"] for path in files for row in pq.ParquetFile(path).read().to_pylist()) == list(range(60))
    assert list((out / ".onceward").iterdir()) == []


def test_what_spark_wrote_for_an_epoch_that_failed_is_aborted_and_the_next_start_delivers(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def veto(epoch: int) -> None:
        raise OncewardError("not today")

    with pytest.raises(OncewardError, match="not today"):
        job(tmp_path, 40, FileSink(out), hooks=Hooks(on_pre_commit=veto)).run(spark)
    assert rows_in(out) == []
    # As a driver leaves it that was killed while Spark wrote: a folder with Spark's own temporary files in it.
    (staged,) = {path.name.rpartition("-")[0] for path in (out / ".onceward").iterdir()}
    (out / ".onceward" / f"{staged}-0.engine" / "_temporary" / "0").mkdir(parents=True)
    job(tmp_path, 40, FileSink(out)).run(spark)
    assert [row["id"] for row in rows_in(out)] == list(range(40))
    assert list((out / ".onceward").iterdir()) == []


def test_an_empty_epoch_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = job(tmp_path, 10, FileSink(out))
    empty = Job(
        name=plan.name,
        checkpoint=plan.checkpoint,
        pipeline=lambda session: plan.pipeline(session).where("id < 0"),
        sinks=plan.sinks,
        trigger="available-now",
        small_epoch_rows=0,
    )
    empty.run(spark)
    assert list(out.glob("*.parquet")) == []
    assert list((out / ".onceward").iterdir()) == []


@pytest.mark.parametrize("place", ["_temporary/out", ".hidden/_out"])
def test_no_folder_on_the_way_to_the_sink_hides_what_spark_wrote(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    out = tmp_path / place
    job(tmp_path, 40, FileSink(out)).run(spark)
    assert writers_of(out) == {"parquet-mr"}
    assert [row["id"] for row in rows_in(out)] == list(range(40))


def test_a_partition_column_may_be_called_like_sparks_files(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = job(tmp_path, 30, FileSink(out, partition_by="part-id"))
    Job(
        name=plan.name,
        checkpoint=plan.checkpoint,
        pipeline=lambda session: plan.pipeline(session).selectExpr("id", "id % 3 AS `part-id`"),
        sinks=plan.sinks,
        trigger="available-now",
        small_epoch_rows=0,
    ).run(spark)
    assert {path.name for path in out.iterdir()} == {".onceward", "part-id=0", "part-id=1", "part-id=2"}
    assert [row["id"] for row in rows_in(out)] == list(range(30))
    assert list((out / ".onceward").iterdir()) == []


@pytest.mark.parametrize("column", ["_odd", ".odd"])
def test_a_partition_column_that_readers_would_skip_is_refused(tmp_path: Path, column: str) -> None:
    schema = pa.schema([("id", pa.int64()), (column, pa.int64())])
    with pytest.raises(TargetRefused, match=f"'{column}' would be hidden"):
        FileSink(tmp_path / "out", partition_by=column).check(schema, output_mode="append")


class LosesAFile(FileSink):
    """As when one of several executors has another disk there: what it wrote is not among what the driver finds."""

    def engine_pre_commit(self, context: SlotContext) -> Handle:
        next(engine_folder(self.path, context).rglob("part-*.parquet")).unlink()
        return super().engine_pre_commit(context)


def test_rows_that_spark_wrote_and_the_driver_does_not_find_fail_the_epoch(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(StagedRowsMissing, match=r"has counted 40 rows, .* finds \d+ of them staged in .*out/.onceward"):
        job(tmp_path, 40, LosesAFile(out)).run(spark)
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
    assert list((out / ".onceward").iterdir()) == [], "it was aborted"
    job(tmp_path, 40, FileSink(out)).run(spark)
    assert [row["id"] for row in rows_in(out)] == list(range(40))


class SkipsABatch(staging.StageTask):
    """Loses rows on their way into Python, and says nothing."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        next(batches, None)
        return super().__call__(batches)


def test_rows_that_do_not_reach_the_sinks_fail_the_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(staging, "StageTask", SkipsABatch)
    with pytest.raises(StagedRowsMissing, match=r"has counted 40 rows, .* finds 0 of them"):
        job(tmp_path, 40, through_python(out)).run(spark)
    monkeypatch.undo()
    job(tmp_path, 40, through_python(out)).run(spark)
    assert [row["id"] for row in rows_in(out)] == list(range(40))


def test_spark_counts_what_it_writes_also_without_its_commands(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release may lack the method by which its metrics are read."""
    rows = spark.range(0, 30, 1, 3).selectExpr("id", "id % 3 AS k")

    def saved(name: str) -> int | None:
        return counted.save_counted(rows, str(tmp_path / name), format="parquet", options={}, by=("k",))

    class Lacking:
        def saveCommand(self, folder: object) -> object:
            raise Py4JError("Method saveCommand does not exist")

    def without(batch: DataFrame, *arguments: object) -> DataFrameWriter:
        writer = real(batch, *arguments)
        if not observed:
            observed.append(True)
            writer._jwrite = Lacking()
        return writer

    assert saved("command") == 30
    real, observed = counted._writer, list[bool]()
    monkeypatch.setattr(counted, "_writer", without)
    assert saved("observed") == 30
    assert observed
    assert spark.read.parquet(str(tmp_path / "observed")).count() == 30
