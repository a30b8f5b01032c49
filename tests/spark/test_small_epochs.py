"""Small epochs are staged by the driver, others by executors: no sink can tell which from what it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from onceward.spark import first_rows

from .sinks import RecordingSink
from .workspace import SparkWorkspace

COLUMNS = {
    "boolean": "id % 2 = 0",
    "tinyint": "cast(id % 100 as tinyint)",
    "smallint": "cast(id as smallint)",
    "int": "cast(id as int)",
    "bigint": "id * 100000000000",
    "float": "cast(id / 3 as float)",
    "double": "id / 7",
    "nan": "double('NaN')",
    "decimal": "cast(id * 1.5 as decimal(38, 18))",
    "small_decimal": "cast(id as decimal(5, 2))",
    "string": "concat('ä€😀', id)",
    "binary": "encode(concat('b', id), 'UTF-8')",
    "date": "date_add(date'1969-12-25', cast(id as int))",
    "timestamp": "timestamp_micros(id * 86399999999)",
    "old_timestamp": "timestamp'1900-01-01 00:00:00.000001'",
    "timestamp_ntz": "timestamp_ntz'2024-03-31 02:30:00.5'",
    "interval": "make_dt_interval(cast(id as int), 1, 2, 3.5)",
    "array": "array(id, null, id + 1)",
    "timestamps": "array(timestamp_micros(id), null)",
    "map": "map('a', timestamp_micros(id), 'b', null)",
    "struct": "named_struct('x', id, 'y', named_struct('z', timestamp_micros(id), 't', array(id, null)))",
    "maps": "array(map(id, 'v'), null)",
    # `toArrow` fails on these when they are null.
    "deep": "named_struct('y', named_struct('t', array(map(id, 'v'))))",
    "empty": "filter(array(id), x -> false)",
    "nothing": "cast(null as string)",
}


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def test_both_ways_of_staging_give_the_same_types_and_values(
    workspace: SparkWorkspace, spark: SparkSession, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_types(session: SparkSession) -> DataFrame:
        plain = [f"{expression} AS `{name}`" for name, expression in COLUMNS.items()]
        holes = [f"if(id % 3 = 0, null, {expression}) AS `{name}_or_null`" for name, expression in COLUMNS.items()]
        return workspace.stream(session).selectExpr("id", *plain, *holes)

    workspace.add_files(2)
    recorded = {}
    # The slower way is not taken in silence.
    monkeypatch.setattr(first_rows, "_by_a_query", None)
    for small in (0, 1000):
        sink = RecordingSink(workspace.work / f"recorded-{small}")
        checkpoint = workspace.work / f"checkpoint-{small}"
        workspace.job([sink], checkpoint=checkpoint, pipeline=all_types, small_epoch_rows=small).run(spark)
        on_driver = [sink.processes(epoch) == {os.getpid()} for epoch in range(2)]
        assert on_driver == [small > 0, small > 0]
        recorded[small] = one_table(sink.tables(1))
    assert recorded[0].schema.equals(recorded[1000].schema, check_metadata=True)
    assert str(recorded[0].schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    for name in recorded[0].schema.names:
        if "nan" in name:  # not equal to itself
            assert str(recorded[0][name]) == str(recorded[1000][name])
        else:
            assert recorded[0][name].equals(recorded[1000][name]), name
    assert as_bytes(recorded[0]) == as_bytes(recorded[1000])


def one_table(tables: list[pa.Table]) -> pa.Table:
    """All slots together, by id, in one chunk and freshly laid out."""
    table = pa.concat_tables(tables).combine_chunks()
    return table.take(pa.array(sorted(range(len(table)), key=lambda at: table["id"][at].as_py()))).combine_chunks()


def as_bytes(table: pa.Table) -> bytes:
    """As it would stand in a segment; no metadata and empty metadata are the same."""
    table = table.replace_schema_metadata(None)
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return bytes(buffer.getvalue())


def test_an_epoch_larger_than_the_limit_goes_to_the_executors_after_all(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    """And so does the one after it, since it may be as large; then the driver is asked again."""
    for rows in (20, 20, 30, 31, 20, 20):
        workspace.add_files(1, rows)
    sink = RecordingSink(workspace.work / "recorded")
    workspace.job([sink], small_epoch_rows=30).run(spark)
    on_driver = [sink.processes(epoch) == {os.getpid()} for epoch in range(6)]
    assert on_driver == [True, True, True, False, False, True]
    rows = [row["id"] for epoch in range(6) for table in sink.tables(epoch) for row in table.to_pylist()]
    assert sorted(rows) == workspace.ids()


def test_a_first_epoch_of_large_files_goes_to_the_executors(workspace: SparkWorkspace, spark: SparkSession) -> None:
    """Nothing else is known of it yet. The one after it is small, as this one has shown it to be."""
    workspace.add_files(2, 20)
    for path in workspace.source.iterdir():
        path.write_text(path.read_text() + " " * 100_000)
    sink = RecordingSink(workspace.work / "recorded")
    workspace.job([sink]).run(spark)
    assert [sink.processes(epoch) == {os.getpid()} for epoch in range(2)] == [False, True]


def test_few_rows_that_are_too_many_bytes_for_the_driver_go_to_the_executors(
    workspace: SparkWorkspace, spark: SparkSession
) -> None:
    def long_rows(session: SparkSession) -> DataFrame:
        return workspace.stream(session).selectExpr("id", "array_join(transform(sequence(1, 2000), x -> uuid()), '')")

    workspace.add_files(1, 20)
    sink = RecordingSink(workspace.work / "recorded")
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.driver.maxResultSize", "300000")
    try:
        workspace.job([sink], pipeline=long_rows).run(spark)
    finally:
        settings.remove("spark.driver.maxResultSize")
    assert os.getpid() not in sink.processes(0)
    assert [row["id"] for table in sink.tables(0) for row in table.to_pylist()] == workspace.ids()


def test_a_spark_without_our_way_to_arrow_gives_the_same_rows(
    workspace: SparkWorkspace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_rows, "_FIRST_ROWS", "onceward.LackingRows")
    monkeypatch.setattr(first_rows, "_SOURCE", first_rows._SOURCE.replace("toBatchWithSchemaIterator", "toBatches"))
    workspace.add_files(2, 20)
    sink = RecordingSink(workspace.work / "recorded")
    workspace.job([sink]).run(spark)
    assert [sink.processes(epoch) for epoch in range(2)] == [{os.getpid()}] * 2
    rows = [row["id"] for epoch in range(2) for table in sink.tables(epoch) for row in table.to_pylist()]
    assert sorted(rows) == workspace.ids()
