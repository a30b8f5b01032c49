"""What the file sink writes: partitions, where files roll, and every type in each format."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from staged_files import ROWS, Contexts, files, ids, stage, visible

from onceward.errors import TargetRefused
from onceward.sinks import FileSink


def test_partition_columns_become_folders_as_spark_writes_them(tmp_path: Path, context: Contexts) -> None:
    values = ["plain", "a b", "a/b", "50%", "x=y", 'q"', "ü☃", "c:d", None, "", "{[]}^", "new\nline", "..", "'#*?\\"]
    batch = pa.record_batch({"id": pa.array(range(len(values)), pa.int64()), "app": values})
    sink = FileSink(tmp_path, partition_by=["app"])
    sink.commit(stage(sink, context(sink.name), batch))
    folders = {path.parent.name for path in visible(tmp_path)}
    assert folders == {
        "app=plain",
        "app=a b",
        "app=a%2Fb",
        "app=50%25",
        "app=x%3Dy",
        "app=q%22",
        "app=ü☃",
        "app=c%3Ad",
        "app=__HIVE_DEFAULT_PARTITION__",
        "app=%7B%5B%5D}%5E",
        "app=new%0Aline",
        "app=..",
        "app=%27%23%2A%3F%5C",
    }
    assert ids(tmp_path) == list(range(len(values)))
    assert pq.read_schema(visible(tmp_path)[0]).names == ["id"]


def test_partition_values_of_every_plain_type_are_spelled_as_spark_does(tmp_path: Path, context: Contexts) -> None:
    moment = pa.scalar(1_714_557_600_250_000, pa.timestamp("us", "UTC"))
    batch = pa.record_batch(
        {
            "i": pa.array([-5], pa.int32()),
            "b": pa.array([True]),
            "d": pa.array([19844], pa.date32()),
            "ts": pa.array([moment.as_py()], pa.timestamp("us", "UTC")),
            "dec": pa.array(["0.0000000001"]).cast(pa.decimal128(20, 10)),
            "id": pa.array([1], pa.int64()),
        }
    )
    sink = FileSink(tmp_path, partition_by=["i", "b", "d", "ts", "dec"])
    sink.check(batch.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), batch))
    assert [path.parent.relative_to(tmp_path).as_posix() for path in visible(tmp_path)] == [
        "i=-5/b=true/d=2024-05-01/ts=2024-05-01 10%3A00%3A00.25/dec=0.0000000001"
    ]


def test_rows_keep_their_order_and_values_within_each_of_two_level_partitions(
    tmp_path: Path, context: Contexts
) -> None:
    count = 5_000
    batch = pa.record_batch(
        {
            "id": pa.array(range(count), pa.int64()),
            "app": [None if n % 7 == 0 else f"app{n % 7}" for n in range(count)],
            "hour": pa.array([n % 3 for n in range(count)], pa.int32()),
        }
    )
    sink = FileSink(tmp_path, partition_by=["app", "hour"])
    sink.commit(stage(sink, context(sink.name), *(batch.slice(at, 100) for at in range(0, count, 100))))
    assert len(visible(tmp_path)) == 21
    for path in visible(tmp_path):
        app, hour = path.parent.parent.name.removeprefix("app="), int(path.parent.name.removeprefix("hour="))
        number = 0 if app == "__HIVE_DEFAULT_PARTITION__" else int(app.removeprefix("app"))
        expected = [n for n in range(count) if n % 7 == number and n % 3 == hour]
        assert pq.ParquetFile(path).read()["id"].to_pylist() == expected


def test_a_partition_value_too_long_for_a_folder_is_refused_before_the_decision(
    tmp_path: Path, context: Contexts
) -> None:
    sink = FileSink(tmp_path, partition_by="app")
    with pytest.raises(TargetRefused, match="255"):
        stage(sink, context(sink.name), pa.record_batch({"id": [1], "app": ["ü" * 200]}))


def test_files_roll_at_exactly_the_number_of_rows(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, max_rows_per_file=3)
    handle = stage(sink, context(sink.name), ROWS, ROWS)
    assert [file["rows"] for file in files(handle)] == [3, 3, 2]
    assert handle["rows"] == 8
    sink.commit(handle)
    assert ids(tmp_path) == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("format", ["parquet", "jsonl", "csv"])
def test_files_roll_at_about_the_number_of_bytes(tmp_path: Path, context: Contexts, format: str) -> None:
    batches = [pa.record_batch({"id": pa.array(range(at, at + 1000), pa.int64())}) for at in range(0, 100_000, 1000)]
    sink = FileSink(tmp_path, format=format, max_bytes_per_file=50_000)
    handle = stage(sink, context(sink.name), *batches)
    sizes = [file["bytes"] for file in files(handle)]
    assert len(sizes) > 3
    assert all(50_000 <= size < 150_000 for size in sizes[:-1])
    assert handle["rows"] == 100_000


def test_more_partitions_than_open_files_lose_nothing(
    tmp_path: Path, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.sinks.files.writer._BYTES_OF_ALL_PARTITIONS", 1)
    monkeypatch.setattr("onceward.sinks.files.writer._ROWS_TO_SPLIT", 1)
    rows = pa.record_batch({"id": pa.array(range(400), pa.int64()), "app": pa.array([n % 100 for n in range(400)])})
    sink = FileSink(tmp_path, partition_by="app")
    before = len(os.listdir("/proc/self/fd"))
    transaction = sink.begin_transaction(context(sink.name))
    for _ in range(3):
        sink.invoke(transaction, rows)
        assert len(os.listdir("/proc/self/fd")) - before <= 64
    sink.commit(sink.pre_commit(transaction))
    assert ids(tmp_path) == sorted(list(range(400)) * 3)


def test_small_batches_share_a_row_group(tmp_path: Path, context: Contexts) -> None:
    batch = pa.record_batch({"id": pa.array(range(1000), pa.int64())})
    sink = FileSink(tmp_path)
    sink.commit(stage(sink, context(sink.name), *[batch] * 50))
    assert pq.read_metadata(visible(tmp_path)[0]).num_row_groups == 1


EVERY_TYPE = pa.table(
    {
        "i": pa.array([1, None, -3], pa.int32()),
        "f": pa.array([1.0, float("nan"), float("-inf")]),
        "s": pa.array(['a"b\\c\n\x01ü☃', None, ""]),
        "b": pa.array([b"\x00\xff", None, b""]),
        "t": pa.array([True, None, False]),
        "d": pa.array([19723, None, 0], pa.date32()),
        "ts": pa.array([1_714_557_600_250_001, None, -1], pa.timestamp("us", "Europe/Berlin")),
        "ntz": pa.array([1_714_557_600_250_001, None, -1], pa.timestamp("us")),
        "dec": pa.array(["1.20", None, "-0.01"]).cast(pa.decimal128(38, 2)),
        "l": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "st": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int32())])),
        "m": pa.array([[("k", 1), ("j", None)], None, []], pa.map_(pa.string(), pa.int32())),
        "n": pa.nulls(3),
    }
)


def test_parquet_keeps_every_type_and_null(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path)
    sink.check(EVERY_TYPE.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), *EVERY_TYPE.to_batches()))
    found = pq.ParquetFile(visible(tmp_path)[0]).read()
    assert found.schema == EVERY_TYPE.schema
    assert str(found.to_pylist()) == str(EVERY_TYPE.to_pylist())


def test_json_lines_look_as_spark_writes_them(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, format="jsonl")
    sink.check(EVERY_TYPE.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), *EVERY_TYPE.to_batches(max_chunksize=2)))
    lines = visible(tmp_path)[0].read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert '"dec":1.20' in lines[0]
    assert [json.loads(line) for line in lines] == [
        {
            "i": 1,
            "f": 1.0,
            "s": 'a"b\\c\n\x01ü☃',
            "b": "AP8=",
            "t": True,
            "d": "2024-01-01",
            "ts": "2024-05-01T10:00:00.250001Z",
            "ntz": "2024-05-01T10:00:00.250001",
            "dec": 1.2,
            "l": [1, None],
            "st": {"a": 1},
            "m": {"k": 1, "j": None},
        },
        {"f": "NaN"},
        {
            "i": -3,
            "f": "-Infinity",
            "s": "",
            "b": "",
            "t": False,
            "d": "1970-01-01",
            "ts": "1969-12-31T23:59:59.999999Z",
            "ntz": "1969-12-31T23:59:59.999999",
            "dec": -0.01,
            "l": [],
            "st": {},
            "m": {},
        },
    ]


def test_json_lines_of_nothing_but_null_are_empty_objects(tmp_path: Path, context: Contexts) -> None:
    sink = FileSink(tmp_path, format="jsonl")
    sink.commit(stage(sink, context(sink.name), pa.record_batch({"a": pa.nulls(2, pa.int64())})))
    assert visible(tmp_path)[0].read_text() == "{}\n{}\n"


def test_csv_has_a_header_and_tells_null_from_empty(tmp_path: Path, context: Contexts) -> None:
    columns = EVERY_TYPE.select(["i", "s", "t", "d", "ts", "dec"])
    sink = FileSink(tmp_path, format="csv")
    sink.check(columns.schema, output_mode="append")
    sink.commit(stage(sink, context(sink.name), *columns.to_batches()))
    text = visible(tmp_path)[0].read_text(encoding="utf-8")
    assert text.startswith('"i","s","t","d","ts","dec"\n1,"a""b\\c\n\x01ü☃",true,2024-01-01,')
    assert '"2024-05-01T10:00:00.250001Z",1.20\n,,,,,\n-3,"",false,' in text


@pytest.mark.parametrize(
    ("format", "compression", "ending"),
    [
        ("parquet", None, ".snappy.parquet"),
        ("parquet", "zstd", ".zstd.parquet"),
        ("parquet", "none", ".parquet"),
        ("jsonl", "gzip", ".jsonl.gz"),
        ("csv", "gzip", ".csv.gz"),
    ],
)
def test_compressed_files_say_so_in_their_names_and_can_be_read(
    tmp_path: Path, context: Contexts, format: str, compression: str | None, ending: str
) -> None:
    sink = FileSink(tmp_path, format=format, compression=compression)
    sink.commit(stage(sink, context(sink.name)))
    (path,) = visible(tmp_path)
    assert path.name.endswith(ending)
    if format == "parquet":
        assert pq.ParquetFile(path).read().num_rows == 4
    else:
        lines = pa.input_stream(path, compression="gzip").read().decode().splitlines()
        assert len(lines) == 4 + (format == "csv")
