"""A FileSink that is alone in its job lets Spark write the files of large epochs: the same files, as exactly once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from onceward import Hooks, Job, OncewardError
from onceward.sinks import FileSink

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
