"""Random schemas and rows go through real streaming jobs, and the servers' own clients read back what arrived."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from onceward import Job, Sink
from onceward.sinks import MySQLSink, PostgresSink
from onceward.testing.servers import MariaDBServer, PostgresServer

from .random_schemas import MARIADB, POSTGRES, Stream, differences, same_in_mariadb, same_in_postgres, streams

pytestmark = pytest.mark.cluster

EXAMPLES = 10
MANY_EXAMPLES = 200
_NUMBERS = count(1)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}

Texts = list[list[str | None]]
Check = Callable[[Stream, Path], None]


@contextmanager
def in_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """The zone of the session decides how Spark hands out timestamps, and must not decide what arrives."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def deliver(spark: SparkSession, stream: Stream, sinks: Sequence[Sink], folder: Path) -> None:
    """By a job that takes a file an epoch: the first is staged by executors, the second, being small, by the driver."""
    stream.write(folder / "in")

    def pipeline(session: SparkSession) -> DataFrame:
        schema = from_arrow_schema(stream.schema)
        return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))

    with in_zone(spark, stream.zone):
        Job(
            name=f"types {folder.name}",
            checkpoint=folder / "checkpoint",
            pipeline=pipeline,
            sinks=sinks,
            trigger="available-now",
        ).run(spark)


def ask(command: Sequence[str], statements: str) -> str:
    """What a client of the server prints."""
    done = subprocess.run(command, input=statements.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def postgres_rows(server: PostgresServer, table: str) -> Texts:
    printed = ask(
        [server.find("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", server.url],
        f"SET timezone = 'UTC'; SET client_encoding = 'UTF8'; COPY (SELECT * FROM {table} ORDER BY k) TO STDOUT;",
    )
    lines = printed.split("\n")[:-1]
    return [[None if text == "\\N" else unescaped(text) for text in line.split("\t")] for line in lines]


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], text)


def mariadb_rows(server: MariaDBServer, table: str, stream: Stream) -> Texts:
    """Every value in hexadecimal, because the client's own escapes do not tell a null from a text that says NULL."""
    values = []
    for field in stream.schema:
        name = "`" + field.name.replace("`", "``") + "`"
        text = f"HEX({name})" if pt.is_binary(field.type) else f"CONVERT({name} USING utf8mb4)"
        values.append(f"IF({name} IS NULL, 'null', HEX({text}))")
    printed = ask(
        [
            server.find("mariadb", "mysql"),
            "--no-defaults",
            "--batch",
            "--skip-column-names",
            "--default-character-set=utf8mb4",
            "--host=127.0.0.1",
            f"--port={server.port}",
            "--user=root",
            "test",
        ],
        f"SELECT {', '.join(values)} FROM {table} ORDER BY k;",
    )
    lines = printed.split("\n")[:-1]
    return [[None if text == "null" else bytes.fromhex(text).decode() for text in line.split("\t")] for line in lines]


@pytest.fixture
def through_postgres(spark: SparkSession, postgres: PostgresServer) -> Check:
    def check(stream: Stream, folder: Path) -> None:
        tables = [f"types_{folder.name}_{way}" for way in ("append", "upsert")]
        sinks = [
            PostgresSink(postgres.url, table=tables[0], two_phase=True),
            PostgresSink(postgres.url, table=tables[1], mode="upsert", keys=["k"]),
        ]
        deliver(spark, stream, sinks, folder)
        for table in tables:
            assert not (wrong := differences(stream, postgres_rows(postgres, table), same_in_postgres)), wrong
            postgres.query(f"DROP TABLE {table}")
        assert postgres.query("SELECT gid::text FROM pg_prepared_xacts") == []

    return check


