"""What the file sink refuses before a job starts: paths, options, columns and output modes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from staged_files import ROWS, hidden

from onceward.errors import ConfigurationError, TargetRefused
from onceward.sinks import FileSink


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path,
        str,
        lambda path: f"file:{path}",
        lambda path: f"file://{path}",
        lambda path: f"{path}/",
        lambda path: f"{path}/../{path.name}",
    ],
)
def test_one_folder_spelled_in_different_ways_is_one_folder(tmp_path: Path, make: Callable[[Path], str | Path]) -> None:
    assert FileSink(make(tmp_path / "out")).path == tmp_path / "out"
    assert FileSink(make(tmp_path / "out")).name == "files:out"


@pytest.mark.parametrize("path", ["s3://bucket/x", "s3a://bucket/x", "hdfs://host/x", "gs://b/x", "abfss://x"])
def test_a_path_on_another_system_is_refused_with_a_hint(path: str) -> None:
    with pytest.raises(ConfigurationError, match="local") as refused:
        FileSink(path)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "orc"}, "parquet, jsonl, csv"),
        ({"format": "csv", "compression": "snappy"}, "none, gzip"),
        ({"partition_by": ["a", "a"]}, "each column once"),
        ({"max_rows_per_file": 0}, "at least 1"),
        ({"max_bytes_per_file": -1}, "at least 1"),
        ({"name": "a/b"}, "without slashes"),
    ],
)
def test_wrong_options_are_refused_with_a_hint(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        FileSink(tmp_path, **options)
    assert said in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("options", "schema", "said"),
    [
        ({"partition_by": "day"}, {"id": pa.int64()}, "no column day"),
        ({"partition_by": "f"}, {"id": pa.int64(), "f": pa.float64()}, "cannot name a folder"),
        ({"partition_by": "l"}, {"id": pa.int64(), "l": pa.list_(pa.int64())}, "cannot name a folder"),
        ({"partition_by": ".x"}, {"id": pa.int64(), ".x": pa.int64()}, "hidden"),
        ({"partition_by": "id"}, {"id": pa.int64()}, "every column is a partition column"),
        ({"format": "csv"}, {"l": pa.list_(pa.int64())}, "does not fit csv"),
        ({"format": "csv"}, {"b": pa.binary()}, "does not fit csv"),
        ({"format": "jsonl"}, {"d": pa.duration("us")}, "jsonl does not take"),
        ({"format": "jsonl", "options": {"x": 1}}, {"id": pa.int64()}, "no options"),
        ({"options": {"nonsense": 1}}, {"id": pa.int64()}, "nonsense"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, options: dict[str, Any], schema: dict[str, pa.DataType], said: str
) -> None:
    sink = FileSink(tmp_path, **options)
    with pytest.raises(TargetRefused, match=said) as refused:
        sink.check(pa.schema(schema), output_mode="append")
    assert refused.value.hint


def test_output_mode_complete_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetRefused, match="complete"):
        FileSink(tmp_path).check(ROWS.schema, output_mode="complete")


def test_check_makes_the_folder_and_leaves_no_trace_in_it(tmp_path: Path) -> None:
    FileSink(tmp_path / "new" / "out").check(ROWS.schema, output_mode="append")
    assert os.listdir(tmp_path / "new" / "out") == [".onceward"]
    assert hidden(tmp_path / "new" / "out") == []


def test_a_folder_of_sparks_own_file_sink_is_refused(tmp_path: Path) -> None:
    """Readers that know Spark's list would not see our files."""
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(TargetRefused, match="_spark_metadata"):
        FileSink(tmp_path).check(pa.schema([("id", pa.int64())]), output_mode="append")


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TargetRefused, match="cannot write"):
        FileSink(tmp_path / "file").check(ROWS.schema, output_mode="append")
