"""The Spark session of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onceward.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULES = "spark.executorEnv.PYTHONPATH"


def spark_session(
    name: str,
    *,
    job_file: Path | None = None,
    master: str | None = None,
    settings: Sequence[str] = (),
    packages: str | None = None,
) -> SparkSession:
    """With these settings, given as NAME=VALUE. Modules beside the job's file are found by the executors, too."""
    given = dict(_setting(one) for one in settings)
    if packages is not None:
        given["spark.jars.packages"] = packages
    if master is not None:
        given["spark.master"] = master
    if job_file is not None:
        given.setdefault(_MODULES, str(job_file.resolve().parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName(name).config(map={**given}).getOrCreate()


def _setting(text: str) -> tuple[str, str]:
    name, is_set, value = text.partition("=")
    if not name.startswith("spark.") or not is_set:
        raise ConfigurationError(
            f"--conf {text} is not a setting of Spark", hint="give spark.NAME=VALUE, as to spark-submit"
        )
    return name, value