@pytest.fixture
def through_mariadb(spark: SparkSession, mariadb: MariaDBServer) -> Check:
    def check(stream: Stream, folder: Path) -> None:
        tables = [f"types_{folder.name}_{way}" for way in ("append", "upsert")]
        sinks = [
            MySQLSink(mariadb.url, table=tables[0]),
            MySQLSink(mariadb.url, table=tables[1], mode="upsert", keys=["k"]),
        ]
        deliver(spark, stream, sinks, folder)
        for table in tables:
            assert not (wrong := differences(stream, mariadb_rows(mariadb, table, stream), same_in_mariadb)), wrong
            mariadb.query(f"DROP TABLE {table}")
        assert mariadb.query("XA RECOVER") == []

    return check


def hold(check: Check, drawn: st.SearchStrategy[Stream], folder: Path, *, examples: int, shrinks: bool) -> None:
    """For so many streams. A failure is made smaller only where there is time: every attempt is a streaming run."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=True,
        phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def holds(stream: Stream) -> None:
        check(stream, folder / str(next(_NUMBERS)))

    holds()


def test_whatever_spark_streams_arrives_in_postgres_unchanged(through_postgres: Check, tmp_path: Path) -> None:
    hold(through_postgres, streams(POSTGRES), tmp_path, examples=EXAMPLES, shrinks=False)


def test_whatever_spark_streams_arrives_in_mariadb_unchanged(through_mariadb: Check, tmp_path: Path) -> None:
    hold(through_mariadb, streams(MARIADB), tmp_path, examples=EXAMPLES, shrinks=False)


@pytest.mark.soak
def test_many_streams_arrive_in_postgres_unchanged(through_postgres: Check, tmp_path: Path) -> None:
    hold(through_postgres, streams(POSTGRES), tmp_path, examples=MANY_EXAMPLES, shrinks=True)


@pytest.mark.soak
def test_many_streams_arrive_in_mariadb_unchanged(through_mariadb: Check, tmp_path: Path) -> None:
    hold(through_mariadb, streams(MARIADB), tmp_path, examples=MANY_EXAMPLES, shrinks=True)


def test_the_judges_see_what_is_wrong() -> None:
    """Every value that is off by its least part, and every null that is none or should be one."""
    sent = [
        (pa.int64(), 7, "7", "7", "8"),
        (pa.float32(), struct.unpack("f", struct.pack("f", 0.1))[0], "0.1", "0.10000000149011612", "0.10000001"),
        (pa.float64(), 0.1, "0.1", "0.1", "0.10000000000000002"),
        (pa.string(), "é ", "é ", "é ", "é"),
        (pa.binary(), b"\x01", "\\x01", "01", "02"),
        (pa.bool_(), True, "t", "1", "0"),
        (pa.decimal128(5, 2), Decimal("1.50"), "1.50", "1.50", "1.5"),
        (pa.date32(), date(1, 2, 3), "0001-02-03", "0001-02-03", "0001-02-04"),
        (pa.timestamp("us"), datetime(1, 2, 3, 4), "0001-02-03 04:00:00", "0001-02-03 04:00:00.000000", "0001-02-03"),
        (pa.list_(pa.int32()), [1, None], "[1, null]", "[1,null]", "[1]"),
        (pa.struct([("a", pa.string())]), {"a": "1"}, '{"a": "1"}', '{"a":"1"}', '{"a": 1}'),
        (pa.map_(pa.int32(), pa.bool_()), [(1, True)], '{"1": true}', '{"1":true}', '{"1": 1}'),
    ]
    for kind, value, in_postgres, in_mariadb, wrong in sent:
        stream = Stream(pa.schema([("k", pa.int64()), ("v", kind)]), [{"k": 0, "v": value}], 0, "UTC")
        for text, judge in ((in_postgres, same_in_postgres), (in_mariadb, same_in_mariadb)):
            assert differences(stream, [["0", text]], judge) == ""
            for other in (wrong, None):
                assert "became" in differences(stream, [["0", other]], judge), (kind, other)
    zero = Stream(pa.schema([("k", pa.int64()), ("v", pa.float64())]), [{"k": 0, "v": -0.0}], 0, "UTC")
    assert differences(zero, [["0", "-0"]], same_in_postgres) == ""
    assert differences(zero, [["0", "0"]], same_in_postgres)
    assert differences(zero, [], same_in_postgres)
