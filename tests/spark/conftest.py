"""One Spark for all tests in this process, and a folder of JSON files for it to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from .ground import SPARK_SETTINGS, Ground, python_path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder starts a Spark."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """In-process, two cores, few partitions, no user interface."""
    os.environ["PYTHONPATH"] = python_path()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("onceward-tests")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    folder = tmp_path_factory.mktemp("spark")
    session = (
        builder.config("spark.sql.warehouse.dir", str(folder)).config("spark.local.dir", str(folder)).getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A source folder, a checkpoint and targets, all empty."""
    return Ground(tmp_path)
