"""The session of a command: when it brings Spark's Kafka connector by itself, and what it keeps to itself."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger

from onceward.cli.session import _has_connector, _say_errors_once, reads_kafka


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("from onceward.sources import KafkaSource\nsource = KafkaSource('b', topics='t')", True),
        ("from onceward import sources\nsource = sources.KafkaSource('b', topics='t')", True),
        ("def pipeline(spark):\n    return spark.readStream.format('kafka').load()", True),
        ("def pipeline(spark):\n    reader = spark.readStream\n    return reader.format('kafka').load()", True),
        ("def write(batch):\n    batch.writeStream.format('kafka').start()", False),
        ("topic = 'views-{}'.format('kafka')", False),
        ("from onceward.sinks import KafkaSink\nsink = KafkaSink('b', topic='kafka')", False),
        ("def pipeline(spark):\n    return spark.readStream.format('rate').load()  # KafkaSource", False),
        ("this is no Python", False),
    ],
)
def test_a_file_that_reads_from_kafka_is_known_by_its_code(tmp_path: Path, source: str, reads: bool) -> None:
    (tmp_path / "job.py").write_text(source)
    assert reads_kafka(tmp_path / "job.py") is reads


def test_jars_that_somebody_has_named_are_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert not _has_connector({"spark.master": "local"})
    assert not _has_connector({"spark.jars.ivy": "folder", "spark.jars.repositories": "a mirror"})
    assert _has_connector({"spark.driver.extraClassPath": "some.jar"})
    assert _has_connector({"spark.jars": "some.jar"})
    assert _has_connector({"spark.jars.packages": "some:package:1"})
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages some:package:1 pyspark-shell")
    assert _has_connector({})
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    (tmp_path / "spark-defaults.conf").write_text("# spark.jars.packages none\nspark.master local\n")
    assert not _has_connector({})
    (tmp_path / "spark-defaults.conf").write_text("spark.master local\nspark.jars.packages some:package:1\n")
    assert _has_connector({})


def test_what_pyspark_says_of_an_error_beside_raising_it_is_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    # As it is at first, with today's standard error: a command in another test may have silenced it.
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler()])
    before = logger.level
    logger.setLevel(logging.NOTSET)
    try:
        logger.exception("[UNRESOLVED_COLUMN]", file="job.py", line="7")
        assert "UNRESOLVED_COLUMN" in capsys.readouterr().err, "it would be"
        _say_errors_once()
        logger.exception("[UNRESOLVED_COLUMN]", file="job.py", line="7")
        assert capsys.readouterr().err == ""
    finally:
        logger.setLevel(before)
