"""`onceward run` as a user types it: in another folder than the job's file, with settings for Spark."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .processes import environment
from .workspace import python

JOB = """
from beside import shout
from onceward import Job
from onceward.sinks import FileSink
from pyspark.sql.functions import lit, udf

def pipeline(spark):
    views = spark.readStream.schema("app string").json(FOLDER + "/views")
    asked = lit(spark.sparkContext.master + " " + spark.conf.get("spark.sql.shuffle.partitions"))
    return views.select(udf(shout)("app").alias("app"), asked.alias("asked"))

job = Job(name="loud", checkpoint=FOLDER + "/checkpoint", pipeline=pipeline, sinks=[FileSink(FOLDER + "/out",
          format="jsonl")], trigger="available-now")
"""
BESIDE = "def shout(text):\n    return text.upper() + '!'\n"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return subprocess.run(
        [python(), "-m", "onceward", "run", str(folder / "job.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment({}),
        cwd=elsewhere,
    )


def test_modules_beside_the_file_reach_the_executors_and_settings_reach_spark(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "one.json").write_text('{"app": "maps"}\n{"app": "mail"}\n')
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "job.py").write_text(f"FOLDER = {str(tmp_path)!r}\n{JOB}")
    done = run(tmp_path, "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["settled"] == 0
    rows = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(row["app"] for row in rows) == ["MAIL!", "MAPS!"]
    assert {row["asked"] for row in rows} == {"local[1] 3"}


def test_a_setting_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "job.py").write_text(f"FOLDER = {str(tmp_path)!r}\n{JOB}")
    done = run(tmp_path, "--conf", "shuffle.partitions=3")
    assert done.returncode == 2
    assert "--conf shuffle.partitions=3 is not a setting of Spark" in done.stdout + done.stderr
