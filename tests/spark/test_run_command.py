"""`onceward run` as a user types it: in another folder than the job's file, with settings for Spark."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
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
        env={**environment({}), "XDG_CACHE_HOME": str(folder)},
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


def test_a_module_that_the_executors_lack_is_named_and_no_restart_mends_it(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "one.json").write_text('{"app": "maps"}\n')
    (tmp_path / "beside.py").write_text("def shout(text):\n    import nowhere\n    return nowhere.loud(text)\n")
    (tmp_path / "job.py").write_text(f"FOLDER = {str(tmp_path)!r}\n{JOB}")
    done = run(tmp_path, "--master", "local[1]", "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert json.loads(done.stdout)["message"] == "ModuleNotFoundError: No module named 'nowhere'"
    (log,) = re.findall(r"Spark's own log is in (\S+)", done.stderr)
    assert "ModuleNotFoundError" in Path(log).read_text()


def test_the_file_of_init_runs_and_only_onceward_speaks(tmp_path: Path) -> None:
    """What Spark logs is kept in a file."""
    where = {
        **environment({}),
        "XDG_CACHE_HOME": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell",
    }

    def onceward(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [python(), "-m", "onceward", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=where, cwd=tmp_path)

    assert onceward("init").returncode == 0
    done = onceward("run", "job.py")
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr
    assert "log4j" not in done.stderr
    assert re.search(r"^\d\d:\d\d:\d\d made the table 'pv' in ", done.stderr, re.MULTILINE), done.stderr
    assert "running job into sqlite:pv" in done.stderr
    assert "done job: published up to epoch 0" in done.stderr
    with closing(sqlite3.connect(tmp_path / "pv.db")) as database:
        assert sorted(database.execute("SELECT * FROM pv")) == [("mail", 1), ("maps", 2)]
    (log,) = tmp_path.glob("onceward/*")
    assert log.read_text().count("Setting default log level") == 1
    assert log.stat().st_mode & 0o077 == 0
